//! Watching one run from the moment its helper was started to the death of its last process: one loop, on one thread,
//! over everything that can happen.
//!
//! Invariant: every run ends: it exits, or is killed at a limit. A program that keeps a stream open, stays silent,
//! writes endlessly or ignores signals never makes this loop wait beyond its next deadline.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::fs::fstatfs;
use rustix::process::{Pid, Signal, kill_process_group};

use super::begun::{AnnouncedProcess, BegunHelper, SETUP_WAIT};
use super::error::RunError;
use super::private::PrivateDirectory;
use super::pump::Pump;
use super::ready::Ready;
use super::spawn::KILL_WAIT;
use super::state::{Handover, LOOK_GROUP, State};
use super::stop::StopHandle;
use super::verdict::Facts;
use super::warm::Replacement;
use super::watchdog;
use crate::cgroup::{Cgroup, CgroupUsage};
use crate::limits::Limits;
use crate::outcome::{Output, RefusedCall, RunEnd, RunLimit, StopReason, Usage};
use crate::protocol::{self, FinishReport, FromHelper, ToHelper};

/// Interval of measurements without a control group.
const LOOK_WATCHDOG: Duration = Duration::from_millis(50);

/// A run being watched.
pub(super) struct Watch<'a, 'w> {
    pub(super) begun: BegunHelper,
    /// Has another helper begun in place of this run's, where it was begun in advance.
    pub(super) replacement: Option<Replacement<'a>>,
    pub(super) stop: &'a StopHandle,
    pub(super) limits: &'a Limits,
    pub(super) stdout: Pump,
    pub(super) stderr: Pump,
    pub(super) state: State,
    /// The directory of a run of the degraded tier, whose files are watched.
    pub(super) private: Option<&'a PrivateDirectory>,
    pub(super) handover: &'a mut Handover,
    pub(super) witness: &'a mut Option<Witness<'w>>,
}

/// Inspects the processes below a helper, once, while the program runs and after it has written something.
pub(crate) type Witness<'w> = &'w mut dyn FnMut(Pid);

/// A run that has ended, with no process left.
pub(super) struct FinishedRun {
    pub(super) ended: RunEnd,
    pub(super) stdout: Output,
    pub(super) stderr: Output,
    pub(super) usage: Usage,
    /// Limits that it reached without being stopped.
    pub(super) limits_reached: Vec<RunLimit>,
    /// The system calls that it was refused.
    pub(super) refused_calls: Vec<RefusedCall>,
    /// The descriptors in the helper's last message.
    pub(super) descriptors: Vec<OwnedFd>,
}

impl Watch<'_, '_> {
    /// Returns when no process of the run is left, also with an error. After a successful run only its helper, which
    /// then exits, and its empty control group are left.
    pub(super) fn until_over(mut self) -> Result<(FinishedRun, BegunHelper), RunError> {
        let last = self.until_finished();
        let measured = last.as_ref().map_or(Ok(()), |_| self.measure_group());
        let killed = match last.is_ok() && self.has_reaped_namespace() {
            true => Ok(()),
            false => self.until_dead(),
        };
        let (finished, descriptors) = last?;
        measured.and(killed)?;
        Ok(self.over(finished, descriptors))
    }

    /// Measures the group for the last time.
    fn measure_group(&mut self) -> Result<(), RunError> {
        if self.begun.group.is_some() {
            self.measure()?;
        }
        let group = self.begun.group.as_deref();
        self.state.group_memory_peak_bytes = group.and_then(Cgroup::memory_peak_bytes);
        // Killing a run lowers the group's limit, at which its processes are then refused others.
        self.state.has_reached_processes |=
            self.state.stopped.is_none() && group.is_some_and(Cgroup::was_process_refused);
        Ok(())
    }

    /// Whether process 1 is gone, and with it every other process of its namespace. The degraded tier has none.
    fn has_reaped_namespace(&self) -> bool {
        let first = self.begun.first.as_ref();
        self.private.is_none()
            && first.is_some_and(|first| first.process.has_ended_within(Duration::ZERO))
    }

    fn until_finished(&mut self) -> Result<(FinishReport, Vec<OwnedFd>), RunError> {
        loop {
            let ready = Ready::next(self)?;
            if ready.stdout {
                self.stdout.take(&mut self.state.chunk);
                self.witness();
            }
            if ready.stderr {
                self.stderr.take(&mut self.state.chunk);
            }
            if ready.message {
                if let Some(last) = self.listen()? {
                    return Ok(last);
                }
            } else if ready.helper_ended {
                return Err(self.died());
            }
            if ready.asked {
                self.end(StopReason::Asked);
            }
            self.look()?;
        }
    }

