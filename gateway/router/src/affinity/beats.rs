//! How long the store surely counts this gateway as alive.
//!
//! The store takes the turns of a gateway that it counts as dead, whatever is left of their leases. Invariant: a beat
//! counts from before it was sent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mooring_delivery::{BootTime, Term};
use mooring_session::time::Millis;

use super::boot_clock::AtomicBootTime;

/// The beats that the store acknowledged. They come from one task, one after another.
#[derive(Debug, Default)]
pub(super) struct AcknowledgedBeats {
    /// When the last one was sent; none before the first one.
    sent_at: AtomicBootTime,
    /// How long each lasts. It is the same for all.
    ttl_ms: AtomicU64,
}

impl AcknowledgedBeats {
    /// The store acknowledged a beat that was sent after `sent_at` and lasts for `ttl`.
    pub(super) fn note(&self, sent_at: BootTime, ttl: Millis) {
        self.ttl_ms.store(ttl.get(), Ordering::Release);
        self.sent_at.store(sent_at);
    }

    /// What a term is bounded by if it is asked for now.
    pub(super) fn bound(&self) -> TermBound {
        let ttl = Duration::from_millis(self.ttl_ms.load(Ordering::Acquire));
        TermBound(self.sent_at.load().map(|sent_at| (sent_at, ttl)))
    }
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
    use crate::affinity::boot_clock::boot_now;

    #[tokio::test(start_paused = true)]
    async fn a_term_ends_with_the_last_beat_before_it_was_asked_for() {
        const BEAT_TTL: Millis = Millis::new(1_500);
        let beats = AcknowledgedBeats::default();
        beats.note(boot_now(), BEAT_TTL);
        tokio::time::advance(Duration::from_millis(700)).await;
        let bound = beats.bound();
        let term = bound.apply(Term::asked(boot_now(), Duration::from_millis(1_800)));
        // A later beat does not bring back what was lost in between.
        beats.note(boot_now(), BEAT_TTL);
        tokio::time::advance(Duration::from_millis(500)).await;
        assert!(term.covers(boot_now()));
        tokio::time::advance(Duration::from_millis(200)).await;
        assert!(!term.covers(boot_now()));
    }
}
