//! The keeper: starts the child and ends all its descendants.

use std::io::{self, ErrorKind, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, SyncSender};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Resource, Rlimit, setrlimit};

use super::course::{Course, EVENTS_WAITING_MAX, Event};
use super::descendants::check_children_listing;
use super::reaper;
use super::setup::prepare;
use crate::stdio::command::ProcessLimits;
use crate::stdio::protocol::{
    Report, StartFailure, StartRequest, receive_order, receive_streams, send_report,
};

/// With fewer open files a keeper could not search for its descendants.
const OPEN_FILES_MIN: u64 = 64;

/// Executes the gateway's start request, and runs until no process is left.
pub(super) fn course(socket: &UnixStream) -> Result<(), StartFailure> {
    prepare(c"mooring-keeper")?;
    check_children_listing().map_err(StartFailure::setup("list of children in /proc"))?;
    let received = receive_streams(socket).map_err(StartFailure::setup("streams"))?;
    let Some(streams) = received else {
        return Ok(());
    };
    let Some(order) = receive_order(socket).map_err(StartFailure::setup("order"))? else {
        return Ok(());
    };
    let (events, event_queue) = mpsc::sync_channel(EVENTS_WAITING_MAX);
    // Both threads are started before the limits are set: the address space limit is meant for the child, and threads
    // need memory too.
    let reaper =
        reaper::ReadyReaper::begin(events.clone()).map_err(StartFailure::setup("thread"))?;
    let control = socket.try_clone().map_err(StartFailure::setup("socket"))?;
    reaper::small_thread(move || watch_for_stop(control, &events))
        .map_err(StartFailure::setup("thread"))?;
    let main = start(&order, streams)?;
    let pid = main.as_raw_nonzero().get();
    send_report(socket, &Report::Started { pid });
    reaper.go();
    Course {
        main,
        stop_grace: Duration::from_millis(order.stop_grace_ms),
        terminate_grace: Duration::from_millis(order.terminate_grace_ms),
    }
    .follow(&event_queue, |status| {
        send_report(socket, &Report::Exited { status })
    });
    send_report(socket, &Report::Gone);
    Ok(())
}

/// Waits for the end of the socket: after the start request the gateway sends nothing.
fn watch_for_stop(mut control: UnixStream, events: &SyncSender<Event>) {
    let _ = control.read(&mut [0]);
    let _ = events.send(Event::Stop);
}

/// Starts the child exactly as requested. No copy of its streams stays in this process.
fn start(order: &StartRequest, streams: [OwnedFd; 3]) -> Result<Pid, StartFailure> {
    let [stdin, stdout, stderr] = streams.map(Stdio::from);
    let mut command = Command::new(&order.program);
    command
        .args(&order.arguments)
        .env_clear()
        .envs(order.environment.iter().map(|(name, value)| (name, value)))
        .process_group(0)
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr);
    if let Some(directory) = &order.directory {
        // Checked here, because the kernel reports the same error for a missing program.
        rustix::fs::open(
            directory,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|errno| StartFailure::DirectoryMissing {
            directory: directory.clone(),
            reason: errno.to_string(),
        })?;
        command.current_dir(directory);
    }
    limit(order.limits)?;
    let child = command
        .spawn()
        .map_err(|error| failure(order.program.clone(), &error))?;
    Ok(Pid::from_child(&child))
}

fn failure(program: String, error: &io::Error) -> StartFailure {
    match error.kind() {
        ErrorKind::NotFound => StartFailure::NotFound { program },
        ErrorKind::PermissionDenied => StartFailure::NotExecutable { program },
        _ => StartFailure::Start {
            program,
            reason: error.to_string(),
        },
    }
}

/// Sets the child's limits on this process, from which the child inherits them.
fn limit(limits: ProcessLimits) -> Result<(), StartFailure> {
    let open_files = limits.open_files.map(|count| count.max(OPEN_FILES_MIN));
    for (resource, value) in [
        (Resource::Nofile, open_files),
        (Resource::As, limits.address_space_bytes),
    ] {
        let Some(value) = value else { continue };
        let held_to = rustix::process::getrlimit(resource).maximum;
        let value = held_to.map_or(value, |maximum| maximum.min(value));
        let limit = Rlimit {
            current: Some(value),
            maximum: Some(value),
        };
        setrlimit(resource, limit).map_err(StartFailure::setup("limits"))?;
    }
    Ok(())
}
