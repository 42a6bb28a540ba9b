//! A tool's answer as code gets it: a value, or an error with the tool's own text.
//!
//! Invariant: an error says that the tool did not run only if that is certain, because code may then repeat the call.

use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::{CallError, CallErrorKind};
use mooring_protocol::{ErrorKind, Kind, Message};

/// Longest error message of a tool that is passed to code, in characters.
const MESSAGE_CHARS_MAX: usize = 16_384;

/// The result of `tools/call`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult {
    #[serde(default)]
    content: Vec<Value>,
    #[serde(default)]
    structured_content: Option<Value>,
    #[serde(default)]
    is_error: bool,
}

/// A JSON-RPC error.
#[derive(Deserialize)]
struct RpcError {
    code: i64,
    #[serde(default)]
    message: String,
}

/// Errors of the gateway itself that say that the call was not delivered.
const NOT_DELIVERED: [ErrorKind; 9] = [
    ErrorKind::SessionNotFound,
    ErrorKind::ServerNotFound,
    ErrorKind::Unauthenticated,
    ErrorKind::Forbidden,
    ErrorKind::StoreUnavailable,
    ErrorKind::UpstreamUnavailable,
    ErrorKind::UpstreamRefused,
    ErrorKind::TurnBusy,
    ErrorKind::ShuttingDown,
];

/// The head of the reply to a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplyHead {
    pub(super) status: StatusCode,
    /// Whether it says when to try again.
    pub(super) has_retry_after: bool,
}

impl ReplyHead {
    /// The outcome that the status alone shows; none for a success. A server sends 4xx, or 503 with Retry-After, before
    /// it begins a call. Any other 5xx may come from a proxy that lost a call in flight, and 408 from one whose wait
    /// for the reply timed out.
    pub(super) fn failure(self) -> Option<CallError> {
        let status = self.status;
        let is_refusal = match status {
            StatusCode::REQUEST_TIMEOUT => false,
            StatusCode::SERVICE_UNAVAILABLE => self.has_retry_after,
            status => status.is_client_error(),
        };
        let status = status.as_u16();
        match is_refusal {
            _ if self.status.is_success() => None,
            true => Some(CallErrorKind::Unavailable.error(format!(
                "the server refused the call with HTTP status {status}; nothing ran"
            ))),
            false => Some(CallErrorKind::OutcomeUnknown.error(format!(
                "the server answered with HTTP status {status}; the call may have run"
            ))),
        }
    }
}

/// Reads the response to a call. If the reply's status was a success, an error is the server's own.
pub(super) fn outcome(message: &Message<'_>, head: ReplyHead) -> Result<Value, CallError> {
    let text = message.outcome().unwrap_or("null");
    match message.kind() {
        Kind::Result => match serde_json::from_str::<ToolResult>(text) {
            Ok(result) if result.is_error => {
                Err(CallErrorKind::ToolError.error(shortened(&words(&result.content))))
            }
            Ok(result) => Ok(value(result)),
            Err(_) => {
                Err(CallErrorKind::ToolError.error("the server's answer is not a tool result"))
            }
        },
        _ => Err(rpc_error(text, head)),
    }
}

fn rpc_error(text: &str, head: ReplyHead) -> CallError {
    let Ok(error) = serde_json::from_str::<RpcError>(text) else {
        let failure = head.failure();
        return failure.unwrap_or_else(|| {
            CallErrorKind::ToolError.error("the server answered with an error")
        });
    };
    let is = |kind: ErrorKind| error.code == i64::from(kind.code());
    let kind = match head.failure() {
        _ if is(ErrorKind::OutcomeUnknown) => CallErrorKind::OutcomeUnknown,
        None => CallErrorKind::ToolError,
        Some(_) if is(ErrorKind::UpstreamTimeout) => CallErrorKind::Timeout,
        Some(_) if NOT_DELIVERED.into_iter().any(is) => CallErrorKind::Unavailable,
        Some(failure) => failure.kind,
    };
    kind.error(shortened(&error.message))
}

/// The structured content; else the one text, read as JSON where it is an object or an array; else all content.
fn value(result: ToolResult) -> Value {
    if let Some(structured) = result.structured_content {
        return structured;
    }
    if let [only] = result.content.as_slice()
        && let Some(text) = text_of(only)
    {
        return match serde_json::from_str(text) {
            Ok(parsed @ (Value::Object(_) | Value::Array(_))) => parsed,
            _ => Value::from(text),
        };
    }
    Value::Array(result.content)
}

