//! The supervisors: two processes per child, each this binary under another name.
//!
//! ```text
//! gateway ── guard ── keeper ── child (leader of its own process group) ── whatever it starts
//!    └──── socket ──────┘
//! ```
//!
//! The *keeper* starts the child and waits for it. It ends all descendants of the child when its socket is closed: the
//! gateway requested that, or is gone. It is a child subreaper, so orphans (including daemons in their own session)
//! become its children and cannot escape. The *guard* is the keeper's parent and also a subreaper: when the keeper
//! ends, the guard ends whatever is left.
//!
//! Invariant: if any one of gateway, guard and keeper is killed, the other two leave no process behind. Gateway: the
//! keeper sees its socket close. Guard: the gateway, its parent, has the keeper end everything. Keeper: its descendants
//! become the guard's. If guard and keeper are killed at the same time, the gateway ends the descendants of the child
//! (`strays`); only processes that had already left the child's tree escape.
//!
//! Both have an empty environment, and of the gateway's descriptors only the socket; the keeper learns what to start
//! from the start request. Both ignore termination signals: a service manager that sends SIGTERM to every process must
//! not remove the supervisors.

mod course;
mod descendants;
mod guard;
mod keeper;
mod reaper;
mod setup;

use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::fs::{Mode, OFlags};

pub(super) use descendants::{session_of, signal_all};
use setup::KEEPER_NAME;
pub(super) use setup::{GUARD_NAME, OWN_BINARY};

use super::protocol::{self, Report, take_over};

/// Whether this process was started as a guard or a keeper. Call it before anything else.
#[must_use]
pub fn is_supervisor() -> bool {
    name().is_some_and(|name| name == GUARD_NAME || name == KEEPER_NAME)
}

/// Runs a guard or a keeper. Call it while the process has one thread.
#[must_use]
pub fn supervise() -> ExitCode {
    let Ok(socket) = take_socket() else {
        return ExitCode::FAILURE;
    };
    let done = match name() {
        Some(name) if name == KEEPER_NAME => keeper::course(&socket),
        _ => guard::course(&socket),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            protocol::send_report(&socket, &Report::Failed(failure));
            ExitCode::FAILURE
        }
    }
}

fn name() -> Option<std::ffi::OsString> {
    std::env::args_os().next()
}

/// Takes the socket to the gateway from stdin, and replaces stdin with `/dev/null`.
fn take_socket() -> io::Result<UnixStream> {
    let socket = take_over(rustix::stdio::stdin())?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(null)?;
    Ok(UnixStream::from(socket))
}
