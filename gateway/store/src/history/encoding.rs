//! Entries as text: a JSON object of a few hundred bytes.
//!
//! Invariant: whatever text is there is read. What this version does not know is kept as it is.

use mooring_session::time::Timestamp;
use serde_json::{Map, Value};

use super::entry::HistoryEntry;
use super::event::HistoryEvent;

/// The fields of an entry beside those of its event.
const GATEWAY: &str = "gateway";
const AT: &str = "at";
const TIMES: &str = "times";
const KIND: &str = "kind";

/// The text of an event that happened at this moment.
pub(crate) fn encode(event: &HistoryEvent, gateway: &str, at: Timestamp, times: u64) -> String {
    let mut fields = event.fields();
    fields.insert(GATEWAY.to_owned(), gateway.into());
    fields.insert(AT.to_owned(), at.unix_ms().into());
    if times > 1 {
        fields.insert(TIMES.to_owned(), times.into());
    }
    Value::Object(fields).to_string()
}

/// The entry of a text. One that is no JSON object is an event of an unknown kind, of 1970.
pub(crate) fn decode(text: &str) -> HistoryEntry {
    let mut fields: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
    let mut number = |name| fields.remove(name).and_then(|value| value.as_u64());
    let (at, times) = (number(AT).unwrap_or(0), number(TIMES).unwrap_or(1));
    let gateway = match fields.remove(GATEWAY) {
        Some(Value::String(gateway)) => gateway.into(),
        _ => Box::default(),
    };
    let event = serde_json::from_value(Value::Object(fields.clone())).unwrap_or_else(|_| {
        let kind = fields.get(KIND).and_then(Value::as_str);
        HistoryEvent::Unknown {
            kind: kind.unwrap_or("unknown").into(),
        }
    });
    let known = event.fields();
    fields.retain(|name, _| name != KIND && !known.contains_key(name));
    HistoryEntry {
        at: Timestamp::from_unix_ms(at),
        gateway,
        event,
        times: times.max(1),
        unknown_facts: fields,
    }
}

impl HistoryEvent {
    /// Its kind, as it is stored.
    #[must_use]
    pub fn kind(&self) -> Box<str> {
        match self {
            Self::Unknown { kind } => kind.clone(),
            known => match known.fields().get(KIND) {
                Some(Value::String(kind)) => kind.as_str().into(),
                _ => Box::default(),
            },
        }
    }

    /// Its facts by name.
    #[must_use]
    pub fn facts(&self) -> Map<String, Value> {
        let mut facts = self.fields();
        facts.remove(KIND);
        facts
    }

    /// Its facts and its kind; nothing for an unknown one.
    fn fields(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::super::event::{EndCause, OwnerChange};
    use super::*;

    const AT: Timestamp = Timestamp::from_unix_ms(1_800_000_000_000);

    fn every_kind() -> Vec<HistoryEvent> {
        let server = || "tools".into();
        vec![
            HistoryEvent::Created {
                client: Some("claude-code 2.1".into()),
                protocol: Some("2025-11-25".into()),
                transport: Some("http".into()),
            },
            HistoryEvent::Bound {
                server: server(),
                instance: "http://127.0.0.1:9001/mcp".into(),
                epoch: 1,
            },
            HistoryEvent::Rebound {
                server: server(),
                from: "http://127.0.0.1:9001/mcp".into(),
                to: "http://127.0.0.1:9002/mcp".into(),
                epoch: 2,
                reason: "instance refuses connections".into(),
                state_lost: true,
            },
            HistoryEvent::Owner {
                server: server(),
                epoch: 2,
                change: OwnerChange::Connected,
                reason: None,
            },
            HistoryEvent::Waited {
                server: server(),
                wait_ms: 2_000,
                holder: Some("b:0123456789abcdef".into()),
                outcome: "got it".into(),
            },
            HistoryEvent::Asked {
                server: server(),
                method: "elicitation/create".into(),
            },
            HistoryEvent::Answered { server: server() },
            HistoryEvent::Ran {
                server: server(),
                run: Some("01JAB".into()),
                outcome: "ok".into(),
                took_ms: 4,
            },
            HistoryEvent::Refused {
                server: server(),
                limit: "listen.calls_per_user_at_once".into(),
            },
            HistoryEvent::OutcomeUnknown { server: server() },
            HistoryEvent::Ended {
                cause: EndCause::Client,
            },
            HistoryEvent::Cleaned {
                outcome: "cleaned".into(),
            },
        ]
    }

    #[test]
    fn an_event_of_every_kind_reads_back_and_is_small() {
        for event in every_kind() {
            let text = encode(&event, "a:0123456789abcdef", AT, 3);
            assert!(text.len() < 320, "{} bytes: {text}", text.len());
            let entry = decode(&text);
            assert_eq!(entry.event, event);
            assert_eq!(entry.at, AT);
            assert_eq!((&*entry.gateway, entry.times), ("a:0123456789abcdef", 3));
            assert!(entry.unknown_facts.is_empty(), "{entry:?}");
            assert!(!entry.view().sentence.is_empty());
        }
    }

    #[test]
    fn what_a_newer_gateway_wrote_is_shown() {
        let of = decode;
        let newer = of(r#"{"kind":"hibernated","gateway":"a:1","where":"disk","bytes":7}"#);
        assert_eq!(&*newer.event.kind(), "hibernated");
        let view = newer.view();
        assert_eq!(view.facts.get("where").unwrap(), "disk");
        assert_eq!(&*view.sentence, "hibernated: bytes 7, where disk");

        let more = of(r#"{"kind":"outcome_unknown","server":"tools","gateway":"a:1","why":"cut"}"#);
        assert!(matches!(more.event, HistoryEvent::OutcomeUnknown { .. }));
        assert!(more.view().sentence.ends_with(" (why cut)"), "{more:?}");

        let word = of(r#"{"kind":"ended","cause":"moon","gateway":"a:1"}"#);
        assert_eq!(&*word.view().sentence, "ended: cause moon");
        assert_eq!(&*of("not json").event.kind(), "unknown");
    }
}
