//! What the span of a message says of it, by the OpenTelemetry conventions for MCP, and of its reply.
//!
//! Invariant: neither arguments nor results, and no message of an error, which may repeat them. A resource's URI is left
//! out too: it may name what its user reads.

use mooring_metrics::ExchangeOutcome;
use mooring_protocol::{Kind, Message, Method, ReplySummary, ResponseOutcome};
use mooring_traces::{Span, attribute};

use super::timed_exchange::exchange_outcome;

/// Names the span after the message, and says what it is.
pub fn describe_message(span: &mut Span, message: &Message<'_>) {
    if !span.is_recorded() {
        return;
    }
    let method = message.method_name().unwrap_or_default();
    span.note_text(attribute::MCP_METHOD_NAME, method);
    let target = match message.method() {
        Method::ToolsCall => Some(attribute::TOOL_NAME),
        Method::PromptsGet => Some(attribute::PROMPT_NAME),
        _ => None,
    };
    let name = message.params.name();
    match target.zip(name) {
        Some((attribute, name)) => {
            span.note_text(attribute, &name);
            span.rename_to(&[method, &name]);
        }
        None => span.rename_to(&[method]),
    }
    if message.method() == Method::ToolsCall {
        span.note(attribute::OPERATION_NAME, attribute::EXECUTE_TOOL);
    }
    if let (Kind::Request, Some(id)) = (message.kind(), message.id()) {
        // The convention has the id as text: `7`, and `a` for "a".
        span.note_text(
            attribute::JSONRPC_REQUEST_ID,
            id.as_json().trim_matches('"'),
        );
    }
}

/// Says how the exchange ended: by the error of its response, else by its status, else by what became of its body.
pub fn note_reply(span: &mut Span, reply: &ReplySummary) {
    if !span.is_recorded() {
        return;
    }
    match (reply.outcome, exchange_outcome(reply)) {
        (Some(ResponseOutcome::Error(Some(code))), _) => {
            span.note(attribute::STATUS_CODE, code.to_string());
            span.fail(code.to_string());
        }
        (_, ExchangeOutcome::Ok) => {}
        (_, ExchangeOutcome::Refused | ExchangeOutcome::Failed) => {
            span.fail(reply.status.as_str().to_owned());
        }
        (_, outcome) => span.fail(<&'static str>::from(outcome)),
    }
}
