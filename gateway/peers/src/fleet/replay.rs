//! What was asked lately, so that nothing is done twice because somebody recorded it.
//!
//! Invariant: a nonce is remembered for as long as an envelope with its time would be accepted. What is forgotten is
//! below a time that never goes back, and what is below that time is refused, also where the clock steps.

use std::collections::{BTreeMap, HashSet};

/// How far the time of an envelope may be from the clock of whom it reaches, to either side, in milliseconds.
pub const WINDOW_MS: u64 = 30_000;
/// Most nonces that are remembered. Where there are more, what is new is refused and what is known stays known: with
/// 35 s of them at the most, that is over 11,000 forwards a second for half a minute, to one worker.
pub const NONCES_MAX: usize = 400_000;
/// Nonces are forgotten together, by the time of their envelopes, in steps of this many milliseconds.
const STEP_MS: u64 = 5_000;

/// Why an envelope is not accepted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfresh {
    TooOld,
    TooNew,
    Seen,
    Full,
}

/// The nonces of the envelopes that were accepted lately.
#[derive(Debug, Default)]
pub(super) struct SeenNonces {
    /// By the step that the envelope's time falls into.
    by_step: BTreeMap<u64, HashSet<u128>>,
    count: usize,
    /// What is before this is forgotten.
    forgotten_before_ms: u64,
}

impl SeenNonces {
    /// Accepts an envelope once, if its time is right.
    pub(super) fn accept(
        &mut self,
        sent_at_ms: u64,
        nonce: u128,
        now_ms: u64,
    ) -> Result<(), Unfresh> {
        if sent_at_ms > now_ms.saturating_add(WINDOW_MS) {
            return Err(Unfresh::TooNew);
        }
        self.forget(now_ms);
        if sent_at_ms < now_ms.saturating_sub(WINDOW_MS) || sent_at_ms < self.forgotten_before_ms {
            return Err(Unfresh::TooOld);
        }
        let step = self.by_step.entry(sent_at_ms / STEP_MS).or_default();
        if step.contains(&nonce) {
            return Err(Unfresh::Seen);
        }
        if self.count >= NONCES_MAX {
            return Err(Unfresh::Full);
        }
        step.insert(nonce);
        self.count += 1;
        Ok(())
    }

    fn forget(&mut self, now_ms: u64) {
        let oldest_ms = now_ms.saturating_sub(WINDOW_MS);
        while let Some(step) = self.by_step.first_entry() {
            let end_ms = step.key().saturating_add(1).saturating_mul(STEP_MS);
            if end_ms > oldest_ms {
                return;
            }
            self.count -= step.remove().len();
            self.forgotten_before_ms = self.forgotten_before_ms.max(end_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000;

    #[test]
    fn what_is_out_of_the_window_is_refused() {
        for (sent_at_ms, expected) in [
            (NOW, Ok(())),
            (NOW - WINDOW_MS, Ok(())),
            (NOW + WINDOW_MS, Ok(())),
            (NOW - WINDOW_MS - 1, Err(Unfresh::TooOld)),
            (NOW + WINDOW_MS + 1, Err(Unfresh::TooNew)),
            (0, Err(Unfresh::TooOld)),
            (u64::MAX, Err(Unfresh::TooNew)),
        ] {
            let mut seen = SeenNonces::default();
            assert_eq!(seen.accept(sent_at_ms, 7, NOW), expected, "{sent_at_ms}");
        }
    }

    #[test]
    fn nothing_is_accepted_twice_however_the_clock_goes() {
        for sent_at_ms in [NOW - WINDOW_MS, NOW - 1, NOW, NOW + WINDOW_MS] {
            for steps in [
                &[0_i64, 1, 29_999, 30_000, 30_001, 60_000, 60_001][..],
                // A clock that is set back, and one that is set forward for a moment.
                &[60_001, 0, -30_000, 30_000],
                &[86_400_000, 0, 30_000],
            ] {
                let mut seen = SeenNonces::default();
                assert_eq!(seen.accept(sent_at_ms, 7, NOW), Ok(()));
                for step in steps {
                    let now_ms = NOW.saturating_add_signed(*step);
                    assert!(seen.accept(sent_at_ms, 7, now_ms).is_err(), "{step}");
                    // Others come by meanwhile, and make it forget.
                    let _ = seen.accept(now_ms, u128::from(now_ms), now_ms);
                }
            }
        }
    }

    #[test]
    fn what_is_full_refuses_and_forgets_nothing_it_needs() {
        let mut seen = SeenNonces::default();
        for nonce in 0..NONCES_MAX as u128 {
            assert_eq!(seen.accept(NOW, nonce, NOW), Ok(()));
        }
        assert_eq!(seen.accept(NOW, u128::MAX, NOW), Err(Unfresh::Full));
        for nonce in [0, NONCES_MAX as u128 - 1] {
            assert_eq!(seen.accept(NOW, nonce, NOW), Err(Unfresh::Seen));
        }
        let later_ms = NOW + WINDOW_MS + STEP_MS;
        assert_eq!(seen.accept(later_ms, u128::MAX, later_ms), Ok(()));
        assert_eq!(seen.count, 1, "the others are gone");
    }
}
