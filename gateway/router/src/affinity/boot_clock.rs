//! The clock by which terms of turns are measured: it counts the time for which the machine was suspended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mooring_delivery::BootTime;

/// A time that threads share, or none. In nanoseconds, of which none is 0: the machine has then just been started.
#[derive(Debug, Default)]
pub(super) struct AtomicBootTime(AtomicU64);

impl AtomicBootTime {
    pub(super) fn load(&self) -> Option<BootTime> {
        to_time(self.0.load(Ordering::Acquire))
    }

    pub(super) fn store(&self, time: BootTime) {
        self.0.store(to_nanos(time), Ordering::Release);
    }

    /// Keeps the earlier one.
    pub(super) fn bring_forward(&self, to: BootTime) {
        self.0.fetch_min(to_nanos(to), Ordering::AcqRel);
    }

    /// Leaves none.
    pub(super) fn take(&self) -> Option<BootTime> {
        to_time(self.0.swap(0, Ordering::AcqRel))
    }
}

fn to_time(nanos: u64) -> Option<BootTime> {
    (nanos != 0).then_some(BootTime(Duration::from_nanos(nanos)))
}

fn to_nanos(BootTime(time): BootTime) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The time since the machine was started.
#[cfg(not(test))]
pub(super) fn boot_now() -> BootTime {
    use rustix::time::{ClockId, clock_gettime};
    BootTime(Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default())
}

/// The time of the test's runtime, which it may pause and turn.
#[cfg(test)]
pub(super) fn boot_now() -> BootTime {
    use std::sync::LazyLock;
    use std::time::Instant;
    static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
    let now = tokio::time::Instant::now().into_std();
    // Above zero, like that of a machine.
    BootTime(now.saturating_duration_since(*STARTED) + Duration::from_secs(1))
}
