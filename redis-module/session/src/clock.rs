//! Whether the clocks can be trusted.
//!
//! Stored times are those of the wall clock, and an operator, a time service or a resumed virtual machine may set it at
//! any moment. The monotonic clock is never set, so a step is the difference between how far the two moved.
//!
//! The monotonic clock also advances while the node is stalled: suspended, or busy with one long command. Beats and
//! renewals that arrived in time are then read late and must not count as late, so liveness is measured only over the
//! time in which the node was running.

use std::cell::Cell;

use crate::limits::NUMBER_AHEAD_MAX;
use crate::time::{Millis, Monotonic, Timestamp};

/// By how much the two clocks may differ before it counts as a step.
pub const CLOCK_STEP_MIN: Millis = Millis::new(1_000);
/// How long nothing is reaped after a step: by then every session in use has been used again, or the clock is correct
/// again.
pub const REAP_PAUSE: Millis = Millis::new(60_000);

/// A step of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// By how many milliseconds; negative if backwards.
    pub by_ms: i64,
}

/// Watches the two clocks of one node.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockWatch {
    /// The clocks when they last agreed, or after the last step.
    agreed: Option<(Timestamp, Monotonic)>,
    paused_until: Monotonic,
}

impl ClockWatch {
    /// Compares the clocks, and reports a step once. Several small steps are reported when they add up to one.
    pub fn observe(&mut self, wall: Timestamp, mono: Monotonic) -> Option<Step> {
        let Some((wall_then, mono_then)) = self.agreed else {
            self.agreed = Some((wall, mono));
            return None;
        };
        let expected =
            i128::from(wall_then.unix_ms()) + i128::from(mono.ms()) - i128::from(mono_then.ms());
        let by = i128::from(wall.unix_ms()) - expected;
        if by.unsigned_abs() <= u128::from(CLOCK_STEP_MIN.get()) {
            return None;
        }
        self.agreed = Some((wall, mono));
        self.paused_until = mono.plus(REAP_PAUSE);
        let limit = if by < 0 { i64::MIN } else { i64::MAX };
        Some(Step {
            by_ms: i64::try_from(by).unwrap_or(limit),
        })
    }

    /// Whether expired sessions may be named for cleanup.
    #[must_use]
    pub fn reaping_allowed(&self, mono: Monotonic) -> bool {
        mono >= self.paused_until
    }
}

/// A node that has not read its clock for longer than this was stalled, unless it reads it less often. A node reads it
/// about every 100 ms, and a beat lives for longer.
pub const STALL_MIN: Millis = Millis::new(500);

/// The clock of a node's liveness, leases and timeouts: the monotonic clock without the time in which the node was
/// stalled. It never runs ahead of that clock and never back, so a decision by it is late at worst.
#[derive(Debug, Default)]
pub struct NodeClock {
    read_at: Cell<Monotonic>,
    shown: Cell<Monotonic>,
    read_interval: Cell<Millis>,
}

impl NodeClock {
    /// Announces that the clock is read at least this often from now on, also if the node is idle. The default is every
    /// [`STALL_MIN`].
    pub fn expect_reads_every(&self, interval: Millis) {
        self.read_interval.set(interval);
    }

    /// The time of this clock at `real`.
    pub fn read(&self, real: Monotonic) -> Monotonic {
        let passed = real.ms().saturating_sub(self.read_at.get().ms());
        // A read may come late by half an interval.
        let interval = self.read_interval.get().get();
        let counted = passed.min(STALL_MIN.get().max(interval.saturating_add(interval / 2)));
        let counted = Millis::new(counted);
        self.read_at.set(self.read_at.get().max(real));
        self.shown.set(self.shown.get().plus(counted));
        self.shown.get()
    }
}

/// The highest number that others follow at this moment. Without this bound a single higher number, in an edited record
/// or in a request for a turn that was never granted, would push the numbers of all keys to the end of their range.
pub(crate) const fn highest_number_followed(now: Timestamp) -> u64 {
    now.plus(NUMBER_AHEAD_MAX).least_number()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_of_a_stall_is_not_counted() {
        let clock = NodeClock::default();
        let read = |ms| clock.read(Monotonic::from_ms(ms)).ms();
        assert_eq!([read(0), read(100), read(600)], [0, 100, 600]);
        assert_eq!(read(9_600), 1_100, "stalled for nine seconds");
        assert_eq!([read(9_600), read(9_700)], [1_100, 1_200]);
        assert_eq!(read(9_000), 1_200, "never back");
        assert_eq!(read(9_800), 1_300);
        assert_eq!(read(u64::MAX), 1_800);
    }

    #[test]
    fn a_node_that_seldom_reads_its_clock_counts_all_of_its_time() {
        let clock = NodeClock::default();
        let read = |ms| clock.read(Monotonic::from_ms(ms)).ms();
        clock.expect_reads_every(Millis::new(1_000));
        assert_eq!([read(0), read(1_000), read(2_400)], [0, 1_000, 2_400]);
        assert_eq!(read(12_400), 3_900, "stalled for ten seconds");
        clock.expect_reads_every(Millis::new(100));
        assert_eq!(read(13_400), 4_400);
    }

    const START: u64 = 1_700_000_000_000;

    fn observe(watch: &mut ClockWatch, wall: u64, mono: u64) -> Option<i64> {
        let wall = Timestamp::from_unix_ms(wall);
        let step = watch.observe(wall, Monotonic::from_ms(mono))?;
        Some(step.by_ms)
    }

    #[test]
    fn clocks_that_run_together_are_trusted() {
        let mut watch = ClockWatch::default();
        for at in [0, 100, 10_000, 86_400_000] {
            assert_eq!(observe(&mut watch, START + at, at), None);
            assert!(watch.reaping_allowed(Monotonic::from_ms(at)));
        }
        // Just under a step, either way.
        assert_eq!(observe(&mut watch, START + 86_401_000, 86_400_000), None);
        assert_eq!(observe(&mut watch, START + 86_399_000, 86_400_000), None);
    }

    #[test]
    fn a_step_is_reported_once_and_stops_the_reaping_for_a_minute() {
        for by in [3_600_000, 1_001, -1_001, -3_600_000] {
            let mut watch = ClockWatch::default();
            observe(&mut watch, START, 0);
            let wall = START.saturating_add_signed(by);
            assert_eq!(observe(&mut watch, wall + 100, 100), Some(by));
            assert_eq!(observe(&mut watch, wall + 200, 200), None);
            assert!(!watch.reaping_allowed(Monotonic::from_ms(60_099)));
            assert!(watch.reaping_allowed(Monotonic::from_ms(60_100)));
        }
    }

    #[test]
    fn small_steps_add_up() {
        let mut watch = ClockWatch::default();
        observe(&mut watch, START, 0);
        assert_eq!(observe(&mut watch, START + 600, 0), None);
        assert_eq!(observe(&mut watch, START + 1_200, 0), Some(1_200));
    }

    #[test]
    fn the_wildest_clocks_do_not_overflow() {
        let mut watch = ClockWatch::default();
        observe(&mut watch, 0, u64::MAX);
        assert_eq!(observe(&mut watch, u64::MAX, 0), Some(i64::MAX));
        assert_eq!(observe(&mut watch, 0, u64::MAX), Some(i64::MIN));
    }
}
