//! The requests of the server that wait for the client's answer.
//!
//! Invariants: each is answered to the server exactly once, by the client or in its place; no two have the same id; there
//! are never more than `max`; none waits longer than its deadline.

use std::collections::HashMap;

use tokio::time::Instant;

use super::key::Key;

/// Where the client was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuestionOrigin {
    /// Nowhere yet: the question waits for the stream of unrelated messages.
    Waiting,
    /// On that stream.
    General,
    /// On the stream of the call with this number.
    Call(u64),
}

#[derive(Clone, Copy, Debug)]
struct OpenQuestion {
    place: QuestionOrigin,
    deadline: Instant,
}

/// Why a question is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuestionRejection {
    /// Another with its id is open: an answer could belong to either.
    Duplicate,
    /// As many as may are open.
    TooMany,
}

/// All of them.
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

    /// Whether a question with this id can be asked.
    pub(super) fn check(&self, key: &Key) -> Result<(), QuestionRejection> {
        if self.open.contains_key(key) {
            Err(QuestionRejection::Duplicate)
        } else if self.open.len() >= self.max {
            Err(QuestionRejection::TooMany)
        } else {
            Ok(())
        }
    }

    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Notes where a question was put, and until when it may be answered. Later calls move it.
    pub(super) fn put(&mut self, key: Key, place: QuestionOrigin, deadline: Instant) {
        self.open.insert(key, OpenQuestion { place, deadline });
    }

    /// Takes out a question that is answered, or withdrawn.
    pub(super) fn take(&mut self, key: &Key) -> Option<QuestionOrigin> {
        self.open.remove(key).map(|asked| asked.place)
    }

    /// Takes out the questions that were not answered in time.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<(Key, QuestionOrigin)> {
        self.open
            .extract_if(|_, asked| asked.deadline <= now)
            .map(|(key, asked)| (key, asked.place))
            .collect()
    }

    /// When the next one expires.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.open.values().map(|asked| asked.deadline).min()
    }
}
