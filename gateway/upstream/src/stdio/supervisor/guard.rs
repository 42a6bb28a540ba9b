//! The guard: the keeper's parent, there for the case that the keeper is killed.

use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::Pid;

use super::course::{Course, EVENTS_WAITING_MAX};
use super::{KEEPER_NAME, prepare, reaper};
use crate::stdio::launcher::OWN_BINARY;
use crate::stdio::protocol::{Report, StartFailure, take_over, tell};

/// How long what a killed keeper left has after SIGTERM.
const TERMINATE_GRACE: Duration = Duration::from_secs(2);

/// Starts the keeper, and stays until nothing is left.
///
/// It keeps the socket open and reads nothing from it: for the gateway the socket ends when both are gone.
pub(super) fn course(socket: &UnixStream) -> Result<(), StartFailure> {
    // A session of its own: what a terminal sends to the gateway's group is not for the children.
    rustix::process::setsid().map_err(StartFailure::setup("setsid"))?;
    prepare(c"mooring-guard")?;
    let (events, told) = mpsc::sync_channel(EVENTS_WAITING_MAX);
    let reaper = reaper::ReadyReaper::begin(events).map_err(StartFailure::setup("thread"))?;
    let theirs = take_over(socket).map_err(StartFailure::setup("socket"))?;
    let keeper = Command::new(OWN_BINARY)
        .arg0(KEEPER_NAME)
        .args(std::env::args_os().skip(1))
        .env_clear()
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(StartFailure::setup("keeper"))?;
    reaper.go();
    Course {
        main: Pid::from_child(&keeper),
        stop_grace: Duration::ZERO,
        terminate_grace: TERMINATE_GRACE,
    }
    .follow(&told, |_| {});
    tell(socket, &Report::Gone);
    Ok(())
}
