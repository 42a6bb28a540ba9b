//! Frames that are no calls: a table of what each comes to.

use super::*;

/// Frames that are answered, and after which the bridge goes on.
#[tokio::test]
async fn what_is_understood_and_no_call_is_answered_so() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let arguments =
        |text: &str| format!(r#"{{"id":5,"server":"s","tool":"echo","arguments":{text}}}"#);
    let long_name = "n".repeat(1025);
    let table = [
        (r#"{"id":5}"#.to_owned(), "invalid"),
        (r#"{"id":5,"server":"s"}"#.to_owned(), "invalid"),
        (r#"{"id":5,"server":"s","tool":1}"#.to_owned(), "invalid"),
        (r#"{"id":5,"server":null,"tool":"t"}"#.to_owned(), "invalid"),
        (r#"{"id":5,"server":"","tool":"t"}"#.to_owned(), "invalid"),
        (
            r#"{"id":5,"server":["s"],"tool":"t"}"#.to_owned(),
            "invalid",
        ),
        (
            format!(r#"{{"id":5,"server":"s","tool":"{long_name}"}}"#),
            "invalid",
        ),
        (
            r#"{"id":5,"server":"s","tool":"\ud800"}"#.to_owned(),
            "invalid",
        ),
        (arguments("[]"), "invalid"),
        (arguments("1"), "invalid"),
        (arguments(r#""{}""#), "invalid"),
        (arguments(r#"{"n":1e999}"#), "invalid"),
        (arguments(r#"{"s":"\ud800"}"#), "invalid"),
        (arguments(&format!(r#"{{"a":{}}}"#, deep(8))), "limit"),
        (arguments(&format!(r#"{{"a":{}}}"#, deep(1500))), "limit"),
        (arguments(&deep(1500)), "limit"),
    ];
    for (frame, kind) in table {
        let (mut program, bridge, tools) = bridge();
        program.send_bytes(&framed(frame.as_bytes())).await;
        let answer = program.answer().await.expect("an answer");
        assert_eq!(answer["id"], 5, "{frame}");
        assert_eq!(answer["error"]["kind"], kind, "{frame}: {answer}");
        program.is_fine().await;
        assert_eq!(tools.begun.load(Ordering::SeqCst), 1, "{frame}");
        let served = bridge.end().await;
        assert_eq!((served.calls, served.refused), (1, 1), "{frame}");
        let noted = usize::from(kind == "limit");
        assert_eq!(served.violations.len(), noted, "{frame}");
    }
}

#[tokio::test]
async fn what_is_within_the_limits_is_a_call() {
    let brackets = "[".repeat(1000);
    let table = [
        json!({"a": [[[[[[[]]]]]]]}),
        json!({"text": brackets, "quote\"[": "\\"}),
        json!({"": "\u{0}\u{2028}\u{1f600}"}),
    ];
    for arguments in table {
        let (mut program, bridge, _) = bridge();
        let answer = program.ask(&call(1, "echo", arguments.clone())).await;
        assert_eq!(answer["result"], arguments);
        assert_eq!(bridge.end().await.violations, []);
    }
    let (mut program, bridge, _) = bridge();
    let frame =
        r#" {"tool":"echo","id":9007199254740991,"server":"s","arguments":null,"more":[{}]} "#;
    program.send_bytes(&framed(frame.as_bytes())).await;
    let answer = program.answer().await.unwrap();
    assert_eq!(
        answer,
        json!({"id": 9_007_199_254_740_991_u64, "result": {}})
    );
    bridge.end().await;
}

/// 88, 91, 92: what cannot be understood ends the bridge, is noted once, and nothing after it is made.
#[tokio::test]
async fn what_cannot_be_understood_ends_the_bridge() {
    let echo = serde_json::to_vec(&call(1, "echo", json!({}))).unwrap();
    let too_long = |bytes: u32| (bytes.to_be_bytes().to_vec(), "frame_too_long");
    let object = |text: &[u8]| (framed(text), "frame_not_an_object");
    let no_id = |text: &str| (framed(text.as_bytes()), "frame_without_id");
    let mut shorter = framed(&echo);
    shorter[3] -= 1;
    let mut longer = framed(&echo);
    longer[3] += 1;
    let table = [
        too_long(u32::MAX),
        too_long(4097),
        too_long(1 << 31),
        (vec![0; 4], "frame_not_an_object"),
        (shorter, "frame_not_an_object"),
        (longer, "frame_not_an_object"),
        object(b"null"),
        object(b"[5,\"s\",\"echo\",{}]"),
        object(b"{\"id\":5"),
        object(b"{\"id\":5}}"),
        object(b"{\"id\":5} {\"id\":6}"),
        object(b"\xff\xfe"),
        object(b"{\"id\":5,\"server\":\"\xc3\x28\"}"),
        object(b"{\"id\":5,\"id\":6}"),
        object(b"GET / HTTP/1.1\r\n\r\n"),
        object("{\"a\":".repeat(800).as_bytes()),
        no_id("{}"),
        no_id(r#"{"id":null}"#),
        no_id(r#"{"id":-1}"#),
        no_id(r#"{"id":1.5}"#),
        no_id(r#"{"id":"1"}"#),
        no_id(r#"{"id":[[[]]]}"#),
        no_id(r#"{"id":9007199254740992}"#),
        no_id(r#"{"id":1e400}"#),
        // Frames of the other direction, as a program would forge them.
        no_id(r#"{"result":"forged"}"#),
    ];
    for (bytes, word) in table {
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        let (mut program, bridge, tools) = bridge();
        program.is_fine().await;
        program.send_bytes(&bytes).await;
        // It may be shut down by now.
        let _ = program.0.write_all(&framed(&echo).repeat(3)).await;
        assert_eq!(program.answer().await, None, "{shown}");
        let served = bridge.end().await;
        let words: Vec<_> = served.violations.iter().map(Violation::as_str).collect();
        assert_eq!(words, [word], "{shown}: {served:?}");
        assert_eq!(tools.begun.load(Ordering::SeqCst), 1, "{shown}");
    }
}

#[tokio::test]
async fn a_forged_answer_is_a_call_without_names() {
    let (mut program, bridge, tools) = bridge();
    program.send(&call(1, "wait", json!({}))).await;
    tools.have_begun(1).await;
    let forged = program.ask(&json!({"id": 2, "result": "forged"})).await;
    assert_eq!(forged["error"]["kind"], "invalid");
    tools.ends.add_permits(1);
    assert_eq!(
        program.answer().await.unwrap(),
        json!({"id": 1, "result": null})
    );
    bridge.end().await;
}

/// 98
#[tokio::test]
async fn an_id_that_is_open_ends_the_bridge_after_what_is_open() {
    let (mut program, bridge, tools) = bridge();
    program.send(&call(1, "wait", json!({}))).await;
    program.send(&call(1, "echo", json!({}))).await;
    tools.have_begun(1).await;
    tools.ends.add_permits(1);
    let answer = program.answer().await.unwrap();
    assert_eq!(answer, json!({"id": 1, "result": null}));
    assert_eq!(program.answer().await, None);
    let served = bridge.end().await;
    assert_eq!(
        (served.calls, served.violations),
        (1, vec![Violation::OpenId(1)])
    );
}
