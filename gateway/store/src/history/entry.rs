//! One entry of a history as it is read, and as it is shown.

use mooring_session::time::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::event::HistoryEvent;
use crate::clock::rfc3339;

/// One entry of a session's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// When it happened, by the clock of the gateway.
    pub at: Timestamp,
    /// The gateway that noted it.
    pub gateway: Box<str>,
    /// What happened.
    pub event: HistoryEvent,
    /// How often, where repetitions were counted in one entry; 1 or more.
    pub times: u64,
    /// Facts that only a newer version knows.
    pub unknown_facts: Map<String, Value>,
}

/// An entry for people and for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HistoryView {
    /// When it happened (RFC 3339).
    pub at: Box<str>,
    /// The gateway that noted it.
    pub gateway: Box<str>,
    /// Its kind, as in the store.
    pub kind: Box<str>,
    /// What happened, as a sentence.
    pub sentence: Box<str>,
    /// How often.
    pub times: u64,
    /// Its facts by name.
    pub facts: Map<String, Value>,
}

impl HistoryEntry {
    /// The entry as it is shown.
    #[must_use]
    pub fn view(&self) -> HistoryView {
        let mut facts = self.event.facts();
        facts.extend(self.unknown_facts.clone());
        HistoryView {
            at: rfc3339(self.at.unix_ms()).into(),
            gateway: self.gateway.clone(),
            kind: self.event.kind(),
            sentence: self.sentence().into(),
            times: self.times,
            facts,
        }
    }
}
