//! The messages that the gateway itself sends: requests to upstreams, and answers.
//!
//! Invariant: client data (initialize params, log level, URI) is inserted as the JSON text that the client wrote or
//! escaped as a JSON string; ids are JSON text, made by [`super::ids::gateway_id`] or taken from
//! [`Id::as_json`](super::ids::Id::as_json).

use std::fmt::Write as _;

use super::listing::Listing;
use super::method::Method;
use super::splice::quoted;
use super::version::Revision;

/// Params of the gateway's own `initialize`, for probes and pooled sessions, which have no client.
#[must_use]
pub fn own_initialize_params(protocol_version: &str, gateway_version: &str) -> String {
    format!(
        r#"{{"protocolVersion":{},"capabilities":{{}},"clientInfo":{{"name":"mooring","version":{}}}}}"#,
        quoted(protocol_version),
        quoted(gateway_version),
    )
}

/// Params of an `initialize` for code that calls tools. Whether its user can answer requests differs from run to run;
/// if not, the gateway answers.
#[must_use]
pub fn code_initialize_params() -> String {
    format!(
        r#"{{"protocolVersion":{},"capabilities":{{"elicitation":{{"form":{{}},"url":{{}}}}}},"clientInfo":{{"name":"mooring-code","version":{}}}}}"#,
        quoted(Revision::OFFERED.as_str()),
        quoted(env!("CARGO_PKG_VERSION")),
    )
}

/// `initialize` with a client's params.
#[must_use]
pub fn initialize(id_json: &str, params_json: &str) -> String {
    request(id_json, "initialize", Some(params_json))
}

/// `notifications/initialized`, which ends the handshake.
#[must_use]
pub const fn initialized() -> &'static str {
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#
}

/// `ping`.
#[must_use]
pub fn ping(id_json: &str) -> String {
    request(id_json, "ping", None)
}

/// The answer to a `ping`, and to every request whose result is empty.
#[must_use]
pub fn empty_result(id_json: &str) -> String {
    result(id_json, "{}")
}

/// A response with this `result`, given as JSON text.
#[must_use]
pub fn result(id_json: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id_json},"result":{result}}}"#)
}

/// A response with this `error`, given as JSON text.
#[must_use]
pub fn error(id_json: &str, error: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id_json},"error":{error}}}"#)
}

/// `tools/list`, from the start or from a page's `nextCursor`.
#[must_use]
pub fn tools_list(id_json: &str, cursor: Option<&str>) -> String {
    list(id_json, Listing::Tools, cursor)
}

/// A request for a page of a list, from the start or from the previous page's `nextCursor`.
#[must_use]
pub fn list(id_json: &str, listing: Listing, cursor: Option<&str>) -> String {
    let params = cursor.map(|cursor| format!(r#"{{"cursor":{}}}"#, quoted(cursor)));
    request(id_json, listing.method(), params.as_deref())
}

/// A request of the gateway with a client's params.
#[must_use]
pub fn again(id_json: &str, method: Method, params_json: Option<&str>) -> String {
    request(id_json, method.label(), params_json)
}

/// `logging/setLevel`, to restore the level in a new upstream session.
#[must_use]
pub fn set_level(id_json: &str, level: &str) -> String {
    let params = format!(r#"{{"level":{}}}"#, quoted(level));
    request(id_json, "logging/setLevel", Some(&params))
}

/// `resources/subscribe`, to restore a subscription in a new upstream session.
#[must_use]
pub fn subscribe(id_json: &str, uri: &str) -> String {
    let params = format!(r#"{{"uri":{}}}"#, quoted(uri));
    request(id_json, "resources/subscribe", Some(&params))
}

/// `notifications/cancelled` for a request of the gateway's own.
#[must_use]
pub fn cancelled(request_id_json: &str, reason: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{request_id_json},"reason":{}}}}}"#,
        quoted(reason),
    )
}

fn request(id_json: &str, method: &'static str, params_json: Option<&str>) -> String {
    let params_len = params_json.map_or(0, |params| params.len() + 10);
    let mut out = String::with_capacity(40 + id_json.len() + method.len() + params_len);
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        r#"{{"jsonrpc":"2.0","id":{id_json},"method":"{method}""#
    );
    if let Some(params) = params_json {
        let _ = write!(out, r#","params":{params}"#);
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]
    use super::*;
    use crate::envelope::{Kind, Message, Sender};
    use crate::ids::gateway_id;

    #[test]
    fn every_request_is_a_message_with_the_gateways_id() {
        let id = gateway_id("boot-1", 7).unwrap();
        let rows = [
            (initialize(&id, r#"{"x": 1.0}"#), Method::Initialize),
            (ping(&id), Method::Ping),
            (tools_list(&id, None), Method::ToolsList),
            (tools_list(&id, Some("a\"b")), Method::ToolsList),
            (
                again(&id, Method::ResourcesRead, Some("{}")),
                Method::ResourcesRead,
            ),
            (set_level(&id, "in\"fo"), Method::LoggingSetLevel),
            (subscribe(&id, "file:///ä\\"), Method::ResourcesSubscribe),
        ];
        for (text, method) in rows {
            let message = Message::parse(text.as_bytes(), Sender::Client).unwrap();
            assert_eq!(message.kind(), Kind::Request);
            assert_eq!(message.method(), method);
            assert_eq!(message.id().unwrap().as_json(), id);
        }
    }

    #[test]
    fn inserted_texts_are_unchanged() {
        let text = initialize("\"b-1:0\"", r#"{"capabilities" : {"x":[1.0]}}"#);
        let message = Message::parse(text.as_bytes(), Sender::Client).unwrap();
        assert_eq!(
            message.raw_params(),
            Some(r#"{"capabilities" : {"x":[1.0]}}"#)
        );
        let text = subscribe("1", "a\"\n");
        let message = Message::parse(text.as_bytes(), Sender::Client).unwrap();
        assert_eq!(message.params.uri().unwrap(), "a\"\n");
        let text = initialize("1", &own_initialize_params("2025-11-25", "0.1.0"));
        let message = Message::parse(text.as_bytes(), Sender::Client).unwrap();
        assert_eq!(message.params.protocol_version().unwrap(), "2025-11-25");
    }

    #[test]
    fn notifications_and_answers_have_their_kinds() {
        let kind = |text: &str| {
            Message::parse(text.as_bytes(), Sender::Client)
                .unwrap()
                .kind()
        };
        assert_eq!(kind(initialized()), Kind::Notification);
        assert_eq!(kind(&cancelled("\"b-1:3\"", "late")), Kind::Notification);
        assert_eq!(kind(&empty_result("\"x\"")), Kind::Result);
    }
}
