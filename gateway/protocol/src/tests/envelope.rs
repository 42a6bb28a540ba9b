//! Accepted messages, what is read from them, and why others are refused.

use std::borrow::Cow;

use proptest::prelude::*;

use super::{json, object_of, other_members, space};
use crate::envelope::{EnvelopeError, Kind, Message, NESTING_MAX, Sender};
use crate::ids::{ID_BYTES_MAX, IdError, WIRE_ID_BYTES_MAX};
use crate::method::Method;

fn client(text: &str) -> Result<Message<'_>, EnvelopeError> {
    Message::parse(text.as_bytes(), Sender::Client)
}

fn upstream(text: &str) -> Result<Message<'_>, EnvelopeError> {
    Message::parse(text.as_bytes(), Sender::Upstream)
}

#[test]
fn a_call_exposes_its_routing_fields() {
    let message = client(
        r#"{"jsonrpc":"2.0","id":"a\u0041","method":"tools/call","params":{"name":"add \u0041","arguments":{"name":"inner","_meta":{"progressToken":1}},"_meta":{"x":1}}}"#,
    )
    .unwrap();
    assert_eq!(message.kind(), Kind::Request);
    assert_eq!(message.method(), Method::ToolsCall);
    assert_eq!(message.method_name(), Some("tools/call"));
    assert_eq!(message.id().unwrap().as_json(), r#""a\u0041""#);
    assert_eq!(message.params.name(), Some(Cow::Borrowed("add A")));
    assert_eq!(message.params.uri(), None);
    assert_eq!(message.params.meta_progress_token, None);
    assert!(!message.params.is_modern());
}

#[test]
fn a_modern_version_is_seen_even_if_invalid() {
    let with = |value: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":{value}}}}}}}"#
        )
    };
    let text = with("\"2026-07-28\"");
    let message = client(&text).unwrap();
    assert!(message.params.is_modern());
    assert_eq!(message.params.modern_version().unwrap(), "2026-07-28");
    let text = with("7");
    let message = client(&text).unwrap();
    assert!(message.params.is_modern());
    assert_eq!(message.params.modern_version(), None);
}

#[test]
fn initialize_params_are_kept_verbatim() {
    let text = "\u{feff} {\"params\" : {\"protocolVersion\":\"2025-11-25\", \"x\":1.0} ,\"id\":0,\"method\":\"initialize\",\"jsonrpc\":\"2.0\"}\n";
    let message = client(text).unwrap();
    assert_eq!(message.method(), Method::Initialize);
    assert_eq!(message.params.protocol_version().unwrap(), "2025-11-25");
    assert_eq!(
        message.raw_params(),
        Some(r#"{"protocolVersion":"2025-11-25", "x":1.0}"#)
    );
}

#[test]
fn kinds_follow_from_the_fields() {
    for (text, kind) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, Kind::Request),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":null}"#,
            Kind::Request,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}"#,
            Kind::Request,
        ),
        (r#"{"jsonrpc":"2.0","method":"m"}"#, Kind::Notification),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, Kind::Result),
        (r#"{"jsonrpc":"2.0","id":1,"result":null}"#, Kind::Result),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":1,"error":null}"#,
            Kind::Result,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1}}"#,
            Kind::Error,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{}}"#,
            Kind::Error,
        ),
    ] {
        assert_eq!(client(text).unwrap().kind(), kind, "{text}");
    }
}

