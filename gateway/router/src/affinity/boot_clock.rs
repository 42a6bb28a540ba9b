//! The clock by which terms of turns are measured: it counts the time for which the machine was suspended.

use mooring_delivery::BootTime;

/// The time since the machine was started.
#[cfg(not(test))]
pub(super) fn boot_now() -> BootTime {
    use rustix::time::{ClockId, clock_gettime};
    BootTime(std::time::Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default())
}

/// The time of the test's runtime, which it may pause and turn.
#[cfg(test)]
pub(super) fn boot_now() -> BootTime {
    use std::sync::LazyLock;
    use std::time::{Duration, Instant};
    static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
    let now = tokio::time::Instant::now().into_std();
    // Above zero, like that of a machine.
    BootTime(now.saturating_duration_since(*STARTED) + Duration::from_secs(1))
}
