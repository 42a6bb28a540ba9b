//! A JSON-RPC message. The first byte says whether a client or a server has sent it, the rest is its text.
//!
//! What the gateway reads of it is what a JSON library reads. On its way only its id and its progress token change, and
//! the answer to what arrives has the sender's own id again.

#![no_main]

use std::borrow::Cow;

use libfuzzer_sys::fuzz_target;
use mooring_protocol::envelope::MODERN_VERSION_KEY;
use mooring_protocol::{
    Epoch, Kind, Marker, Message, RequestTag, Sender, rewrite_down, rewrite_up,
};
use serde_json::Value;
use serde_json::value::RawValue;

const TAG: RequestTag = RequestTag(10);

fuzz_target!(|input: &[u8]| {
    let Some((from, text)) = input.split_first() else {
        return;
    };
    let sender = match from % 2 {
        0 => Sender::Client,
        _ => Sender::Upstream,
    };
    let Ok(message) = Message::parse(text, sender) else {
        return;
    };
    serde_json::from_str::<&RawValue>(message.text()).expect("an accepted message is JSON");
    // The library also refuses deep nesting, halves of surrogate pairs and numbers out of range.
    let Ok(value) = serde_json::from_str::<Value>(message.text()) else {
        return;
    };
    is_read_alike(&message, &value);
    if message.kind() == Kind::Request {
        is_restored(&message, value, sender);
    }
});

fn is_read_alike(message: &Message<'_>, value: &Value) {
    let id = message.id().map_or(Value::Null, |id| parsed(id.as_json()));
    assert_eq!(id, value["id"]);
    assert_eq!(message.method_name(), value["method"].as_str());
    let (params, meta) = (&value["params"], &value["params"]["_meta"]);
    for (read, expected) in [
        (message.params.name(), &params["name"]),
        (message.params.uri(), &params["uri"]),
        (message.params.level(), &params["level"]),
        (
            message.params.protocol_version(),
            &params["protocolVersion"],
        ),
        (message.params.modern_version(), &meta[MODERN_VERSION_KEY]),
    ] {
        assert_eq!(read.as_deref(), expected.as_str());
    }
    if message.kind().is_response() {
        let outcome = match message.kind() {
            Kind::Result => &value["result"],
            _ => &value["error"],
        };
        assert_eq!(message.outcome().map(parsed).as_ref(), Some(outcome));
    }
}

fn is_restored(message: &Message<'_>, mut before: Value, sender: Sender) {
    let id = message.id().expect("a request has an id").as_json();
    let Some(rewritten) = on_its_way(message, sender) else {
        return;
    };
    let received = Message::parse(rewritten.as_bytes(), receiver_of(sender));
    let received = received.expect("a rewritten message is a message");
    let new_id = received.id().expect("a request has an id").as_json();
    let mut after = parsed(&rewritten);
    for value in [&mut before, &mut after] {
        value["id"] = Value::Null;
        if let Some(token) = value.pointer_mut("/params/_meta/progressToken") {
            *token = Value::Null;
        }
    }
    assert_eq!(before, after);

    let answer = format!(r#"{{"jsonrpc":"2.0","id":{new_id},"result":{{}}}}"#);
    let back = match sender {
        Sender::Upstream => Sender::Client,
        _ => Sender::Upstream,
    };
    let answer = Message::parse(answer.as_bytes(), back).expect("an answer is a message");
    let answer = on_its_way(&answer, back).expect("the id of the answer is the gateway's own");
    assert_eq!(
        answer,
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
    );
}

/// How a message of this sender is read once the gateway has changed it.
fn receiver_of(sender: Sender) -> Sender {
    match sender {
        Sender::Client => Sender::Gateway,
        other => other,
    }
}

fn on_its_way<'a>(message: &Message<'a>, sender: Sender) -> Option<Cow<'a, str>> {
    match sender {
        Sender::Upstream => Some(rewrite_down(message, &Marker::of(Epoch(4))).ok()?.text),
        _ => Some(rewrite_up(message, Some(TAG)).ok()?.text),
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("it was parsed before, or is a part of what was")
}