#[test]
fn harmless_upstream_deviations_are_accepted() {
    for text in [
        r#"{"error":{"code":-32600,"message":"m"},"id":null}"#,
        r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"m"}}"#,
    ] {
        let message = upstream(text).unwrap();
        assert_eq!((message.kind(), message.id()), (Kind::Error, None));
        assert!(client(text).is_err());
    }
    assert!(upstream(r#"{"jsonrpc":"2.0","id":null,"result":{}}"#).is_err());
    assert!(upstream(r#"{"jsonrpc":"2.0","result":{}}"#).is_err());
}

fn request(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#)
}

#[test]
fn ids_are_strings_or_integers_of_bounded_length() {
    let error_of = |id: &str| match client(&request(id)) {
        Err(EnvelopeError::Id(error)) => Some(error),
        Err(other) => panic!("{id}: {other}"),
        Ok(_) => None,
    };
    for id in ["0", "-1", "\"\"", "\"null\"", "99999999999999999999999999"] {
        assert_eq!(error_of(id), None, "{id}");
    }
    for id in ["null", "true", "1.0", "1e3", "-0.5", "{}", "[1]"] {
        assert_eq!(error_of(id), Some(IdError::Type), "{id}");
    }
    assert_eq!(error_of(&"1".repeat(ID_BYTES_MAX)), None);
    assert_eq!(
        error_of(&"1".repeat(ID_BYTES_MAX + 1)),
        Some(IdError::TooLong)
    );
}

#[test]
fn rewritten_ids_may_be_longer() {
    let of_gateway = |id_bytes: usize| {
        let text = request("1".repeat(id_bytes).as_str());
        match Message::parse(text.as_bytes(), Sender::Gateway) {
            Err(EnvelopeError::Id(error)) => Err(error),
            Err(other) => panic!("{id_bytes}: {other}"),
            Ok(message) => Ok(message.kind()),
        }
    };
    for id_bytes in [1, ID_BYTES_MAX + 1, WIRE_ID_BYTES_MAX] {
        assert_eq!(of_gateway(id_bytes), Ok(Kind::Request), "{id_bytes}");
    }
    assert_eq!(of_gateway(WIRE_ID_BYTES_MAX + 1), Err(IdError::TooLong));
    // A rewritten message was validated before, and is validated again.
    let careless = r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"m"}}"#;
    assert!(Message::parse(careless.as_bytes(), Sender::Gateway).is_err());
}

#[test]
fn ambiguous_messages_are_refused() {
    for (text, key) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","\u0069d":2}"#, "id"),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#,
            "method",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{},"params":{}}"#,
            "params",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"name":1,"name":2}}"#,
            "name",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{},"_meta":{}}}"#,
            "_meta",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{"progressToken":1,"progressToken":2}}}"#,
            "progressToken",
        ),
    ] {
        match client(text) {
            Err(EnvelopeError::DuplicateKey(found)) => assert_eq!(found, key),
            other => panic!("{text}: {other:?}"),
        }
    }
    // Elsewhere duplicates are up to the upstream.
    assert!(client(r#"{"jsonrpc":"2.0","id":1,"method":"a","x":1,"x":2}"#).is_ok());
}

#[test]
fn a_key_in_another_case_is_refused_from_clients_and_nothing_from_upstreams() {
    for (text, key) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","Method":"b"}"#,
            "method",
        ),
        (r#"{"JSONRPC":"2.0","id":1,"method":"a"}"#, "jsonrpc"),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"Arguments":{}}}"#,
            "arguments",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"_META":{}}}"#,
            "_meta",
        ),
    ] {
        match client(text) {
            Err(EnvelopeError::KeyCase(found)) => assert_eq!(found, key),
            other => panic!("{text}: {other:?}"),
        }
        assert!(upstream(text).is_ok(), "{text}");
    }
    // Nothing is decided by the context of a trace.
    let text = r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{"TraceParent":"00"}}}"#;
    assert!(client(text).is_ok_and(|message| message.params.traceparent().is_none()));
    // Objects that only servers read may use any names.
    let text =
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"arguments":{"Name":1,"name":2}}}"#;
    assert!(client(text).is_ok());
}

