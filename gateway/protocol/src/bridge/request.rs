//! The request as its server of an earlier revision gets it, and the `initialize` that it stands for.

use std::borrow::Cow;

use super::RESERVED_PREFIX;
use super::object::without_members;
use crate::envelope::Message;
use crate::ids::decode;
use crate::keys::Members;
use crate::session_note::SESSION_ARGUMENT;
use crate::splice::{quoted, replace_part, splice};
use crate::version::Revision;

/// What a request says of itself in `_meta` (2026-07-28, basic, "Request Metadata"), after [`RESERVED_PREFIX`].
const REQUEST_KEYS: [&str; 4] = [
    "protocolVersion",
    "clientInfo",
    "clientCapabilities",
    "logLevel",
];
const CLIENT_KEYS: [&str; 3] = [
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/logLevel",
];
/// The capabilities by which a server asks its client in the middle of a request, which this bridge does not do.
const ASKING_CAPABILITIES: [&str; 4] = ["elicitation", "roots", "sampling", "tasks"];

/// A request for a server of an earlier revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgedRequest {
    /// The request.
    pub text: String,
    /// The value of [`SESSION_ARGUMENT`], which was taken out of the arguments of a tool.
    pub session: Option<String>,
    /// Which log messages its client gets while it is served.
    pub log: LogThreshold,
}

/// Why a request cannot be bridged.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// `_meta` or `arguments` is no object that can be read.
    #[error("`{0}` must be an object")]
    Object(&'static str, #[source] serde_json::Error),
    /// The session is no text.
    #[error("the argument `{SESSION_ARGUMENT}` must be a string, and be given once")]
    Session,
    /// A defect of the gateway.
    #[error("the message cannot be changed")]
    Splice,
}

/// The request without what only 2026-07-28 has, and where `takes_session` without the argument for the gateway.
///
/// # Errors
/// [`BridgeError`].
pub fn bridge_request(
    message: &Message<'_>,
    takes_session: bool,
) -> Result<BridgedRequest, BridgeError> {
    let params = message.raw_params().unwrap_or("{}");
    let read = Members::read(&["_meta", "arguments"], params);
    let [meta, arguments] = read
        .map_err(|cause| BridgeError::Object("params", cause))?
        .values;
    let mut edits = Vec::new();
    let mut replace = |part: &str, with: String| {
        let edit = replace_part(message.text(), part, with).ok_or(BridgeError::Splice)?;
        edits.push(edit);
        Ok(())
    };
    if let Some(meta) = meta {
        let is_of_request = |key: &str| {
            let name = key.strip_prefix(RESERVED_PREFIX);
            name.is_some_and(|name| REQUEST_KEYS.contains(&name))
        };
        let kept = without_members(meta, is_of_request);
        if let Some(kept) = kept.map_err(|cause| BridgeError::Object("_meta", cause))? {
            replace(meta, kept)?;
        }
    }
    let mut session = None;
    if takes_session && let Some(arguments) = arguments.filter(|arguments| *arguments != "null") {
        let kept = without_members(arguments, |key| key == SESSION_ARGUMENT);
        if let Some(kept) = kept.map_err(|cause| BridgeError::Object("arguments", cause))? {
            let found = Members::read(&[SESSION_ARGUMENT], arguments);
            let found = found.map_err(|cause| BridgeError::Object("arguments", cause))?;
            let [value] = found.values;
            if value != Some("null") || found.duplicate.is_some() {
                let value = value.filter(|_| found.duplicate.is_none()).and_then(decode);
                session = Some(value.ok_or(BridgeError::Session)?.into_owned());
            }
            replace(arguments, kept)?;
        }
    }
    Ok(BridgedRequest {
        text: splice(message.text(), &mut edits).ok_or(BridgeError::Splice)?,
        session,
        log: LogThreshold::of(meta),
    })
}

/// The params of the `initialize` that the request stands for: with the client's name and capabilities, but for those with
/// which a server asks it.
#[must_use]
pub fn initialize_params(message: &Message<'_>) -> String {
    let meta = meta_of(message).unwrap_or("{}");
    let found = Members::read(&CLIENT_KEYS, meta);
    let [info, capabilities, _] = found.map_or([None; 3], |found| found.values);
    let is_object = |text: &&str| text.starts_with('{');
    let info = match info.filter(is_object) {
        Some(info) => Cow::Borrowed(info),
        None => Cow::Owned(format!(
            r#"{{"name":"mooring","version":{}}}"#,
            quoted(env!("CARGO_PKG_VERSION"))
        )),
    };
    let capabilities = capabilities.filter(is_object).unwrap_or("{}");
    let kept = without_members(capabilities, |key| ASKING_CAPABILITIES.contains(&key));
    let capabilities = match kept {
        Ok(Some(kept)) => Cow::Owned(kept),
        Ok(None) => Cow::Borrowed(capabilities),
        Err(_) => Cow::Borrowed("{}"),
    };
    format!(
        r#"{{"protocolVersion":{},"capabilities":{capabilities},"clientInfo":{info}}}"#,
        quoted(Revision::OFFERED.as_str()),
    )
}

