//! How fast a lost connection is opened again.

use std::time::Duration;

/// The pause after a failed attempt to connect; it doubles with each further one.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// The longest pause between attempts to connect, and so about the longest delay until a return is noticed.
const BACKOFF_MAX: Duration = Duration::from_millis(250);
/// A connection that is lost within this time is lost quickly.
const QUICKLY: Duration = Duration::from_secs(1);
/// Quick losses in a row after which a lost connection is opened again without a pause. Something may close connections one
/// by one, but not as fast as they are opened.
const QUICK_LOSSES_MAX: u32 = 20;

/// How long to wait before the next attempt to connect.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    quick_losses: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            next: BACKOFF_MIN,
            quick_losses: 0,
        }
    }
}

impl Backoff {
    /// After an attempt that failed.
    pub(super) fn after_failure(&mut self) -> Duration {
        let pause = self.next;
        self.next = BACKOFF_MAX.min(pause * 2);
        pause
    }

    /// After the loss of a connection that `lasted` for so long: nothing, unless all of the last ones were lost quickly, as
    /// where no reply of a server can be believed.
    pub(super) fn after_loss(&mut self, lasted: Duration) -> Duration {
        self.quick_losses = match lasted < QUICKLY {
            true => self.quick_losses.saturating_add(1),
            false => 0,
        };
        if self.quick_losses > QUICK_LOSSES_MAX {
            return self.after_failure();
        }
        self.next = BACKOFF_MIN;
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_are_lost_quickly_again_and_again_are_opened_with_pauses() {
        let (quick, long) = (QUICKLY / 10, QUICKLY);
        let mut backoff = Backoff::default();
        for _ in 0..QUICK_LOSSES_MAX {
            assert_eq!(backoff.after_loss(quick), Duration::ZERO);
        }
        assert_eq!(backoff.after_loss(quick), BACKOFF_MIN);
        assert_eq!(backoff.after_loss(quick), BACKOFF_MIN * 2);
        for _ in 0..10 {
            backoff.after_loss(quick);
        }
        assert_eq!(backoff.after_loss(quick), BACKOFF_MAX);
        // One that lasted ends that.
        assert_eq!(backoff.after_loss(long), Duration::ZERO);
        assert_eq!(backoff.after_loss(quick), Duration::ZERO);
        assert_eq!(backoff.after_failure(), BACKOFF_MIN);
    }
}
