//! Instances that do not answer, and how long each is left alone: a dead instance must neither be asked again for each
//! of the sessions it held nor hold up the cleaning of others.
//!
//! Invariant: an instance that is left alone is asked again after a time that has an upper bound.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mooring_session::names::{InstanceName, ServerName};

/// How long an instance is left alone after the first time that it does not answer.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// ... and at most, after many times: half of the longest lease, under which its tombstones are put off.
const PAUSE_MAX: Duration = Duration::from_secs(300);

type InstanceKey = (ServerName, InstanceName);

/// The instances that are left alone. As many entries as there are configured instances, at most.
#[derive(Debug, Default)]
pub(super) struct Pauses(Mutex<HashMap<InstanceKey, Pause>>);

#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Instant,
    length: Duration,
}

impl Pauses {
    fn lock(&self) -> MutexGuard<'_, HashMap<InstanceKey, Pause>> {
        // The map is whole after every statement, so a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an instance is left alone at `now`.
    pub(super) fn is_paused(&self, instance_key: &InstanceKey, now: Instant) -> bool {
        self.lock()
            .get(instance_key)
            .is_some_and(|pause| now < pause.until)
    }

    /// An instance did not answer, or is left alone. Says how long whatever it holds is to be put off. Answers that
    /// many wait for at the same time count once.
    pub(super) fn unanswered(&self, instance_key: &InstanceKey, now: Instant) -> Duration {
        let mut pauses = self.lock();
        let Some(pause) = pauses.get_mut(instance_key) else {
            let length = PAUSE_FIRST;
            let until = now + length;
            pauses.insert(instance_key.clone(), Pause { until, length });
            return length;
        };
        if now >= pause.until {
            pause.length = pause.length.saturating_mul(2).min(PAUSE_MAX);
            pause.until = now + pause.length;
        }
        pause.length
    }

    /// An instance answered.
    pub(super) fn answered(&self, instance_key: &InstanceKey) {
        self.lock().remove(instance_key);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn instance_key(instance: &[u8]) -> InstanceKey {
        let server = ServerName::parse(b"tools").unwrap();
        (server, InstanceName::parse(instance).unwrap())
    }

    #[test]
    fn a_pause_doubles_each_time_it_was_in_vain_and_ends_with_an_answer() {
        let pauses = Pauses::default();
        let (dead, alive) = (instance_key(b"a"), instance_key(b"b"));
        let mut now = Instant::now();
        let mut lengths = Vec::new();
        for _ in 0..11 {
            assert!(!pauses.is_paused(&dead, now));
            let length = pauses.unanswered(&dead, now);
            // Those that waited for the same answer.
            assert_eq!(pauses.unanswered(&dead, now), length);
            assert!(pauses.is_paused(&dead, now));
            assert!(!pauses.is_paused(&alive, now));
            lengths.push(length.as_secs());
            now += length;
        }
        assert_eq!(lengths, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        pauses.answered(&dead);
        assert_eq!(pauses.unanswered(&dead, now), PAUSE_FIRST);
    }
}