#[test]
fn a_method_or_name_that_a_server_may_read_as_another_is_refused() {
    for method in [
        "Tools/Call",
        "TOOLS/CALL",
        "tool\u{17f}/call",
        "Notifications/Cancelled",
    ] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
        match client(&text) {
            Err(EnvelopeError::MethodCase(known)) => {
                assert!(known == "tools/call" || known == "notifications/cancelled");
            }
            other => panic!("{text}: {other:?}"),
        }
        assert!(upstream(&text).is_ok(), "{text}");
    }
    let padded = [
        r"X\u0000",
        r"\tX",
        " X",
        "X ",
        "X\u{a0}",
        "X\u{feff}",
        r"X\n",
        "X\u{7f}",
    ];
    for padded in padded {
        let method = padded.replace('X', "tools/call");
        let name = padded.replace('X', "add");
        for (text, key) in [
            (format!(r#""method":"{method}""#), "method"),
            (
                format!(r#""method":"tools/call","params":{{"name":"{name}"}}"#),
                "name",
            ),
            (
                format!(r#""method":"prompts/get","params":{{"name":"{name}"}}"#),
                "name",
            ),
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,{text}}}"#);
            match client(&text) {
                Err(EnvelopeError::Padded(found)) => assert_eq!(found, key),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
    for good in ["vendor/Do it", "größe", "tools/calls"] {
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{good}","params":{{"name":" x"}}}}"#);
        assert!(client(&text).is_ok(), "{text}");
    }
}

#[test]
fn refusals_name_their_reason() {
    let refused = |text: &str| client(text).unwrap_err().to_string();
    assert_eq!(refused(" [1]"), EnvelopeError::Batch.to_string());
    assert_eq!(refused("[1"), "the body is not JSON");
    assert_eq!(refused("null"), EnvelopeError::NotAnObject.to_string());
    assert_eq!(refused("{} {}"), "the body is not JSON");
    assert_eq!(
        refused(r#"{"id":1,"method":"a"}"#),
        EnvelopeError::Version.to_string()
    );
    for (member, error) in [
        (r#""id":1,"method":7"#, EnvelopeError::MethodType),
        (
            r#""id":1,"method":"a","params":"p""#,
            EnvelopeError::ParamsType,
        ),
        (
            r#""method":"tools/call","params":{"name":"wipe"}"#,
            EnvelopeError::RequestWithoutId("tools/call"),
        ),
        (r#""id":1,"method":"a","result":{}"#, EnvelopeError::Shape),
        (r#""id":1"#, EnvelopeError::Shape),
        (r#""result":{}"#, EnvelopeError::Shape),
        (r#""id":1,"result":{},"error":{}"#, EnvelopeError::Shape),
    ] {
        let text = format!(r#"{{"jsonrpc":"2.0",{member}}}"#);
        assert_eq!(refused(&text), error.to_string(), "{text}");
    }
}

#[test]
fn deep_nesting_is_refused_and_costs_no_stack() {
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{{"x":{open}{close}}}}}"#)
    };
    assert!(client(&nested(NESTING_MAX - 2)).is_ok());
    for depth in [NESTING_MAX - 1, 1_000_000] {
        assert!(matches!(
            client(&nested(depth)),
            Err(EnvelopeError::Nesting)
        ));
    }
    let deep = nested(1_000_000);
    assert_eq!(upstream(&deep).unwrap().kind(), Kind::Request);
    assert!(matches!(
        client(&"[".repeat(1_000_000)),
        Err(EnvelopeError::Nesting)
    ));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Message::parse(&body, Sender::Client);
        let _ = Message::parse(&body, Sender::Upstream);
    }

    #[test]
    fn fields_are_found_in_any_surroundings(
        mut members in other_members(),
        order in any::<prop::sample::Index>(),
        arguments in json(),
        space in space(),
    ) {
        let at = order.index(members.len() + 1);
        let params = format!(r#"{{"arguments":{arguments},"name":"t"}}"#);
        for (key, value) in [("method", "\"tools/call\""), ("params", &params), ("id", "7"), ("jsonrpc", "\"2.0\"")] {
            members.insert(at, (format!("\"{key}\""), value.to_owned()));
        }
        let text = object_of(&members, space);
        let message = client(&text).unwrap();
        prop_assert_eq!(message.kind(), Kind::Request);
        prop_assert_eq!(message.id().unwrap().as_json(), "7");
        prop_assert_eq!(message.params.name().unwrap(), "t");
        prop_assert_eq!(message.raw_params(), Some(params.as_str()));
    }
}
