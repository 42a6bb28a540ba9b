//! Process 1 of the run: confines itself, starts the program, and waits for all its descendants.
//!
//! The kernel handles the signals of process 1 specially, so this process keeps that place and the program gets another.
//! Everything that it starts inherits its confinement. When it ends, the kernel kills the rest of the namespace and
//! accounts for its usage before the parent is notified.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::Mode;
use rustix::process::{WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};

use super::error::{Cause, StepError, at};
use super::own_user::{self, OwnUser};
use super::places::Places;
use super::process_limit::KernelSettings;
use super::program::{LastProcess, MainProcesses, PreparedProgram};
use super::{access_rules, capabilities, control_group, descriptors, process, rlimits, seccomp};
use crate::protocol::{Spec, StepFailure, ToHelper, WireLimits, receive, send};

/// A message of process 1 to the helper outside.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FirstProcessMessage {
    /// The program runs.
    Started,
    /// The program has ended, with this wait status.
    Ended(i32),
    /// A step failed, and no program runs.
    Failed(StepFailure),
}

/// The inputs of process 1.
pub(super) struct FirstProcess<'a> {
    pub(super) spec: &'a Spec,
    pub(super) program: &'a PreparedProgram,
    pub(super) filter: &'a [u8],
    pub(super) isolation: ExistingIsolation,
    /// Into the run's control group, see [`crate::protocol::SpecDescriptors::doors`].
    pub(super) doors: Vec<OwnedFd>,
    /// For the program, which alone has it once it runs.
    pub(super) bridge: Option<OwnedFd>,
    pub(super) channel: OwnedFd,
}

/// The isolation that already surrounds this process. It determines what the process adds.
pub(super) enum ExistingIsolation {
    /// Namespaces and a private root: it is process 1.
    Root {
        settings: KernelSettings,
        places: Places,
    },
    /// Nothing but a private directory of the host: the degraded tier.
    Private {
        places: Places,
        user: Option<OwnUser>,
    },
}

/// Be process 1.
pub(super) fn run(first: FirstProcess<'_>) -> ! {
    let channel = first.channel;
    let told = control_group::step_into(first.doors)
        .and_then(|()| confine(first.spec, first.filter, first.isolation))
        .and_then(|()| course(first.program, first.bridge, &channel))
        .map_or_else(
            |error| FirstProcessMessage::Failed(StepFailure::from(&error)),
            FirstProcessMessage::Ended,
        );
    // If nobody reads the message, the run ends all the same.
    let _ = send(channel.as_fd(), &told, &[]);
    super::end(0)
}

/// Builds the isolation layers that a process applies to itself. The filter comes last: it denies calls that the others
/// need.
fn confine(spec: &Spec, filter: &[u8], isolation: ExistingIsolation) -> Result<(), StepError> {
    match isolation {
        ExistingIsolation::Root { settings, places } => {
            process::die_with_parent()?;
            settings.limit_processes(spec.limits.processes)?;
            begin(&places)?;
            rlimits::apply(&spec.runtime, &spec.limits)?;
            capabilities::drop_all()?;
            access_rules::apply_in_root(spec)?;
        }
        ExistingIsolation::Private { places, user } => {
            process::die_with_parent()?;
            process::adopt_orphans()?;
            begin(&places)?;
            // Who is another user has nothing running yet.
            let running = user.map_or_else(own_user::running_already, |_| 0);
            let limits = WireLimits {
                processes: spec.limits.processes.saturating_add(running),
                ..spec.limits
            };
            rlimits::apply(&spec.runtime, &limits)?;
            capabilities::drop_all_as(user)?;
            process::end_group_with_parent()?;
            process::hide_memory()?;
            access_rules::apply_around(spec, &places)?;
        }
    }
    seccomp::install(filter)
}

/// Starts a new session and process group, in the program's directory, without anything inherited from the host.
fn begin(places: &Places) -> Result<(), StepError> {
    rustix::process::umask(Mode::from_raw_mode(0o022));
    rustix::process::setsid()
        .map_err(at("setsid"))
        .map_err(StepError::Fork)?;
    let scratch = places.scratch();
    rustix::process::chdir(&scratch)
        .map_err(at(scratch.display().to_string()))
        .map_err(StepError::EnterRoot)?;
    descriptors::close_on_exec()
}

/// Waits for the host's `Go`, starts the program, and waits for its end.
fn course(
    program: &PreparedProgram,
    bridge: Option<OwnedFd>,
    channel: &OwnedFd,
) -> Result<i32, StepError> {
    match receive::<ToHelper>(channel.as_fd())? {
        Some((ToHelper::Go, _)) => {}
        Some((ToHelper::Spec(_), _)) => return Err(StepError::Spec(Cause::words("a second spec"))),
        None => {
            return Err(StepError::Parent(Cause::words(
                "the helper outside is gone",
            )));
        }
    }
    let started = program.start(bridge)?;
    send(channel.as_fd(), &FirstProcessMessage::Started, &[])?;
    Ok(wait(started))
}

/// Waits for every main process, and meanwhile for whatever else ends.
fn wait(mut started: MainProcesses) -> i32 {
    let mut last = match started.last {
        LastProcess::Status(status) => status,
        LastProcess::Process(_) => 0,
    };
    while !started.running.is_empty() {
        let Ok(Some((pid, status))) =
            rustix::io::retry_on_intr(|| rustix::process::wait(WaitOptions::empty()))
        else {
            break;
        };
        let pid = pid.as_raw_nonzero().get();
        started.running.remove(&pid);
        if matches!(started.last, LastProcess::Process(process) if process == pid) {
            last = WaitStatus::as_raw(status);
        }
    }
    last
}
