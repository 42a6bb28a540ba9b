//! The current usage of one user.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fair_task::{FlowId, charge_to};
use crate::memory::{MemoryBudget, MemoryShare};

/// The shared resources, and how much of them one user may use.
#[derive(Debug)]
pub struct UsageLimits {
    /// Most calls of one user at once; none if there is no limit.
    pub calls_max: Option<usize>,
    /// The memory of messages of clients.
    pub messages: Arc<MemoryBudget>,
    /// The memory of replies, and of other messages to clients.
    pub replies: Arc<MemoryBudget>,
}

/// The usage of one user.
#[derive(Debug)]
pub struct UserUsage {
    calls_max: Option<usize>,
    calls: AtomicUsize,
    messages: Arc<MemoryShare>,
    replies: Arc<MemoryShare>,
    flow: FlowId,
}

/// Further messages of a user at the limit that are read at once: cancellations and answers, which end calls.
const ONE_WAY_RESERVE: usize = 64;

/// One call in progress, or one message that is read. It counts until it is dropped.
#[derive(Debug)]
pub struct CallPermit(Arc<UserUsage>);

/// The user has as many calls in progress as the limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} calls of this user are in progress")]
pub struct TooManyCalls(pub usize);

impl UserUsage {
    /// Of a user who uses nothing yet.
    #[must_use]
    pub fn new(limits: &UsageLimits) -> Arc<Self> {
        Arc::new(Self {
            calls_max: limits.calls_max,
            calls: AtomicUsize::new(0),
            messages: limits.messages.share(),
            replies: limits.replies.share(),
            flow: FlowId::of_next_user(),
        })
    }

    /// Has the task that runs now run for this user, until [`ChargeEnd`](crate::ChargeEnd) is dropped. Waits for its turn
    /// if the user's other tasks do.
    pub async fn charge_task(&self) {
        charge_to(self.flow).await;
    }

    /// Begins a call.
    ///
    /// # Errors
    /// [`TooManyCalls`].
    pub fn begin_call(self: &Arc<Self>) -> Result<CallPermit, TooManyCalls> {
        self.begin(0)
    }

    /// Begins to read a message that may be a call, which [`CallPermit::check_call`] then decides.
    ///
    /// # Errors
    /// [`TooManyCalls`]: the reserve for messages that are none is used up too.
    pub fn begin_message(self: &Arc<Self>) -> Result<CallPermit, TooManyCalls> {
        self.begin(ONE_WAY_RESERVE)
    }

    fn begin(self: &Arc<Self>, reserve: usize) -> Result<CallPermit, TooManyCalls> {
        let most = self.calls_max.unwrap_or(usize::MAX);
        let most_begun = most.saturating_add(reserve);
        let begun = |calls: usize| calls.checked_add(1).filter(|sum| *sum <= most_begun);
        self.calls
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, begun)
            .map(|_| CallPermit(Arc::clone(self)))
            .map_err(|_| TooManyCalls(most))
    }

    /// Whether there are other references to it, or to one of its shares.
    #[must_use]
    pub fn is_in_use(self: &Arc<Self>) -> bool {
        let shares = [&self.messages, &self.replies];
        Arc::strong_count(self) > 1 || shares.iter().any(|share| Arc::strong_count(share) > 1)
    }

    /// The user's share of the memory for messages.
    #[must_use]
    pub const fn messages(&self) -> &Arc<MemoryShare> {
        &self.messages
    }

    /// The user's share of the memory for replies.
    #[must_use]
    pub const fn replies(&self) -> &Arc<MemoryShare> {
        &self.replies
    }
}

impl CallPermit {
    /// Checks that the message that was read may be a call.
    ///
    /// # Errors
    /// [`TooManyCalls`]: it was read out of the reserve.
    pub fn check_call(&self) -> Result<(), TooManyCalls> {
        match self.0.calls_max {
            Some(most) if self.0.calls.load(Ordering::Relaxed) > most => Err(TooManyCalls(most)),
            _ => Ok(()),
        }
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use crate::SharePart;

    #[test]
    fn one_users_calls_are_limited_and_anothers_are_not_concerned() {
        let budget = || {
            let patience = || -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
                Box::pin(std::future::pending())
            };
            MemoryBudget::new(1, 1, SharePart::Quarter, "test", patience)
        };
        let limits = UsageLimits {
            calls_max: Some(2),
            messages: budget(),
            replies: budget(),
        };
        let (ada, bob) = (UserUsage::new(&limits), UserUsage::new(&limits));
        let first = ada.begin_call().unwrap();
        let _second = ada.begin_call().unwrap();
        assert_eq!(ada.begin_call().unwrap_err(), TooManyCalls(2));
        let _of_bob = bob.begin_call().unwrap();
        // A cancellation ends one of them, so it is read.
        let message = ada.begin_message().unwrap();
        assert_eq!(message.check_call(), Err(TooManyCalls(2)));
        drop((first, message));
        let third = ada.begin_message().unwrap();
        assert_eq!(third.check_call(), Ok(()));
    }
}
