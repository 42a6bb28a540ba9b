//! The usage of each user of this process, by principal.
//!
//! Invariant: a user that uses something is remembered, and others are forgotten, so memory grows with the users whose
//! requests are in progress at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use mooring_session::names::Principal;
use mooring_usage::{UsageLimits, UserUsage};

/// So many users may be remembered before those are looked for who use nothing.
const USERS_REMEMBERED: usize = 1024;

/// The usage of all users of this process.
#[derive(Debug)]
pub struct UserUsages {
    limits: UsageLimits,
    known: Mutex<KnownUsers>,
}

#[derive(Debug)]
struct KnownUsers {
    by_principal: HashMap<Principal, Arc<UserUsage>>,
    /// From so many users on, those who use nothing are forgotten.
    forget_from: usize,
}

impl UserUsages {
    /// Of users within these limits.
    #[must_use]
    pub fn new(limits: UsageLimits) -> Self {
        Self {
            limits,
            known: Mutex::new(KnownUsers {
                by_principal: HashMap::new(),
                forget_from: USERS_REMEMBERED,
            }),
        }
    }

    /// The usage of this user.
    #[must_use]
    pub fn of(&self, user: &Principal) -> Arc<UserUsage> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(usage) = known.by_principal.get(user) {
            return Arc::clone(usage);
        }
        if known.by_principal.len() >= known.forget_from {
            (known.by_principal).retain(|_, usage| usage.is_in_use());
            known.forget_from = (2 * known.by_principal.len()).max(USERS_REMEMBERED);
        }
        let usage = UserUsage::new(&self.limits);
        (known.by_principal).insert(user.clone(), Arc::clone(&usage));
        usage
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use mooring_usage::{MemoryBudget, SharePart};

    use super::*;

    #[test]
    fn who_uses_something_is_remembered_and_others_are_forgotten() {
        let budget = || {
            MemoryBudget::new(1 << 20, 1 << 10, SharePart::Quarter, "test", || {
                Box::pin(std::future::pending())
            })
        };
        let usages = UserUsages::new(UsageLimits {
            calls_max: Some(1),
            messages: budget(),
            replies: budget(),
        });
        let user = |name: &str| Principal::parse(name.as_bytes()).unwrap();
        let _call = usages.of(&user("calls")).begin_call().unwrap();
        let mut held = Arc::clone(usages.of(&user("holds")).messages()).hold();
        held.try_grow(10).unwrap();
        for number in 0..=USERS_REMEMBERED {
            drop(usages.of(&user(&number.to_string())));
        }
        let count = usages.known.lock().unwrap().by_principal.len();
        assert!(count < USERS_REMEMBERED, "{count}");
        assert!(usages.of(&user("calls")).begin_call().is_err());
        assert_eq!(usages.of(&user("holds")).messages().used(), 10);
    }
}
