//! What a tool's answer is to code: a value, or an error with the tool's own words.

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

/// Reads the response to a call. `is_served` says whether the reply's status was a success: then an error is the
/// server's own, else it is the gateway's.
pub(super) fn outcome(message: &Message<'_>, is_served: bool) -> Result<Value, CallError> {
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
        _ => Err(rpc_error(text, is_served)),
    }
}

fn rpc_error(text: &str, is_served: bool) -> CallError {
    let Ok(error) = serde_json::from_str::<RpcError>(text) else {
        return CallErrorKind::ToolError.error("the server answered with an error");
    };
    let is = |kind: ErrorKind| error.code == i64::from(kind.code());
    let kind = if is(ErrorKind::OutcomeUnknown) {
        CallErrorKind::OutcomeUnknown
    } else if is_served {
        CallErrorKind::ToolError
    } else if is(ErrorKind::UpstreamTimeout) {
        CallErrorKind::Timeout
    } else {
        CallErrorKind::Unavailable
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

    fn read(message: &Value, is_served: bool) -> Result<Value, CallError> {
        let text = message.to_string();
        outcome(
            &Message::parse(text.as_bytes(), Sender::Upstream).unwrap(),
            is_served,
        )
    }

    fn result(result: &Value) -> Result<Value, CallError> {
        read(
            &json!({"jsonrpc": "2.0", "id": "c:1", "result": result}),
            true,
        )
    }

    fn error(code: i64, is_served: bool) -> CallErrorKind {
        let error = json!({"code": code, "message": "words"});
        let message = json!({"jsonrpc": "2.0", "id": "c:1", "error": error});
        let error = read(&message, is_served).unwrap_err();
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
        assert_eq!(error(-32602, true), CallErrorKind::ToolError);
        assert_eq!(
            error(ErrorKind::OutcomeUnknown.code().into(), true),
            CallErrorKind::OutcomeUnknown
        );
        assert_eq!(
            error(ErrorKind::UpstreamTimeout.code().into(), false),
            CallErrorKind::Timeout
        );
        assert_eq!(
            error(ErrorKind::StoreUnavailable.code().into(), false),
            CallErrorKind::Unavailable
        );
    }
}
