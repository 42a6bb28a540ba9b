//! One entry of the file, and the reasons to skip one.

use std::time::Duration;

use mooring_session::names::{LabelValue, UpstreamSession};
use mooring_session::time::Millis;
use serde_json::Value;

use super::date;
use super::{AGENT_SESSION_BYTES_MAX, ENTRY_BYTES_MAX, PARENT_BYTES_MAX};

/// The member with the agent's session.
const SESSION: &str = "claudeSessionId";
/// The member with the last use.
const UPDATED_AT: &str = "updatedAt";

/// A client's session, and the agent's session for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The id of the client's session: 1 to [`PARENT_BYTES_MAX`] bytes without control characters.
    pub parent: String,
    /// The agent's id for resuming: 1 to [`AGENT_SESSION_BYTES_MAX`] bytes of visible ASCII; the first is no hyphen.
    pub agent_session: String,
    /// When it was last used.
    pub updated_at_ms: u64,
}

/// An entry that is not imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedEntry {
    /// Its key as written. It is untrusted, and must be escaped before it is printed.
    pub key: String,
    /// The reason.
    pub reason: SkipReason,
}

/// Why an entry is skipped. No reason includes a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SkipReason {
    /// The key is empty.
    #[error("the key is empty")]
    KeyEmpty,
    /// The key is too long for an id.
    #[error("the key is longer than {PARENT_BYTES_MAX} bytes")]
    KeyTooLong,
    /// The key contains control characters.
    #[error("the key holds control characters")]
    KeyControl,
    /// The key is not Unicode text: it contains half a surrogate pair.
    #[error("the key is not Unicode text")]
    KeyNotText,
    /// The same key occurs again later, and that entry counts.
    #[error("the same key follows again, and the last one counts")]
    Repeated,
    /// The value is not an object.
    #[error("its value is {0}, not an object")]
    NotAnObject(&'static str),
    /// The value is too large.
    #[error("its value is larger than {ENTRY_BYTES_MAX} bytes")]
    TooLarge,
    /// The value is JSON that cannot be represented: half a surrogate pair, a number out of range, or too deep.
    #[error("its value cannot be read")]
    Unreadable,
    /// A member is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A member is not a string.
    #[error("{0} is {1}, not a string")]
    NotAString(&'static str, &'static str),
    /// The agent's session is blank.
    #[error("{SESSION} is blank")]
    SessionBlank,
    /// The agent's session is too long for an id.
    #[error("{SESSION} is longer than {AGENT_SESSION_BYTES_MAX} bytes")]
    SessionTooLong,
    /// The agent's session contains a character that no id has.
    #[error("{SESSION} holds something else than visible ASCII")]
    SessionAlphabet,
    /// The agent's session looks like an option.
    #[error("{SESSION} begins with a hyphen, so that the agent would read it as an option")]
    SessionOption,
    /// The date is invalid.
    #[error("{UPDATED_AT} is not a date such as 2026-01-14T23:15:00Z")]
    NotADate,
    /// It was last used longer ago than the sessions' TTL.
    #[error("it expired: it was last used more than {} before", format_hours(*.0))]
    Expired(Duration),
}

/// A duration for people.
fn format_hours(length: Duration) -> String {
    match length.as_secs() {
        hours if hours >= 3_600 && hours % 3_600 == 0 => format!("{} h", hours / 3_600),
        seconds => format!("{seconds} s"),
    }
}

/// The current time and the sessions' TTL.
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

/// Parses an entry's value: the agent's session, and its last use. A use in the future counts as now: clocks of two
/// machines differ, and no session may live longer because of that.
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
    // Times before 1970 count as 1970.
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

/// The type of a JSON text without leading space, from its first character.
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
