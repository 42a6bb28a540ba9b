//! What a replay answers, and where it says that it is not what was recorded.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::calls::{CallErrorKind, Callee, NestedCall};
use crate::records::call_key;
use crate::records::{RecordedCall, RecordedCalls, RecordedOutcome};

fn call(tool: &str, arguments: Value) -> NestedCall {
    let Value::Object(arguments) = arguments else {
        panic!("arguments are an object");
    };
    NestedCall {
        server: "github".into(),
        tool: tool.into(),
        arguments,
    }
}

fn recorded(calls: Vec<(NestedCall, RecordedOutcome)>) -> RecordedCalls {
    let calls = (1..)
        .zip(calls)
        .map(|(seq, (call, outcome))| RecordedCall {
            seq,
            key: call_key(&call),
            server: call.server.into(),
            tool: call.tool.into(),
            arguments: Some(call.arguments),
            started_at_ms: seq,
            latency_ms: Some(1.0),
            outcome,
        })
        .collect();
    RecordedCalls {
        calls,
        is_complete: true,
    }
}

fn result(value: Value) -> RecordedOutcome {
    RecordedOutcome::Result(value)
}

#[test]
fn a_call_is_known_by_its_arguments_whatever_their_order() {
    let one: Value = serde_json::from_str(r#"{"a":{"x":1,"y":[{"p":1,"q":2}]},"b":2}"#).unwrap();
    let other: Value = serde_json::from_str(r#"{"b":2,"a":{"y":[{"q":2,"p":1}],"x":1}}"#).unwrap();
    let of = |value: &Value| call_key(&call("t", value.clone()));
    assert_eq!(of(&one), of(&other));
    for different in [
        json!({"a": {"x": 1, "y": [{"p": 1, "q": 2}]}, "b": 3}),
        json!({"a": {"x": 1, "y": [{"p": 1, "q": 2}]}, "b": "2"}),
        json!({"a": {"x": 1, "y": [{"p": 1, "q": 2}]}}),
        json!({}),
    ] {
        assert_ne!(of(&one), of(&different), "{different}");
    }
    assert_ne!(
        call_key(&call("t", json!({}))),
        call_key(&call("u", json!({})))
    );
}

#[tokio::test]
async fn calls_are_answered_in_any_order_and_equal_ones_in_theirs() {
    let failed = CallErrorKind::ToolError.error("it failed");
    let from = FromRecord::new(recorded(vec![
        (call("count", json!({})), result(json!(1))),
        (call("other", json!({"a": 1})), result(json!("other"))),
        (call("count", json!({})), result(json!(2))),
        (
            call("fail", json!({})),
            RecordedOutcome::Error(failed.clone()),
        ),
    ]));
    assert_eq!(from.call(call("fail", json!({}))).await, Err(failed));
    assert_eq!(from.call(call("count", json!({}))).await, Ok(json!(1)));
    assert_eq!(
        from.call(call("other", json!({"a": 1}))).await,
        Ok(json!("other"))
    );
    assert_eq!(from.call(call("count", json!({}))).await, Ok(json!(2)));
    assert_eq!(from.divergences(), (Vec::new(), 0));
}

#[tokio::test]
async fn what_the_record_does_not_have_is_said_with_its_place() {
    let from = Arc::new(FromRecord::new(recorded(vec![
        (call("count", json!({})), result(json!(1))),
        (call("large", json!({})), RecordedOutcome::Omitted),
        (call("slow", json!({})), RecordedOutcome::Unended),
        (call("never", json!({})), result(json!(0))),
        (call("unwaited", json!({})), RecordedOutcome::Unended),
    ])));
    from.call(call("count", json!({}))).await.unwrap();
    for (tool, says) in [
        ("count", "no further call of github/count"),
        ("large", "no room for what github/large returned"),
        ("slow", "had not ended"),
        ("unknown", "no further call of github/unknown"),
    ] {
        let error = from.call(call(tool, json!({}))).await.unwrap_err();
        assert_eq!(error.kind, CallErrorKind::Diverged);
        assert!(error.message.contains(says), "{}", error.message);
    }
    let (divergences, total) = from.divergences();
    assert_eq!(total, 5);
    let listed = |call: u64, tool: &str, what: &str| json!({"call": call, "server": "github", "tool": tool, "what": what});
    assert_eq!(
        json!(divergences),
        json!([
            listed(2, "count", "unknown_call"),
            listed(3, "large", "result_not_recorded"),
            listed(4, "slow", "call_had_not_ended"),
            listed(5, "unknown", "unknown_call"),
            listed(4, "never", "call_not_made"),
        ])
    );
}

#[tokio::test]
async fn only_so_many_divergences_are_listed() {
    let from = FromRecord::new(RecordedCalls::default());
    for number in 0..150 {
        from.call(call("t", json!({"n": number})))
            .await
            .unwrap_err();
    }
    let (listed, total) = from.divergences();
    assert_eq!((listed.len(), total), (100, 150));
}
