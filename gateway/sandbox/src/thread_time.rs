//! CPU time of the host's own thread, so that a run is charged for the host's work on its behalf.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::outcome::Usage;

/// The CPU time of the calling thread so far.
pub(crate) fn thread_cpu_time() -> Duration {
    // The clock of the calling thread does not go below zero.
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

impl Usage {
    /// Does `work` on the calling thread and adds its processor time to the run's.
    pub fn charge<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let before = thread_cpu_time();
        let result = work();
        self.cpu_time += thread_cpu_time().saturating_sub(before);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_the_host_is_charged_to_the_run() {
        let least = Duration::from_millis(20);
        let mut usage = Usage::default();
        usage.charge(|| {
            let before = thread_cpu_time();
            while thread_cpu_time().saturating_sub(before) < least {}
        });
        assert!(usage.cpu_time >= least, "{usage:?}");
    }
}
