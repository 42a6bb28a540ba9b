//! The history of a session as a table: when, what, and at which gateway.

use serde_json::Value;

use super::outcome::SessionsError;
use crate::client::table::printable;
use mooring_store::HistoryEntry;

/// The entries, the oldest first, with their times before `now_ms`. No gateway sees a session expire: that it has at
/// `expired_ms` is known from its record.
pub(super) fn text(entries: &[HistoryEntry], expired_ms: Option<u64>, now_ms: u64) -> String {
    let Some(first) = entries.first() else {
        return "history: none is kept\n".to_owned();
    };
    let mut text = String::from("history:\n");
    if &*first.event.kind() != "created" {
        text.push_str("  (earlier entries are not kept)\n");
    }
    for entry in entries {
        let ago = ago(now_ms.saturating_sub(entry.at.unix_ms()));
        let (sentence, gateway) = (printable(&entry.sentence()), printable(&entry.gateway));
        let sentence = sentence.replace(['\n', '\t'], " ");
        text.push_str(&format!("  {ago:>9} ago  {sentence}  [{gateway}]\n"));
    }
    if let Some(expired_ms) = expired_ms {
        let ago = ago(now_ms.saturating_sub(expired_ms));
        text.push_str(&format!(
            "  {ago:>9} ago  expired: it was not used for its time to live\n"
        ));
    }
    text
}

/// The same for programs.
pub(super) fn json(entries: &[HistoryEntry]) -> Result<Value, SessionsError> {
    let views: Vec<_> = entries.iter().map(HistoryEntry::view).collect();
    serde_json::to_value(views).map_err(|error| SessionsError::Flag(error.to_string()))
}

/// A time in its two largest units.
pub(super) fn ago(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0..60 => format!("{seconds}.{} s", ms % 1_000 / 100),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use mooring_session::time::Timestamp;
    use mooring_store::HistoryEvent;

    use super::*;

    #[test]
    fn an_expired_session_has_a_last_line_and_an_unknown_beginning_a_first_one() {
        let entries = [HistoryEntry {
            at: Timestamp::from_unix_ms(1_000),
            gateway: "a:1".into(),
            event: HistoryEvent::OutcomeUnknown {
                server: "tools".into(),
            },
            times: 2,
            unknown_facts: serde_json::Map::new(),
        }];
        let expected = "history:\n  (earlier entries are not kept)\n      9.0 s ago  a call to tools was sent and has \
                        no result: it may have run (2 times)  [a:1]\n      2.0 s ago  expired: it was not used for its \
                        time to live\n";
        assert_eq!(text(&entries, Some(8_000), 10_000), expected);
        assert_eq!(text(&[], None, 10_000), "history: none is kept\n");
    }

    #[test]
    fn times_have_two_units() {
        for (ms, expected) in [
            (0, "0.0 s"),
            (12_345, "12.3 s"),
            (61_000, "1 min 1 s"),
            (3_725_000, "1 h 2 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(ago(ms), expected);
        }
    }
}
