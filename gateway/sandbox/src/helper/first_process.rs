//! Process 1 of the run: waits for it, confines itself, starts the program, and waits for all its descendants.
//!
//! The kernel handles the signals of process 1 specially, so this process keeps that place and the program gets another.
//! Everything that it starts inherits its confinement. When it ends, the kernel kills the rest of the namespace and
//! accounts for its usage before the parent is notified.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::Mode;
use rustix::process::{WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};

use super::error::{HelperStep, StepError};
use super::own_user::{self, OwnUser};
use super::places::Places;
use super::process_limit::KernelSettings;
use super::program::{LastProcess, MainProcesses, PreparedProgram};
use super::root::Root;
use super::{access_rules, capabilities, control_group, descriptors, process, rlimits, seccomp};
use crate::protocol::{ProgramDescriptors, Spec, StepFailure, ToHelper, WireLimits, receive, send};
use crate::tier::Tier;

/// A message of process 1 to the helper outside.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FirstProcessMessage {
    /// Every layer is up, and nothing but `Go` is missing. Carries the listener of the filter, if it has one.
    Confined,
    /// The program runs.
    Started,
    /// The program has ended, with this wait status.
    Ended(i32),
    /// A step failed, and no program runs.
    Failed(StepFailure),
}

/// The inputs of process 1.
pub(super) struct FirstProcess {
    pub(super) isolation: ExistingIsolation,
    /// Into the run's control group, see [`ToHelper::Begin`].
    pub(super) doors: Vec<OwnedFd>,
    pub(super) channel: OwnedFd,
}

/// The isolation that already surrounds this process. It determines what the process adds.
pub(super) enum ExistingIsolation {
    /// Namespaces and a private root: it is process 1.
    Root {
        settings: KernelSettings,
        root: Root,
    },
    /// Nothing but a private directory of the host: the degraded tier.
    Private {
        places: Places,
        user: Option<OwnUser>,
    },
}

/// Be process 1.
pub(super) fn run(first: FirstProcess) -> ! {
    let FirstProcess {
        isolation,
        doors,
        channel,
    } = first;
    // If the helper outside is gone already, the channel is closed.
    let told = process::die_with_parent()
        .and_then(|()| control_group::step_into(doors))
        .and_then(|()| course(isolation, &channel))
        .map_or_else(
            |error| FirstProcessMessage::Failed(StepFailure::from(&error)),
            FirstProcessMessage::Ended,
        );
    // The run ends even if the message cannot be sent.
    let _ = send(channel.as_fd(), &told, &[]);
    process::end(0)
}

/// Waits for the run, confines this process, waits for the host's `Go`, starts the program, and waits for its end.
fn course(isolation: ExistingIsolation, channel: &OwnedFd) -> Result<i32, StepError> {
    let (ToHelper::Spec(spec), passed) = hear(channel)? else {
        return Err(HelperStep::SPEC.words("something else than a spec"));
    };
    let passed = ProgramDescriptors::from_received(passed, spec.has_bridge)
        .ok_or_else(|| HelperStep::SPEC.words("fewer descriptors than have to be"))?;
    let bytes = descriptors::read_program(&passed)?;
    let filter =
        descriptors::read_all(passed.filter.as_fd(), seccomp::PROGRAM_BYTES_MAX, "filter")?;
    // The program alone has the bridge once it runs.
    let ProgramDescriptors { bridge, .. } = passed;
    let (program, listener) = confine(&spec, &filter, &bytes, isolation)?;
    let passed: Vec<_> = listener.iter().map(AsFd::as_fd).collect();
    send(channel.as_fd(), &FirstProcessMessage::Confined, &passed)?;
    // The helper outside answers; nothing inside ever has the listener.
    drop(listener);
    let (ToHelper::Go, _) = hear(channel)? else {
        return Err(HelperStep::SPEC.words("something else than go"));
    };
    let started = program.start(bridge)?;
    send(channel.as_fd(), &FirstProcessMessage::Started, &[])?;
    Ok(wait(started))
}

/// The next message of the helper outside.
fn hear(channel: &OwnedFd) -> Result<(ToHelper, Vec<OwnedFd>), StepError> {
    receive(channel.as_fd())?.ok_or_else(|| HelperStep::PARENT.words("the helper outside is gone"))
}

/// Builds the isolation layers that a process applies to itself, and prepares its program. The filter comes last: it
/// denies calls that the others need. Where the kernel has one, its listener is returned.
fn confine(
    spec: &Spec,
    filter: &[u8],
    bytes: &[u8],
    isolation: ExistingIsolation,
) -> Result<(PreparedProgram, Option<OwnedFd>), StepError> {
    let program = match isolation {
        ExistingIsolation::Root { settings, root } => {
            root.follow()?;
            let places = Places::beneath("/");
            settings.limit_processes(spec.limits.processes)?;
            begin(&places)?;
            rlimits::apply(&spec.runtime, &spec.limits)?;
            capabilities::drop_all()?;
            access_rules::apply_in_root(spec)?;
            PreparedProgram::new(Tier::Strict, spec, &places, bytes)?
        }
        ExistingIsolation::Private { places, user } => {
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
            PreparedProgram::new(Tier::Degraded, spec, &places, bytes)?
        }
    };
    let listener = seccomp::install(filter)?;
    Ok((program, listener))
}

/// Starts a new session and process group, in the program's directory, without anything inherited from the host.
fn begin(places: &Places) -> Result<(), StepError> {
    rustix::process::umask(Mode::from_raw_mode(0o022));
    rustix::process::setsid().map_err(HelperStep::FORK.at("setsid"))?;
    let scratch = places.scratch();
    rustix::process::chdir(&scratch)
        .map_err(HelperStep::ENTER_ROOT.at(scratch.display().to_string()))?;
    descriptors::close_on_exec()
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