    fn witness(&mut self) {
        if self.stdout.has_taken()
            && let Some(witness) = self.witness.take()
        {
            witness(self.begun.helper.pid());
        }
    }

    /// One message of the helper; its last one is returned.
    fn listen(&mut self) -> Result<Option<(FinishReport, Vec<OwnedFd>)>, RunError> {
        let Some((message, descriptors)) =
            protocol::receive(self.begun.helper.socket()).map_err(RunError::out_of_turn)?
        else {
            return Err(self.died());
        };
        match message {
            FromHelper::Waiting { pid } if self.begun.first.is_none() => {
                self.begun.announced(pid, descriptors)?;
            }
            FromHelper::Prepared if self.begun.first.is_some() && !self.handover.is_done => {
                self.prepared(descriptors)?;
            }
            FromHelper::Started if self.handover.is_done && self.state.started.is_none() => {
                self.replacement = None;
                let now = Instant::now();
                self.state.upper = descriptors.into_iter().next();
                self.state.started = Some(now);
                self.state.deadline = now + self.limits.wall_time;
                self.state.next_look = now + self.look_every();
            }
            FromHelper::Finished(finished) if self.handover.is_done => {
                return Ok(Some((finished, descriptors)));
            }
            FromHelper::Failed(failed) => return Err(failed.into()),
            other => {
                return Err(RunError::Protocol {
                    text: format!("{other:?}"),
                });
            }
        }
        Ok(None)
    }

    /// The isolation is complete: sends `Go`.
    fn prepared(&mut self, descriptors: Vec<OwnedFd>) -> Result<(), RunError> {
        if self.handover.listening.is_some() && descriptors.is_empty() {
            return Err(RunError::Protocol {
                text: "a network without a listening socket".to_owned(),
            });
        }
        let listener = descriptors.into_iter().next();
        if let Some((listening, listener)) = self.handover.listening.take().zip(listener) {
            listening.take(listener);
        }
        self.handover.is_done = true;
        self.handover.bridge = None;
        self.begun.helper.send(&ToHelper::Go, &[])
    }

    /// Checks deadlines and the run's usage.
    fn look(&mut self) -> Result<(), RunError> {
        let now = Instant::now();
        if now >= self.state.deadline {
            return self.deadline();
        }
        if self.state.started.is_none()
            || self.state.stopped.is_some()
            || now < self.state.next_look
        {
            return Ok(());
        }
        self.state.next_look = now + self.look_every();
        let helper = self.begun.helper.pid();
        let has_too_many_objects = (self.state.objects)
            .is_over_limit(helper, now)
            .map_err(RunError::host("look at descriptors"))?;
        let usage = self.measure()?;
        if usage.was_out_of_memory
            || usage.memory_bytes > self.memory_bytes_max()
            || has_too_many_objects
        {
            self.end(StopReason::Memory);
        } else if usage
            .cpu_time
            .is_some_and(|used| used + self.state.host_cpu_time() >= self.limits.cpu_time)
        {
            self.end(StopReason::CpuTime);
        } else if let Some(why) = self.private.and_then(|private| private.excess(self.limits)) {
            self.end(why);
        }
        Ok(())
    }

    fn deadline(&mut self) -> Result<(), RunError> {
        match (self.state.started, self.state.stopped) {
            (None, None) => Err(RunError::SetupTimeout {
                seconds: SETUP_WAIT.as_secs(),
            }),
            (Some(_), None) => {
                self.end(StopReason::WallTime);
                Ok(())
            }
            // It was killed, but the helper has not reported it. The run's files are lost with the helper.
            (_, Some(_)) => Err(self.died()),
        }
    }

    /// Kills the whole tree. The helper, which is outside of it, reports how it ended and what was written.
    fn end(&mut self, why: StopReason) {
        if self.state.stopped.is_some() {
            return;
        }
        self.state.stopped = Some(why);
        self.state.deadline = Instant::now() + KILL_WAIT;
        self.kill();
    }

    fn kill(&self) {
        if let Some(AnnouncedProcess { pid, process }) = &self.begun.first {
            // Without a process namespace its death would leave the others of its group, were the helper gone too.
            if self.private.is_some() && !process.has_ended_within(Duration::ZERO) {
                // If it has not created the group yet, it has no other processes.
                let _ = kill_process_group(*pid, Signal::KILL);
            }
            process.kill();
        }
        if let Some(group) = &self.begun.group {
            // The group is removed at the end; its processes are killed again until that succeeds.
            let _ = group.kill();
        }
    }

