//! What is known of a watched run so far, and what it is still to be given.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::fstatfs;

use super::begun::SETUP_WAIT;
use super::kernel_objects::ObjectsMeter;
use super::pump::Pump;
use crate::cgroup::CgroupUsage;
use crate::job::ListenerCallback;
use crate::outcome::{RunLimit, StopReason};
use crate::thread_time::thread_cpu_time;

/// [`SETUP_WAIT`] in a helper that was begun in advance. After this the run begins its own.
const WARM_SETUP_WAIT: Duration = Duration::from_secs(1);
/// Interval of measurements with a control group.
pub(super) const LOOK_GROUP: Duration = Duration::from_millis(20);

/// The state of the run so far.
pub(super) struct State {
    /// How much the run may write into layers that are in memory.
    pub(super) upper_bytes: u64,
    /// One of the layers, if the helper passes them before the end: its file system shows how much was written.
    pub(super) upper: Option<OwnedFd>,
    pub(super) begun: Instant,
    /// The processor time of this thread then.
    pub(super) begun_cpu: Duration,
    pub(super) deadline: Instant,
    pub(super) next_look: Instant,
    pub(super) started: Option<Instant>,
    pub(super) stopped: Option<StopReason>,
    /// The most that was ever measured of each.
    pub(super) most: CgroupUsage,
    /// The peak that the control group measured, if there was one.
    pub(super) group_memory_peak_bytes: Option<u64>,
    /// Whether the group has refused a process or, without one, the run was seen with as many as it may have.
    pub(super) has_reached_processes: bool,
    pub(super) objects: ObjectsMeter,
    pub(super) chunk: Box<[u8; Pump::CHUNK]>,
}

/// The host's state until the program is about to be started.
pub(super) struct Handover {
    /// From then on only the program has it, so that its closing is noticed.
    pub(super) bridge: Option<OwnedFd>,
    /// The callback for connections to the socket that listens inside.
    pub(super) listening: Option<ListenerCallback>,
    /// Whether it is over: the program may have been started.
    pub(super) is_done: bool,
}

impl State {
    /// `is_warm`: whether the helper was begun in advance.
    pub(super) fn new(
        begun: Instant,
        begun_cpu: Duration,
        upper_bytes: u64,
        is_warm: bool,
    ) -> Self {
        let setup_wait = if is_warm { WARM_SETUP_WAIT } else { SETUP_WAIT };
        Self {
            upper_bytes,
            upper: None,
            begun,
            begun_cpu,
            deadline: Instant::now() + setup_wait,
            next_look: begun + LOOK_GROUP,
            started: None,
            stopped: None,
            most: CgroupUsage::default(),
            group_memory_peak_bytes: None,
            has_reached_processes: false,
            objects: ObjectsMeter::default(),
            chunk: Box::new([0; Pump::CHUNK]),
        }
    }

    /// The limits at which the kernel refused something.
    pub(super) fn limits_reached(&self) -> Vec<RunLimit> {
        let layer = self.upper.as_ref().and_then(|upper| fstatfs(upper).ok());
        let is_reached = [
            (RunLimit::Processes, self.has_reached_processes),
            (
                RunLimit::DiskBytes,
                layer.is_some_and(|layer| layer.f_bfree == 0),
            ),
            (
                RunLimit::Files,
                layer.is_some_and(|layer| layer.f_ffree == 0),
            ),
        ];
        let reached = is_reached.into_iter().filter(|(_, is_reached)| *is_reached);
        reached.map(|(limit, _)| limit).collect()
    }

    /// CPU time that this thread has used for the run.
    pub(super) fn host_cpu_time(&self) -> Duration {
        thread_cpu_time().saturating_sub(self.begun_cpu)
    }
}