fn text_of(content: &Value) -> Option<&str> {
    (content.get("type")?.as_str()? == "text").then_some(())?;
    content.get("text")?.as_str()
}

fn words(content: &[Value]) -> String {
    let texts: Vec<&str> = content.iter().filter_map(text_of).collect();
    if texts.is_empty() {
        "the tool failed and did not say why".to_owned()
    } else {
        texts.join("\n")
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use serde_json::json;

    use super::*;
    use mooring_protocol::Sender;

    fn head(status: u16) -> ReplyHead {
        ReplyHead {
            status: StatusCode::from_u16(status).unwrap(),
            has_retry_after: false,
        }
    }

    fn read(message: &Value, status: u16) -> Result<Value, CallError> {
        let text = message.to_string();
        let message = Message::parse(text.as_bytes(), Sender::Upstream).unwrap();
        outcome(&message, head(status))
    }

    fn result(result: &Value) -> Result<Value, CallError> {
        read(
            &json!({"jsonrpc": "2.0", "id": "c:1", "result": result}),
            200,
        )
    }

    fn error(code: i64, status: u16) -> CallErrorKind {
        let error = json!({"code": code, "message": "words"});
        let message = json!({"jsonrpc": "2.0", "id": "c:1", "error": error});
        let error = read(&message, status).unwrap_err();
        assert_eq!(error.message, "words");
        error.kind
    }

    #[test]
    fn code_gets_the_plainest_form_of_an_answer() {
        let text = |text: &str| json!({"type": "text", "text": text});
        for (answer, expected) in [
            (
                json!({"content": [text("x")], "structuredContent": {"a": 1}}),
                json!({"a": 1}),
            ),
            (json!({"content": [text("[1, 2]")]}), json!([1, 2])),
            (json!({"content": [text("12")]}), json!("12")),
            (json!({"content": [text("word")]}), json!("word")),
            (
                json!({"content": [text("a"), text("b")]}),
                json!([text("a"), text("b")]),
            ),
            (json!({"content": []}), json!([])),
            (json!({}), json!([])),
        ] {
            assert_eq!(result(&answer).unwrap(), expected);
        }
    }

    #[test]
    fn errors_say_whose_they_are_and_keep_the_tools_words() {
        let failed =
            json!({"isError": true, "content": [{"type": "text", "text": "no such issue"}]});
        let failed = result(&failed).unwrap_err();
        assert_eq!(failed.kind, CallErrorKind::ToolError);
        assert_eq!(failed.message, "no such issue");
        let of = |kind: ErrorKind, status| error(kind.code().into(), status);
        for (kind, expected) in [
            (error(-32602, 200), CallErrorKind::ToolError),
            (error(-32602, 400), CallErrorKind::Unavailable),
            (error(-32603, 500), CallErrorKind::OutcomeUnknown),
            (error(-32000, 503), CallErrorKind::OutcomeUnknown),
            (
                of(ErrorKind::OutcomeUnknown, 200),
                CallErrorKind::OutcomeUnknown,
            ),
            (of(ErrorKind::UpstreamTimeout, 504), CallErrorKind::Timeout),
            (
                of(ErrorKind::UpstreamInvalid, 502),
                CallErrorKind::OutcomeUnknown,
            ),
            (
                of(ErrorKind::UpstreamRefused, 502),
                CallErrorKind::Unavailable,
            ),
            (
                of(ErrorKind::StoreUnavailable, 503),
                CallErrorKind::Unavailable,
            ),
        ] {
            assert_eq!(kind, expected);
        }
    }

    #[test]
    fn a_status_says_that_nothing_ran_only_where_that_is_known() {
        for (status, expected) in [
            (200, None),
            (202, None),
            (400, Some(CallErrorKind::Unavailable)),
            (408, Some(CallErrorKind::OutcomeUnknown)),
            (429, Some(CallErrorKind::Unavailable)),
            (500, Some(CallErrorKind::OutcomeUnknown)),
            (502, Some(CallErrorKind::OutcomeUnknown)),
            (503, Some(CallErrorKind::OutcomeUnknown)),
            (504, Some(CallErrorKind::OutcomeUnknown)),
        ] {
            let failure = head(status).failure();
            assert_eq!(failure.map(|failure| failure.kind), expected, "{status}");
        }
        let later = ReplyHead {
            has_retry_after: true,
            ..head(503)
        };
        let failure = later.failure().unwrap();
        assert_eq!(failure.kind, CallErrorKind::Unavailable);
    }
}
