//! One entry of the file: what is taken, and for which reasons one is not.

use std::time::Duration;

use mooring_session::names::{LabelValue, UpstreamSession};
use mooring_session::time::Millis;
use serde_json::Value;

use super::date;
use super::{AGENT_SESSION_BYTES_MAX, ENTRY_BYTES_MAX, PARENT_BYTES_MAX};

/// The member that holds the agent's session.
const SESSION: &str = "claudeSessionId";
/// The member that holds the last use.
const UPDATED_AT: &str = "updatedAt";

/// A session of a client, and the agent's session that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The id of the client's session: 1 to [`PARENT_BYTES_MAX`] bytes without control characters.
    pub parent: String,
    /// What the agent is resumed by: 1 to [`AGENT_SESSION_BYTES_MAX`] bytes of visible ASCII; the first is no hyphen.
    pub agent_session: String,
    /// When it was last used.
    pub updated_at_ms: u64,
}

/// An entry that is not imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedEntry {
    /// Its key, as it was written. It comes from elsewhere, and is to be made harmless before it is shown.
    pub key: String,
    /// Why.
    pub reason: SkipReason,
}

/// Why an entry is skipped. No reason repeats a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SkipReason {
    /// The key is empty.
    #[error("the key is empty")]
    KeyEmpty,
    /// The key is too long for an id.
    #[error("the key is longer than {PARENT_BYTES_MAX} bytes")]
    KeyTooLong,
    /// The key holds control characters.
    #[error("the key holds control characters")]
    KeyControl,
    /// The key is no Unicode text: it holds half of a surrogate pair.
    #[error("the key is not Unicode text")]
    KeyNotText,
    /// The same key follows again, and counts.
    #[error("the same key follows again, and the last one counts")]
    Repeated,
    /// The value is something else than an object.
    #[error("its value is {0}, not an object")]
    NotAnObject(&'static str),
    /// The value is too large to be looked at.
    #[error("its value is larger than {ENTRY_BYTES_MAX} bytes")]
    TooLarge,
    /// The value is JSON that cannot be held: half of a surrogate pair, a number out of range, or too deep.
    #[error("its value cannot be read")]
    Unreadable,
    /// A member is not there.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A member is something else than a string.
    #[error("{0} is {1}, not a string")]
    NotAString(&'static str, &'static str),
    /// The agent's session is nothing but spaces.
    #[error("{SESSION} is blank")]
    SessionBlank,
    /// The agent's session is too long for an id.
    #[error("{SESSION} is longer than {AGENT_SESSION_BYTES_MAX} bytes")]
    SessionTooLong,
    /// The agent's session holds what no id does.
    #[error("{SESSION} holds something else than visible ASCII")]
    SessionAlphabet,
    /// The agent's session reads as an option.
    #[error("{SESSION} begins with a hyphen, so that the agent would read it as an option")]
    SessionOption,
    /// The date is none.
    #[error("{UPDATED_AT} is not a date such as 2026-01-14T23:15:00Z")]
    NotADate,
    /// It was not used for as long as sessions live.
    #[error("it expired: it was last used more than {} before", format_hours(*.0))]
    Expired(Duration),
}

/// A length of time for people.
fn format_hours(length: Duration) -> String {
    match length.as_secs() {
        hours if hours >= 3_600 && hours % 3_600 == 0 => format!("{} h", hours / 3_600),
        seconds => format!("{seconds} s"),
    }
}

/// The current time and the sessions' time to live.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryClock {
    pub(super) now_ms: u64,
    pub(super) ttl: Duration,
}

/// Checks the key of an entry.
pub(super) fn parent(key: &str) -> Result<(), SkipReason> {
    match key.len() {
        0 => Err(SkipReason::KeyEmpty),
        length if length > PARENT_BYTES_MAX => Err(SkipReason::KeyTooLong),
        _ => LabelValue::parse(key.as_bytes())
            .map(drop)
            .map_err(|_| SkipReason::KeyControl),
    }
}

/// What an entry's value says: the agent's session, and its last use. A use in the future counts as one of now: clocks
/// of two machines differ, and no session may live for longer than the others by that.
pub(super) fn value(raw: &str, moment: EntryClock) -> Result<(String, u64), SkipReason> {
    if !raw.starts_with('{') {
        return Err(SkipReason::NotAnObject(kind(raw)));
    }
    if raw.len() > ENTRY_BYTES_MAX {
        return Err(SkipReason::TooLarge);
    }
    let value: Value = serde_json::from_str(raw).map_err(|_| SkipReason::Unreadable)?;
    let session = session(string(&value, SESSION)?)?;
    let written = date::unix_ms(string(&value, UPDATED_AT)?).ok_or(SkipReason::NotADate)?;
    // Before 1970 nothing was used.
    let updated_at_ms = u64::try_from(written).unwrap_or(0).min(moment.now_ms);
    if moment.now_ms - updated_at_ms > Millis::from(moment.ttl).get() {
        return Err(SkipReason::Expired(moment.ttl));
    }
    Ok((session, updated_at_ms))
}

fn session(text: &str) -> Result<String, SkipReason> {
    let text = text.trim();
    if text.is_empty() {
        return Err(SkipReason::SessionBlank);
    }
    if text.len() > AGENT_SESSION_BYTES_MAX {
        return Err(SkipReason::SessionTooLong);
    }
    if text.starts_with('-') {
        return Err(SkipReason::SessionOption);
    }
    UpstreamSession::parse(text.as_bytes()).map_err(|_| SkipReason::SessionAlphabet)?;
    Ok(text.to_owned())
}

fn string<'a>(value: &'a Value, member: &'static str) -> Result<&'a str, SkipReason> {
    match value.get(member) {
        None => Err(SkipReason::Missing(member)),
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(SkipReason::NotAString(member, kind(&other.to_string()))),
    }
}

/// What a JSON text without space before it is, as its first character says.
pub(super) fn kind(raw: &str) -> &'static str {
    match raw.chars().next() {
        Some('{') => "an object",
        Some('[') => "an array",
        Some('"') => "a string",
        Some('n') => "null",
        Some('t' | 'f') => "a boolean",
        _ => "a number",
    }
}
