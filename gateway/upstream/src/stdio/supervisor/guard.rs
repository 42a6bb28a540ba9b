//! The guard: the keeper's parent, in case the keeper is killed.

use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::Pid;

use super::course::{Course, EVENTS_WAITING_MAX};
use super::reaper;
use super::setup::{KEEPER_NAME, OWN_BINARY, prepare};
use crate::stdio::protocol::{Report, StartFailure, send_report, take_over};

/// Grace between SIGTERM and SIGKILL for what a killed keeper left behind.
const TERMINATE_GRACE: Duration = Duration::from_secs(2);

/// Starts the keeper, and runs until no process is left.
///
/// It keeps the socket open without reading it, so the gateway sees the end of the socket only when both are gone.
pub(super) fn course(socket: &UnixStream) -> Result<(), StartFailure> {
    // A new session, so that signals of a terminal to the gateway's group do not reach the children.
    rustix::process::setsid().map_err(StartFailure::setup("setsid"))?;
    prepare(c"mooring-guard")?;
    let (events, event_queue) = mpsc::sync_channel(EVENTS_WAITING_MAX);
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
    .follow(&event_queue, |_| {});
    send_report(socket, &Report::Gone);
    Ok(())
}
