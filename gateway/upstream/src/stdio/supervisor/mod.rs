//! The supervisors: this binary, started again under other names, twice for each child.
//!
//! ```text
//! gateway ── guard ── keeper ── child (leader of its own process group) ── whatever it starts
//!    └──── socket ──────┘
//! ```
//!
//! The *keeper* starts the child, waits for it, and ends all that descends from it when the gateway asks for that or is
//! gone, which is the same to it: the end of its socket. It is a child subreaper, so a process that loses its parent, a
//! daemon in a session of its own among them, becomes the keeper's child and cannot hide. The *guard* is the keeper's
//! parent and a subreaper too: it does nothing until the keeper ends, and then ends whatever is left.
//!
//! Invariant: whichever one of gateway, guard and keeper is killed, the other two leave no process behind. The gateway:
//! the keeper sees its socket end. The guard: the gateway, its parent, has the keeper end it all. The keeper: all that
//! it had becomes the guard's. Where guard and keeper are killed together, the gateway ends what descends from the
//! child (`strays`); only processes that had left the child's tree before then are out of its reach.
//!
//! Both have an empty environment and none of the gateway's descriptors but the socket; what is started, the keeper
//! learns from its order alone. Neither of the two heeds a signal that asks for an end: a service manager that sends
//! SIGTERM to everything must not take away what ends the children.

mod course;
mod descendants;
mod guard;
mod keeper;
mod reaper;

use std::ffi::CStr;
use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::fs::{Mode, OFlags};
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

pub(super) use descendants::{session_of, signal_all};

use super::protocol::{self, Report, StartFailure, take_over};

/// The name by which a process knows that it is a guard.
pub(super) const GUARD_NAME: &str = "mooring-guard";
/// The name by which a process knows that it is a keeper.
const KEEPER_NAME: &str = "mooring-keeper";
/// Signals that ask for an end, or mean nothing here and would end the process.
const UNHEEDED: [i32; 7] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM];

/// Whether this process was started as a guard or a keeper. To be asked before anything else.
#[must_use]
pub fn is_supervisor() -> bool {
    name().is_some_and(|name| name == GUARD_NAME || name == KEEPER_NAME)
}

/// All that a guard or a keeper does. To be called on a process that has one thread.
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
            protocol::tell(&socket, &Report::Failed(failure));
            ExitCode::FAILURE
        }
    }
}

fn name() -> Option<std::ffi::OsString> {
    std::env::args_os().next()
}

/// Takes the socket to the gateway from standard input, which reads nothing from then on.
fn take_socket() -> io::Result<UnixStream> {
    let socket = take_over(rustix::stdio::stdin())?;
    let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(nothing)?;
    Ok(UnixStream::from(socket))
}

/// What both have to be before they start anything: known by name, deaf, and the parent of every orphan.
fn prepare(name: &CStr) -> Result<(), StartFailure> {
    // For whoever lists processes: the binary's own name would be that of the link it is started by.
    let _ = rustix::thread::set_name(name);
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in UNHEEDED {
        // A handler, in place of ignoring it: what is ignored, the child would inherit.
        signal_hook::flag::register(signal, Arc::clone(&ignored))
            .map_err(StartFailure::setup("signals"))?;
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(StartFailure::setup("child subreaper"))
}
