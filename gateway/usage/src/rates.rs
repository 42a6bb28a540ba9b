//! Rates of requests: a token bucket, kept as the one moment until which it is not full again (the generic cell rate
//! algorithm).
//!
//! Invariant: a key whose bucket is full is not remembered, so memory grows with those that were used within the time in
//! which a bucket fills, up to [`KEYS_MAX`].

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most keys that are remembered at a time. The requests of further ones are not counted.
const KEYS_MAX: usize = 100_000;

/// The size of a bucket, and how fast it fills.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// How long it takes to gain one request.
    interval: Duration,
    /// How long an empty one takes to fill.
    filled_after: Duration,
}

impl TokenBucket {
    /// At most `requests_max` within `window`; at least one.
    #[must_use]
    pub fn new(requests_max: u32, window: Duration) -> Self {
        Self {
            interval: window / requests_max.max(1),
            filled_after: window,
        }
    }

    /// Takes `count` requests at `now` from a bucket that was to be full at `full_at`. Returns when it is full again, and
    /// how much too early the requests came: zero if it had them.
    #[must_use]
    pub fn take(&self, full_at: Duration, now: Duration, count: u32) -> (Duration, Duration) {
        let after = full_at.max(now) + self.interval * count;
        (after, after.saturating_sub(now + self.filled_after))
    }
}

/// The rates of all keys of this process, for example of its users.
#[derive(Debug)]
pub struct KeyedRates<K> {
    bucket: TokenBucket,
    begun: Instant,
    /// When each bucket is full, since `begun`.
    full_at: Mutex<HashMap<K, Duration>>,
}

impl<K: Eq + Hash> KeyedRates<K> {
    /// At most so many requests of one key within the window; at least one.
    #[must_use]
    pub fn new(requests_max: u32, window: Duration) -> Self {
        Self {
            bucket: TokenBucket::new(requests_max, window),
            begun: Instant::now(),
            full_at: Mutex::default(),
        }
    }

    /// Takes `count` requests from the bucket of the key.
    ///
    /// # Errors
    /// How long to wait until it has them; nothing is taken.
    pub fn take<Q: Eq + Hash + ToOwned<Owned = K> + ?Sized>(
        &self,
        key: &Q,
        count: u32,
        now: Instant,
    ) -> Result<(), Duration>
    where
        K: Borrow<Q>,
    {
        let now = now.saturating_duration_since(self.begun);
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let before = full_at.get(key).copied().unwrap_or(now);
        let (after, wait) = self.bucket.take(before, now, count);
        if !wait.is_zero() {
            return Err(wait);
        }
        match full_at.get_mut(key) {
            Some(known) => *known = after,
            None => {
                if full_at.len() >= KEYS_MAX {
                    full_at.retain(|_, full_at| *full_at > now);
                }
                if full_at.len() < KEYS_MAX {
                    full_at.insert(key.to_owned(), after);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn rates() -> KeyedRates<String> {
        KeyedRates::new(60, Duration::from_secs(60))
    }

    #[test]
    fn a_bucket_empties_and_fills() {
        let (rates, start) = (rates(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for _ in 0..60 {
            assert_eq!(rates.take("ada", 1, start), Ok(()));
        }
        let second = Err(Duration::from_secs(1));
        assert_eq!(rates.take("ada", 1, start), second);
        assert_eq!(rates.take("bob", 60, start), Ok(()), "each user has one");
        assert_eq!(rates.take("ada", 4, at(3)), second);
        assert_eq!(
            rates.take("ada", 3, at(3)),
            Ok(()),
            "a refusal takes nothing"
        );
        assert_eq!(rates.take("ada", 61, at(600)), second);
        assert_eq!(
            rates.take("ada", 60, at(600)),
            Ok(()),
            "it is not fuller than full"
        );
    }

    #[test]
    fn keys_are_forgotten_when_their_bucket_is_full() {
        let (rates, start) = (rates(), Instant::now());
        let count = || rates.full_at.lock().unwrap().len();
        for number in 0..=KEYS_MAX {
            rates.take(number.to_string().as_str(), 1, start).unwrap();
        }
        assert_eq!(count(), KEYS_MAX);
        rates
            .take("late", 1, start + Duration::from_secs(2))
            .unwrap();
        assert_eq!(count(), 1);
    }
}
