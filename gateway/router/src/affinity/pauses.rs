//! Pauses for instances that do not answer: a dead instance is not asked again for each of its sessions, and does not
//! delay the cleaning of others.
//!
//! Invariant: every pause has an upper bound.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mooring_session::names::{InstanceName, ServerName};

/// The pause after the first missing answer.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// The longest pause: half of the longest lease, for which its tombstones are put off.
const PAUSE_MAX: Duration = Duration::from_secs(300);

type InstanceKey = (ServerName, InstanceName);

/// The paused instances. At most one entry per configured instance.
#[derive(Debug, Default)]
pub(super) struct Pauses(Mutex<HashMap<InstanceKey, Pause>>);

#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Instant,
    length: Duration,
}

impl Pauses {
    fn lock(&self) -> MutexGuard<'_, HashMap<InstanceKey, Pause>> {
        // The map is consistent after every statement, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an instance is paused at `now`.
    pub(super) fn is_paused(&self, instance_key: &InstanceKey, now: Instant) -> bool {
        self.lock()
            .get(instance_key)
            .is_some_and(|pause| now < pause.until)
    }

    /// Records that an instance did not answer or is paused. Returns how long to put off its tombstones. Concurrent
    /// missing answers count once.
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

    /// Ends the pause of an instance.
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
    fn a_pause_doubles_until_an_answer() {
        let pauses = Pauses::default();
        let (dead, alive) = (instance_key(b"a"), instance_key(b"b"));
        let mut now = Instant::now();
        let mut lengths = Vec::new();
        for _ in 0..11 {
            assert!(!pauses.is_paused(&dead, now));
            let length = pauses.unanswered(&dead, now);
            // Requests that waited for the same answer.
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
