//! A helper that was begun: the isolation that every run has is up, or is being built, and nothing of a run is in it.
//!
//! Invariant: when the value is dropped, its processes are dead and its control group is removed.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::process::Pid;

use super::error::RunError;
use super::spawn::{Helper, KILL_WAIT, Process, Streams};
use crate::cgroup::{Cgroup, CgroupBackend, CgroupLimits};
use crate::protocol::{self, FromHelper, ToHelper};
use crate::tier::Tier;

/// Timeout for building the isolation.
pub(super) const SETUP_WAIT: Duration = Duration::from_secs(10);

/// How long a waiting helper may take to exit before it is killed.
const DISMISS_WAIT: Duration = Duration::from_secs(1);

/// A helper, its streams and its control group. The helper is dropped before its group.
#[derive(Debug)]
pub(super) struct BegunHelper {
    pub(super) helper: Helper,
    pub(super) streams: Option<Streams>,
    /// None before the helper has announced it.
    pub(super) first: Option<AnnouncedProcess>,
    pub(super) group: Option<Box<dyn Cgroup>>,
}

/// The first process of the run's namespace, or the program's leader if there is none.
#[derive(Debug)]
pub(super) struct AnnouncedProcess {
    pub(super) pid: Pid,
    pub(super) process: Process,
}

impl BegunHelper {
    /// Starts a helper in a group without limits. It is tied to the calling thread: were that to end, the kernel would
    /// kill the helper.
    pub(super) fn begin(
        launcher: &Path,
        groups: &CgroupBackend,
        tier: Tier,
    ) -> Result<Self, RunError> {
        let (helper, streams) = Helper::start(launcher)?;
        // While the helper's binary is loaded.
        let group = groups
            .make()
            .map_err(RunError::host("control group: make"))?;
        let doors = group.as_ref().map_or(Ok(Vec::new()), |group| group.doors());
        let doors = doors.map_err(RunError::host("control group: open"))?;
        let begin = ToHelper::Begin { tier };
        let passed: Vec<_> = doors.iter().map(AsFd::as_fd).collect();
        helper.send(&begin, &passed)?;
        groups.wake(helper.pid());
        Ok(Self {
            helper,
            streams: Some(streams),
            first: None,
            group,
        })
    }

    /// Sets the limits of the run, whose streams are returned.
    pub(super) fn limit(&mut self, limits: &CgroupLimits) -> Result<Streams, RunError> {
        if let Some(group) = &self.group {
            let limited = group.limit(limits);
            limited.map_err(RunError::host("control group: limit"))?;
        }
        self.streams.take().ok_or_else(|| RunError::Protocol {
            text: "a helper for a second run".to_owned(),
        })
    }

    /// Process 1 is waiting: moves it into its group, unless it does so itself.
    pub(super) fn announced(
        &mut self,
        pid: i32,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), RunError> {
        let (pid, pidfd) = Pid::from_raw(pid)
            .zip(descriptors.into_iter().next())
            .ok_or_else(|| RunError::Protocol {
                text: "a first process without a handle".to_owned(),
            })?;
        let process = Process::from_pidfd(pidfd);
        let first = self.first.insert(AnnouncedProcess { pid, process });
        if let Some(group) = &self.group
            && let Err(source) = group.attach(pid)
            // If it has already ended it cannot be moved: the helper is about to report why.
            && !first.process.has_ended_within(Duration::ZERO)
        {
            return Err(RunError::Host {
                step: "control group: attach",
                source,
            });
        }
        Ok(())
    }

    /// Waits until process 1 waits, at most so long.
    pub(super) fn until_waiting(&mut self, within: Duration) -> Result<(), RunError> {
        if !self.helper.has_message_within(within) {
            return Err(RunError::SetupTimeout {
                seconds: within.as_secs(),
            });
        }
        match protocol::receive(self.helper.socket()).map_err(RunError::out_of_turn)? {
            Some((FromHelper::Waiting { pid }, descriptors)) => self.announced(pid, descriptors),
            Some((FromHelper::Failed(failed), _)) => Err(RunError::from(failed)),
            Some((other, _)) => Err(RunError::Protocol {
                text: format!("{other:?}"),
            }),
            None => Err(RunError::HelperDied {
                during: "while it set up the isolation layers",
                status: "it closed its channel".to_owned(),
            }),
        }
    }

    /// Whether both of its processes live. One that ends a moment later is noticed by the run.
    pub(super) fn is_alive(&self) -> bool {
        let is_gone = |process: &Process| process.has_ended_within(Duration::ZERO);
        !is_gone(self.helper.process())
            && self
                .first
                .as_ref()
                .is_some_and(|first| !is_gone(&first.process))
    }
}

impl Drop for BegunHelper {
    fn drop(&mut self) {
        self.helper.dismiss(DISMISS_WAIT);
        // Process 1 dies with the helper, which is dropped next. A group notices that it is empty; without one, this is
        // the only wait for it.
        let _ = self.helper.reap();
        if let Some(first) = &self.first {
            first.process.kill();
            first.process.has_ended_within(KILL_WAIT);
        }
    }
}
