//! Entries as sentences for people.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::entry::HistoryEntry;
use super::event::{EndCause, HistoryEvent, OwnerChange};
use crate::blockers::length;

impl HistoryEntry {
    /// What happened, as a sentence without its time and its gateway.
    #[must_use]
    pub fn sentence(&self) -> String {
        let mut text = of_event(&self.event);
        let unknown = listed(&self.unknown_facts);
        if !unknown.is_empty() {
            let _ = match &self.event {
                HistoryEvent::Unknown { .. } => write!(text, ": {unknown}"),
                _ => write!(text, " ({unknown})"),
            };
        }
        if self.times > 1 {
            let _ = write!(text, " ({} times)", self.times);
        }
        text
    }
}

fn of_event(event: &HistoryEvent) -> String {
    match event {
        HistoryEvent::Created {
            client,
            protocol,
            transport,
        } => {
            let mut text = match client {
                Some(client) => format!("created by {client}"),
                None => "created".to_owned(),
            };
            for (before, part) in [(" over ", transport), (", protocol ", protocol)] {
                if let Some(part) = part {
                    let _ = write!(text, "{before}{part}");
                }
            }
            text
        }
        HistoryEvent::Bound {
            server,
            instance,
            epoch,
        } => format!("{server} bound to {instance}, epoch {epoch}"),
        HistoryEvent::Rebound {
            server,
            from,
            to,
            epoch,
            reason,
            state_lost,
        } => {
            let state = match state_lost {
                true => "the state it had there is lost",
                false => "no state was lost",
            };
            let moved = match from == to {
                true => format!("{server} has a new upstream session at {to}"),
                false => format!("{server} moved from {from} to {to}"),
            };
            format!("{moved}: {reason}; {state}; epoch {epoch}")
        }
        HistoryEvent::Owner {
            server,
            epoch,
            change,
            reason,
        } => {
            let change = match change {
                OwnerChange::Connected => "opened",
                OwnerChange::Closed => "closed",
                OwnerChange::Fenced => "closed after a time without the store",
            };
            let reason = reason.as_ref().map(|reason| format!(": {reason}"));
            let reason = reason.unwrap_or_default();
            format!("connection to {server} {change}{reason}, epoch {epoch}")
        }
        HistoryEvent::Waited {
            server,
            wait_ms,
            holder,
            outcome,
        } => {
            let holder = holder
                .as_ref()
                .map(|holder| format!(", which {holder} had"));
            let (wait, holder) = (length(*wait_ms), holder.unwrap_or_default());
            format!("a call to {server} waited {wait} for its turn{holder}, and {outcome}")
        }
        HistoryEvent::Asked { server, method } => format!("{server} asked the client: {method}"),
        HistoryEvent::Answered { server } => format!("the client answered {server}"),
        HistoryEvent::Ran {
            server,
            run,
            outcome,
            took_ms,
        } => {
            let run = run.as_ref().map(|run| format!("run {run} of "));
            let (run, took) = (run.unwrap_or_default(), length(*took_ms));
            format!("{run}{server} ended after {took}: {outcome}")
        }
        HistoryEvent::Refused { server, limit } => {
            format!("a request to {server} was refused: {limit}")
        }
        HistoryEvent::OutcomeUnknown { server } => {
            format!("a call to {server} was sent and has no result: it may have run")
        }
        HistoryEvent::Ended { cause } => format!("ended {}", of_cause(*cause)),
        HistoryEvent::Cleaned { outcome } => {
            format!("what it left was cleaned up: {outcome}")
        }
        HistoryEvent::Unknown { kind } => kind.clone().into(),
    }
}

const fn of_cause(cause: EndCause) -> &'static str {
    match cause {
        EndCause::Client => "by its client",
        EndCause::Operator => "by an operator",
        EndCause::Limit => "for a newer session, at the limit of sessions of its user",
        EndCause::StateLost => "because its state upstream was lost",
        EndCause::NotOpened => "because it could not be opened",
        EndCause::ServerRemoved => "because its server was removed from the settings",
    }
}

/// Facts as `name value`.
fn listed(facts: &Map<String, Value>) -> String {
    let shown = facts.iter().map(|(name, value)| match value {
        Value::String(text) => format!("{name} {text}"),
        other => format!("{name} {other}"),
    });
    shown.collect::<Vec<_>>().join(", ")
}
