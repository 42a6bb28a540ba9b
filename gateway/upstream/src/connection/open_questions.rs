//! Server-to-client requests that wait for the client's answer.
//!
//! Invariants: the server gets exactly one answer to each, from the client or from the gateway; ids are unique; there
//! are never more than `max`; none waits beyond its deadline.

use std::collections::HashMap;

use tokio::time::Instant;

use super::key::{Key, KeyRejection};

/// The stream on which the client was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuestionOrigin {
    /// None yet: the request waits for a reader of the general stream.
    Waiting,
    /// The general stream.
    General,
    /// The stream of the call with this number.
    Call(u64),
}

#[derive(Clone, Copy, Debug)]
struct OpenQuestion {
    origin: QuestionOrigin,
    deadline: Instant,
}

/// All open requests.
#[derive(Debug)]
pub(super) struct OpenQuestions {
    open: HashMap<Key, OpenQuestion>,
    max: usize,
}

impl OpenQuestions {
    pub(super) fn new(max: usize) -> Self {
        Self {
            open: HashMap::new(),
            max,
        }
    }

    /// Whether a request with this id is accepted.
    pub(super) fn check(&self, key: &Key) -> Result<(), KeyRejection> {
        key.check_among(&self.open, self.max)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Records the stream and the deadline of a request; replaces an earlier record.
    pub(super) fn put(&mut self, key: Key, origin: QuestionOrigin, deadline: Instant) {
        self.open.insert(key, OpenQuestion { origin, deadline });
    }

    /// Removes a request that is answered or withdrawn.
    pub(super) fn take(&mut self, key: &Key) -> Option<QuestionOrigin> {
        self.open.remove(key).map(|question| question.origin)
    }

    /// Removes and returns the expired requests.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<(Key, QuestionOrigin)> {
        self.open
            .extract_if(|_, question| question.deadline <= now)
            .map(|(key, question)| (key, question.origin))
            .collect()
    }

    /// The next time at which one expires.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.open.values().map(|question| question.deadline).min()
    }
}
