#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]
use proptest::prelude::*;

use super::*;
use crate::envelope::Sender;

fn message(text: &str) -> Message<'_> {
    Message::parse(text.as_bytes(), Sender::Client).unwrap()
}

fn request(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
}

/// The examples of 2026-07-28, transports, "Value Encoding".
#[test]
fn header_values_are_those_of_the_specification() {
    for (text, value) in [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ] {
        assert_eq!(encode_mirrored(text).unwrap(), value);
        assert_eq!(decode_mirrored(value.as_bytes()).unwrap(), text);
    }
    assert_eq!(decode_mirrored(b" \ttools/call ").unwrap(), "tools/call");
    for invalid in [
        &b"caf\xc3\xa9"[..],
        b"\xff",
        b"a\nb",
        b"=?base64?%%?=",
        b"=?base64?/w==?=",
    ] {
        assert_eq!(decode_mirrored(invalid), None, "{invalid:?}");
    }
    // The markers are case-sensitive, and half of them is none.
    for plain in ["=?BASE64?YQ==?=", "=?base64?YQ==", "=?base64?="] {
        assert_eq!(decode_mirrored(plain.as_bytes()).unwrap(), plain);
    }
}

proptest! {
    #[test]
    fn every_text_survives_its_header(text in "\\PC*|[ -~]*|.*") {
        let value = encode_mirrored(&text).unwrap();
        prop_assert_eq!(decode_mirrored(value.as_bytes()).unwrap(), text);
    }

    #[test]
    fn no_header_makes_decoding_panic(value in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = decode_mirrored(&value);
    }
}