    /// The helper ends after its last message; everything else is dead by then, or is killed here.
    fn until_dead(&mut self) -> Result<(), RunError> {
        let had_ended = self.begun.helper.process().has_ended_within(Duration::ZERO);
        let is_over = had_ended
            || self
                .begun
                .first
                .as_ref()
                .is_some_and(|first| first.process.has_ended_within(Duration::ZERO));
        // Without a process namespace the helper ends the rest of the run. It must not be killed before that; if it
        // was, processes of the run may be left.
        if !is_over || (self.private.is_some() && had_ended) {
            self.kill();
        }
        if self.private.is_some() {
            self.begun.helper.process().has_ended_within(KILL_WAIT);
        }
        self.begun
            .helper
            .reap()
            .map_err(RunError::host("reap the helper"))?;
        let is_dead = self.begun.first.as_ref().is_none_or(|first| {
            first.process.kill();
            first.process.has_ended_within(KILL_WAIT)
        });
        if is_dead {
            Ok(())
        } else {
            Err(RunError::Undying {
                seconds: KILL_WAIT.as_secs(),
            })
        }
    }

    fn died(&mut self) -> RunError {
        let during = match (self.handover.is_done, self.state.started) {
            (false, _) => "while it set up the isolation layers",
            (true, None) => "before the program started",
            (true, Some(_)) => "while the program ran",
        };
        let status = match self.begun.helper.reap() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        RunError::HelperDied { during, status }
    }

    fn measure(&mut self) -> Result<CgroupUsage, RunError> {
        let usage = match &self.begun.group {
            Some(group) => group
                .usage()
                .map_err(RunError::host("control group: read"))?,
            None => {
                let tree = watchdog::measure(self.begun.helper.pid())
                    .map_err(RunError::host("watchdog"))?;
                // Process 1 is counted too.
                self.state.has_reached_processes |= tree.threads > u64::from(self.limits.processes);
                let mut usage = tree.usage;
                usage.memory_bytes += self.state.objects.memory_bytes();
                usage
            }
        };
        let most = &mut self.state.most;
        most.memory_bytes = most.memory_bytes.max(usage.memory_bytes);
        most.cpu_time = most.cpu_time.max(usage.cpu_time);
        most.was_out_of_memory |= usage.was_out_of_memory;
        Ok(usage)
    }

    /// A control group also counts what was written to the layers, because they are in memory.
    fn memory_bytes_max(&self) -> u64 {
        if self.begun.group.is_none() {
            return self.limits.memory_bytes;
        }
        let written = self
            .state
            .upper
            .as_ref()
            .and_then(|upper| fstatfs(upper).ok())
            .map(|system| {
                let used = system.f_blocks.saturating_sub(system.f_bfree);
                used.saturating_mul(u64::try_from(system.f_bsize).unwrap_or(0))
            });
        self.limits.memory_bytes + written.unwrap_or(self.state.upper_bytes)
    }

    fn look_every(&self) -> Duration {
        if self.begun.group.is_some() && self.private.is_none() {
            LOOK_GROUP
        } else {
            LOOK_WATCHDOG
        }
    }

    fn over(
        mut self,
        finished: FinishReport,
        descriptors: Vec<OwnedFd>,
    ) -> (FinishedRun, BegunHelper) {
        let now = Instant::now();
        let most = self.state.most;
        // A process that is killed with its parent is accounted for only by the group or the last measurement.
        let cpu_time = most
            .cpu_time
            .unwrap_or_default()
            .max(Duration::from_micros(finished.cpu_us));
        let host_cpu_time = self.state.host_cpu_time();
        let peak = self.state.group_memory_peak_bytes;
        let peak = peak.unwrap_or(most.memory_bytes.max(finished.memory_peak_bytes));
        let started = self.state.started.unwrap_or(now);
        let facts = Facts {
            stopped: self.state.stopped,
            status: finished.status.map(ExitStatus::from_raw),
            was_out_of_memory: most.was_out_of_memory,
            cpu_time,
            cpu_time_max: self.limits.cpu_time,
        };
        let limits_reached = self.state.limits_reached();
        let run = FinishedRun {
            limits_reached,
            refused_calls: finished.refused_calls,
            ended: facts.verdict(),
            stdout: self.stdout.finish(&mut self.state.chunk),
            stderr: self.stderr.finish(&mut self.state.chunk),
            usage: Usage {
                wall_time: now - started,
                start_time: started - self.state.begun,
                cpu_time: cpu_time + host_cpu_time,
                memory_peak_bytes: peak,
            },
            descriptors,
        };
        (run, self.begun)
    }
}