fn meta_of<'a>(message: &Message<'a>) -> Option<&'a str> {
    let [meta] = Members::read(&["_meta"], message.raw_params()?)
        .ok()?
        .values;
    meta
}

/// The levels of log messages, least severe first (MCP, logging).
const LOG_LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

/// Which log messages the client of a request gets: none unless it asks for them (2026-07-28, logging).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogThreshold(Option<usize>);

impl LogThreshold {
    fn of(meta: Option<&str>) -> Self {
        let level = || {
            let [_, _, level] = Members::read(&CLIENT_KEYS, meta?).ok()?.values;
            index_of(&decode(level?)?)
        };
        Self(level())
    }

    /// Whether the client gets a log message of this level.
    #[must_use]
    pub fn admits(self, level: &str) -> bool {
        // A level that MCP does not have counts as the highest.
        let severity = index_of(level).unwrap_or(LOG_LEVELS.len());
        self.0.is_some_and(|threshold| severity >= threshold)
    }
}

fn index_of(level: &str) -> Option<usize> {
    LOG_LEVELS.iter().position(|known| *known == level)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]
    use super::*;
    use crate::envelope::Sender;

    fn bridged(text: &str, takes_session: bool) -> Result<BridgedRequest, BridgeError> {
        bridge_request(
            &Message::parse(text.as_bytes(), Sender::Client).unwrap(),
            takes_session,
        )
    }

    const META: &str = concat!(
        r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
        r#""io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"#,
        r#""io.modelcontextprotocol/clientCapabilities":{"sampling":{},"x":{"y":1.0}},"#,
        r#""io.modelcontextprotocol/logLevel":"warning""#
    );

    #[test]
    fn only_what_the_revision_adds_is_taken_out() {
        let request = |meta: &str| {
            format!(
                r#"{{"jsonrpc" : "2.0","id":1.0e0,"method":"tools/call","params":{{ "_meta":{{{meta}}},"name":"a", "arguments":{{"n" : 1.0}}}} }}"#
            )
        };
        let full = request(&format!(r#"{META},"progressToken":7,"traceparent":"t""#));
        let text = full.replace("1.0e0", "1");
        let expected = request(r#""progressToken":7,"traceparent":"t""#).replace("1.0e0", "1");
        let bridged = bridged(&text, true).unwrap();
        assert_eq!(bridged.text, expected);
        assert_eq!(bridged.session, None);
        for (level, is_admitted) in [("info", false), ("warning", true), ("error", true)] {
            assert_eq!(bridged.log.admits(level), is_admitted, "{level}");
        }
        let silent = super::tests::bridged(r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#, true);
        assert!(!silent.unwrap().log.admits("emergency"));
    }

    #[test]
    fn the_session_is_taken_out_of_the_arguments() {
        let request = |arguments: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"a","arguments":{arguments}}}}}"#
            )
        };
        for (arguments, kept, session) in [
            (
                r#"{"mooring_session":"s","n":1.0}"#,
                r#"{"n":1.0}"#,
                Some("s"),
            ),
            (
                r#"{"n":1, "m\u006foring_session":"s"}"#,
                r#"{"n":1}"#,
                Some("s"),
            ),
            (r#"{"mooring_session":null}"#, "{}", None),
            (
                r#"{"x":{"mooring_session":"s"} }"#,
                r#"{"x":{"mooring_session":"s"} }"#,
                None,
            ),
            ("null", "null", None),
        ] {
            let bridged = bridged(&request(arguments), true).unwrap();
            assert_eq!(bridged.text, request(kept));
            assert_eq!(bridged.session.as_deref(), session, "{arguments}");
        }
        for refused in [
            r#"{"mooring_session":1}"#,
            r#"{"mooring_session":"a","mooring_session":"b"}"#,
            r#"{"mooring_session":"a","mooring_session":null}"#,
            "[]",
        ] {
            assert!(bridged(&request(refused), true).is_err(), "{refused}");
        }
        let other = request(r#"{"mooring_session":1}"#);
        assert_eq!(bridged(&other, false).unwrap().text, other);
    }

    #[test]
    fn a_request_stands_for_an_initialize_without_what_servers_would_ask() {
        let params = |meta: &str| {
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{{{meta}}}}}}}"#
            );
            initialize_params(&Message::parse(text.as_bytes(), Sender::Client).unwrap())
        };
        assert_eq!(
            params(META),
            r#"{"protocolVersion":"2025-11-25","capabilities":{"x":{"y":1.0}},"clientInfo":{"name":"c","version":"1"}}"#
        );
        for bare in [
            "",
            r#""io.modelcontextprotocol/clientInfo":[],"io.modelcontextprotocol/clientCapabilities":1"#,
        ] {
            let params: serde_json::Value = serde_json::from_str(&params(bare)).unwrap();
            let capabilities = params.pointer("/capabilities");
            assert_eq!(capabilities, Some(&serde_json::json!({})));
            let name = params
                .pointer("/clientInfo/name")
                .and_then(|name| name.as_str());
            assert_eq!(name, Some("mooring"));
        }
    }
}