#[test]
fn a_header_repeats_the_field_of_its_method() {
    for (method, params, name) in [
        ("tools/call", r#"{"name":"a","uri":"u"}"#, Some(Some("a"))),
        ("prompts/get", r#"{"name":"a"}"#, Some(Some("a"))),
        (
            "resources/read",
            r#"{"name":"a","uri":"u:1"}"#,
            Some(Some("u:1")),
        ),
        ("tasks/get", r#"{"taskId":"t"}"#, Some(Some("t"))),
        ("tools/call", "{}", Some(None)),
        ("tools/list", r#"{"name":"a"}"#, None),
        ("vendor/call", r#"{"name":"a"}"#, None),
    ] {
        let text = request(method, params);
        let found = mirrored_name(&message(&text));
        let expected = name.map(|name| name.map(Cow::Borrowed));
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn capabilities_are_an_object() {
    for (meta, declared) in [
        (
            r#"{"io.modelcontextprotocol/clientCapabilities":{"roots":{}}}"#,
            true,
        ),
        (r#"{"io.modelcontextprotocol/clientCapabilities":{}}"#, true),
        (
            r#"{"io.modelcontextprotocol/clientCapabilities":null}"#,
            false,
        ),
        (
            r#"{"io.modelcontextprotocol/clientCapabilities":[]}"#,
            false,
        ),
        ("{}", false),
        ("7", false),
    ] {
        let text = request("tools/list", &format!(r#"{{"_meta":{meta}}}"#));
        assert_eq!(declares_capabilities(&message(&text)), declared, "{meta}");
    }
    assert!(!declares_capabilities(&message(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#
    )));
}

#[test]
fn only_the_state_and_the_task_of_a_message_change() {
    let text = request(
        "tools/call",
        r#"{"name":"x", "requestState" : "a\n" ,"n":1.0}"#,
    );
    assert_eq!(returned_state(&message(&text)).unwrap(), "a\n");
    let changed = with_returned_state(&message(&text), "b\"").unwrap();
    assert_eq!(changed, text.replace(r#""a\n""#, r#""b\"""#));
    let odd = request("tools/call", r#"{"requestState":7}"#);
    assert_eq!(returned_state(&message(&odd)).unwrap(), "");

    let text = request("tasks/get", r#"{ "taskId":"sealed" }"#);
    let changed = with_task_id(&message(&text), "t").unwrap();
    assert_eq!(changed, text.replace("sealed", "t"));
    let twice = request("tasks/get", r#"{"taskId":"a","taskId":"b"}"#);
    assert_eq!(task_id(&message(&twice)), None);
}

#[test]
fn what_a_result_says_is_changed_in_place() {
    let text = concat!(
        r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"task", "taskId" : "t","cacheScope":"public","#,
        r#""supportedVersions":["2026-07-28","2099-01-01"],"requestState":"s","x":1.0e0}}"#
    );
    let message = Message::parse(text.as_bytes(), Sender::Upstream).unwrap();
    let fields = ResultFields::of(&message).unwrap();
    let mut changes = ResultChanges::default();
    let (raw, state) = fields.request_state.clone().unwrap();
    assert_eq!(state, "s");
    changes.replace(&message, raw, "S");
    changes.replace(&message, fields.task_id.clone().unwrap().0, "T");
    changes.make_private(&message, &fields);
    changes.limit_versions(&message, &fields, |name| name == "2026-07-28");
    let expected = concat!(
        r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"task", "taskId" : "T","cacheScope":"private","#,
        r#""supportedVersions":["2026-07-28"],"requestState":"S","x":1.0e0}}"#
    );
    assert_eq!(changes.apply(&message).unwrap(), expected);
    assert_eq!(ResultChanges::default().apply(&message), None);
}

#[test]
fn a_subscription_has_the_id_that_its_client_knows() {
    let notification = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
        )
    };
    let rewritten = r#""c:0000000000000000000000000000000a:\"l\"""#;
    let text = notification(rewritten);
    let restored = Message::parse(text.as_bytes(), Sender::Upstream);
    assert_eq!(
        with_client_subscription(&restored.unwrap()).unwrap(),
        notification(r#""l""#)
    );
    let foreign = notification("7");
    let foreign = Message::parse(foreign.as_bytes(), Sender::Upstream).unwrap();
    assert_eq!(with_client_subscription(&foreign), None);
}

#[test]
fn the_tasks_of_a_subscription_are_replaced() {
    let text = request(
        "subscriptions/listen",
        r#"{"notifications":{"taskIds":["a","b"],"x":1}}"#,
    );
    assert_eq!(listened_tasks(&message(&text)), ["a", "b"]);
    let changed = with_listened_tasks(&message(&text), &["c"]).unwrap();
    assert_eq!(changed, text.replace(r#"["a","b"]"#, r#"["c"]"#));
    let without = request("subscriptions/listen", r#"{"notifications":{}}"#);
    assert!(listened_tasks(&message(&without)).is_empty());
    assert_eq!(with_listened_tasks(&message(&without), &["c"]), None);
}

#[test]
fn a_state_or_task_that_another_parser_could_find_is_refused() {
    let ambiguous = |key| Some(BoundFieldError::Ambiguous(key));
    for (params, refusal) in [
        (r#"{"requestState":"a","taskId":"b","n":1}"#, None),
        (r#"{"notifications":{"taskIds":["a","b"]}}"#, None),
        (r#"{"notifications":{"taskIds":null}}"#, None),
        (r#"{"notifications":{}}"#, None),
        (r#"{"arguments":{"TaskId":1,"requeststate":2}}"#, None),
        (
            r#"{"requestState":"a","requestState":"b"}"#,
            ambiguous("requestState"),
        ),
        (r#"{"requeststate":"a"}"#, ambiguous("requestState")),
        (r#"{"taskId":"a","task\u0049d":"b"}"#, ambiguous("taskId")),
        (r#"{"TaskID":"a"}"#, ambiguous("taskId")),
        (
            r#"{"notifications":{},"notifications":{}}"#,
            ambiguous("notifications"),
        ),
        (
            r#"{"Notifications":{"taskIds":["a"]}}"#,
            ambiguous("notifications"),
        ),
        (
            r#"{"notifications":{"taskids":["a"]}}"#,
            ambiguous("taskIds"),
        ),
        (
            r#"{"notifications":{"taskIds":[],"taskIds":["a"]}}"#,
            ambiguous("taskIds"),
        ),
        (r#"{"requestState":7}"#, Some(BoundFieldError::State)),
        (
            r#"{"notifications":{"taskIds":["task-17",1]}}"#,
            Some(BoundFieldError::TaskList),
        ),
        (
            r#"{"notifications":{"taskIds":"task-17"}}"#,
            Some(BoundFieldError::TaskList),
        ),
        (
            r#"{"notifications":{"taskIds":["\ud800"]}}"#,
            Some(BoundFieldError::TaskList),
        ),
    ] {
        let text = request("subscriptions/listen", params);
        assert_eq!(
            check_bound_fields(&message(&text)).err(),
            refusal,
            "{params}"
        );
    }
}

#[test]
fn the_result_of_a_task_is_replaced_in_place() {
    for (text, outcome) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{"taskId":"t", "result" : {"content":[]}}}"#,
            Ok(Some(r#"{"content":[]}"#)),
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t","result":{"a":1}}}"#,
            Ok(Some(r#"{"a":1}"#)),
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"result":{"a":1}}}"#,
            Ok(None),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#,
            Ok(None),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{"result":{},"Result":{}}}"#,
            Err(BoundFieldError::Ambiguous("result")),
        ),
    ] {
        let message = Message::parse(text.as_bytes(), Sender::Upstream).unwrap();
        let found = task_outcome(&message);
        assert_eq!(found, outcome, "{text}");
        if let Ok(Some(raw)) = found {
            let changed = with_task_outcome(&message, raw, "7").unwrap();
            assert_eq!(changed, text.replace(raw, "7"));
        }
    }
}

#[test]
fn a_complete_result_says_so() {
    assert_eq!(complete_result("{}", None), r#"{"resultType":"complete"}"#);
    assert_eq!(
        complete_result(r#"{"tools":[]}"#, Some(5)),
        r#"{"resultType":"complete","ttlMs":5,"cacheScope":"private","tools":[]}"#
    );
}
