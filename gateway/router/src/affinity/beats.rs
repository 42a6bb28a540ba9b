//! How long the store surely counts this gateway as alive.
//!
//! The store takes the turns of a gateway that it counts as dead, whatever is left of their leases. Invariant: a beat
//! counts from before it was sent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mooring_delivery::{BootTime, Term};

use super::boot_clock::boot_now;

/// The beats that the store acknowledged. They come from one task.
#[derive(Debug, Default)]
pub(super) struct AcknowledgedBeats {
    /// When the last one was sent, in nanoseconds of [`BootTime`]; 0 before the first one.
    sent_at: AtomicU64,
    /// How long each lasts, in nanoseconds. It is the same for all.
    ttl: AtomicU64,
}

/// A time before a beat is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct BeatSent(BootTime);

impl BeatSent {
    pub(super) fn now() -> Self {
        Self(boot_now())
    }
}

impl AcknowledgedBeats {
    /// The store acknowledged a beat that lasts for `ttl`.
    pub(super) fn note(&self, sent: BeatSent, ttl: Duration) {
        self.ttl.store(nanos(ttl), Ordering::Release);
        self.sent_at.fetch_max(nanos(sent.0.0), Ordering::AcqRel);
    }

    /// What a term is bounded by if it is asked for now.
    pub(super) fn bound(&self) -> TermBound {
        let sent_at = self.sent_at.load(Ordering::Acquire);
        let ttl = Duration::from_nanos(self.ttl.load(Ordering::Acquire));
        TermBound((sent_at != 0).then(|| (BootTime(Duration::from_nanos(sent_at)), ttl)))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The last beat that the store had acknowledged before it was asked, and how long it lasts.
#[derive(Clone, Copy, Debug)]
pub(super) struct TermBound(Option<(BootTime, Duration)>);

impl TermBound {
    /// The term, which ends with the last beat at the latest.
    pub(super) fn apply(self, term: Term) -> Term {
        match self.0 {
            Some((beat_at, beat_ttl)) => term.while_alive(beat_at, beat_ttl),
            // Without a beat, the store grants nothing.
            None => term,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_term_ends_with_the_last_beat_before_it_was_asked_for() {
        const BEAT_TTL: Duration = Duration::from_millis(1_500);
        let beats = AcknowledgedBeats::default();
        beats.note(BeatSent::now(), BEAT_TTL);
        tokio::time::advance(Duration::from_millis(700)).await;
        let bound = beats.bound();
        let term = bound.apply(Term::asked(boot_now(), Duration::from_millis(1_800)));
        // A later beat does not bring back what was lost in between.
        beats.note(BeatSent::now(), BEAT_TTL);
        tokio::time::advance(Duration::from_millis(500)).await;
        assert!(term.covers(boot_now()));
        tokio::time::advance(Duration::from_millis(200)).await;
        assert!(!term.covers(boot_now()));
    }
}
