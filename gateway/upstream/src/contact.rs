//! The last contact with each instance, for operators.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{ContactOutcome, FailureCause};

/// Minimum interval between recorded successes, in milliseconds: writing at each request would make all of them share a
/// cache line.
const SUCCESS_EVERY_MS: u64 = 1_000;

/// Records the outcome of the last contact.
#[derive(Debug, Default)]
pub struct ContactLog {
    /// When the last success was, in Unix milliseconds; 0 for never.
    succeeded_at_ms: AtomicU64,
    /// Whether `failed` is set.
    is_failing: AtomicBool,
    /// The failure since the last success.
    failed: Mutex<Option<Contact>>,
}

/// One contact with an instance.
#[derive(Clone, Debug)]
pub struct Contact {
    /// When, in Unix milliseconds.
    pub at_ms: u64,
    /// Why it failed; `None` if it succeeded.
    pub failure: Option<FailureCause>,
}

impl Contact {
    /// The label of metrics.
    #[must_use]
    pub fn outcome(&self) -> ContactOutcome {
        let failure = self.failure.as_ref();
        failure.map_or(ContactOutcome::Ok, |cause| cause.outcome)
    }
}

impl ContactLog {
    /// Records a success.
    pub fn succeed(&self) {
        let now = now_ms();
        let last = self.succeeded_at_ms.load(Ordering::Relaxed);
        let is_failing = self.is_failing.load(Ordering::Relaxed);
        if !is_failing && now.saturating_sub(last) < SUCCESS_EVERY_MS {
            return;
        }
        self.succeeded_at_ms.store(now, Ordering::Relaxed);
        if is_failing {
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            *failed = None;
            self.is_failing.store(false, Ordering::Relaxed);
        }
    }

    /// Records a failure.
    pub fn fail(&self, cause: FailureCause) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        *failed = Some(Contact {
            at_ms: now_ms(),
            failure: Some(cause),
        });
        self.is_failing.store(true, Ordering::Relaxed);
    }

    /// The last contact; `None` before the first.
    #[must_use]
    pub fn last(&self) -> Option<Contact> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed
            .clone()
            .or_else(|| match self.succeeded_at_ms.load(Ordering::Relaxed) {
                0 => None,
                at_ms => Some(Contact {
                    at_ms,
                    failure: None,
                }),
            })
    }
}

fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_success_ends_a_failure_and_a_failure_a_success() {
        let log = ContactLog::default();
        assert!(log.last().is_none());
        log.fail(FailureCause::new(ContactOutcome::Tls, "no"));
        assert_eq!(log.last().unwrap().outcome(), ContactOutcome::Tls);
        log.succeed();
        assert_eq!(log.last().unwrap().outcome(), ContactOutcome::Ok);
        log.fail(FailureCause::new(ContactOutcome::Refused, "no"));
        assert_eq!(log.last().unwrap().outcome(), ContactOutcome::Refused);
    }
}
