//! The rate of requests of each user: a token bucket, kept as the one moment until which the bucket is not full again
//! (the generic cell rate algorithm).
//!
//! Invariant: a user whose bucket is full is not remembered, so memory grows with those who send requests within one
//! minute, up to [`USERS_MAX`].

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mooring_session::names::Principal;

/// Most users that are remembered at a time. The requests of further ones are not counted.
const USERS_MAX: usize = 100_000;
/// How long an empty bucket takes to fill.
const FILLED_AFTER: Duration = Duration::from_secs(60);

/// The rates of all users of this process.
#[derive(Debug)]
pub struct RequestRates {
    /// How long a bucket takes to gain one request.
    interval: Duration,
    full_at: Mutex<HashMap<Principal, Instant>>,
}

impl RequestRates {
    /// At most so many requests of one user within a minute.
    #[must_use]
    pub fn new(per_minute: NonZeroU32) -> Self {
        Self {
            interval: FILLED_AFTER / per_minute.get(),
            full_at: Mutex::default(),
        }
    }

    /// Takes `count` requests from the user's bucket.
    ///
    /// # Errors
    /// How long to wait until it has them; nothing is taken.
    pub(super) fn take(&self, user: &Principal, count: u32, now: Instant) -> Result<(), Duration> {
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let before = full_at.get(user).copied().unwrap_or(now).max(now);
        let after = before + self.interval * count;
        let left = after.saturating_duration_since(now);
        if let Some(wait) = left
            .checked_sub(FILLED_AFTER)
            .filter(|wait| !wait.is_zero())
        {
            return Err(wait);
        }
        match full_at.get_mut(user) {
            Some(known) => *known = after,
            None => {
                if full_at.len() >= USERS_MAX {
                    full_at.retain(|_, full_at| *full_at > now);
                }
                if full_at.len() < USERS_MAX {
                    full_at.insert(user.clone(), after);
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

    fn user(name: &str) -> Principal {
        Principal::parse(name.as_bytes()).unwrap()
    }

    #[test]
    fn a_bucket_empties_and_fills() {
        let rates = RequestRates::new(NonZeroU32::new(60).unwrap());
        let (ada, start) = (user("ada"), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for _ in 0..60 {
            assert_eq!(rates.take(&ada, 1, start), Ok(()));
        }
        assert_eq!(rates.take(&ada, 1, start), Err(Duration::from_secs(1)));
        assert_eq!(
            rates.take(&user("bob"), 60, start),
            Ok(()),
            "each user has one"
        );
        assert_eq!(rates.take(&ada, 4, at(3)), Err(Duration::from_secs(1)));
        assert_eq!(
            rates.take(&ada, 3, at(3)),
            Ok(()),
            "a refusal takes nothing"
        );
        assert_eq!(rates.take(&ada, 61, at(600)), Err(Duration::from_secs(1)));
        assert_eq!(
            rates.take(&ada, 60, at(600)),
            Ok(()),
            "it is not fuller than full"
        );
    }

    #[test]
    fn users_are_forgotten_when_their_bucket_is_full() {
        let rates = RequestRates::new(NonZeroU32::new(60).unwrap());
        let start = Instant::now();
        let count = || rates.full_at.lock().unwrap().len();
        for number in 0..=USERS_MAX {
            rates.take(&user(&number.to_string()), 1, start).unwrap();
        }
        assert_eq!(count(), USERS_MAX);
        rates
            .take(&user("late"), 1, start + Duration::from_secs(2))
            .unwrap();
        assert_eq!(count(), 1);
    }
}
