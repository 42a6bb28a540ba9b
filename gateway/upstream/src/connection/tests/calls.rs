//! Requests, their messages and their answers.

use super::*;

#[tokio::test]
async fn a_stream_carries_its_requests_messages_and_ends_with_the_answer() {
    let mut bench = older().await;
    let mut one = bench.call(&tools_call(1)).await;
    let mut two = bench.call(&tools_call(2)).await;
    let progress = r#"{"method":"notifications/progress","params":{"progressToken":"c:0000000000000000000000000000000a:1","progress":1}}"#;
    bench.server_sends(progress).await;
    bench.server_sends(&result(2)).await;
    // The server escapes the id differently.
    bench
        .server_sends(r#"{"id":"\u0063:0000000000000000000000000000000a:1","result":{"x": 1.0}}"#)
        .await;
    assert_eq!(
        two.rest().await,
        [json!({"jsonrpc":"2.0","id":"c:0000000000000000000000000000000a:2","result":{"of":2}})]
    );
    assert_eq!(one.data().await["method"], "notifications/progress");
    let answer = one.next().await.unwrap();
    assert_eq!(
        answer.data,
        json!({"id":"c:0000000000000000000000000000000a:1","result":{"x":1.0}})
    );
    let id = EventId::parse(&answer.id.unwrap()).unwrap();
    assert_eq!(
        (id.epoch, id.stream.request().unwrap().1.as_json()),
        (7, "1")
    );
    assert_eq!(one.next().await, None);
}

#[tokio::test]
async fn messages_without_an_answer_are_forwarded_unchanged() {
    let mut bench = older().await;
    let text = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;
    let reply = bench.post(text).await;
    assert_eq!(reply.status, StatusCode::ACCEPTED);
    assert!(matches!(reply.body, ReplyBody::Empty));
    assert_eq!(
        &bench.transport_end.outgoing.recv().await.unwrap()[..],
        text.as_bytes()
    );
}

#[tokio::test]
async fn a_duplicate_id_is_refused_and_the_first_request_is_unaffected() {
    let mut bench = older().await;
    let mut first = bench.call(&tools_call(1)).await;
    let reply = bench.post(&tools_call(1)).await;
    assert_eq!(reply.status, StatusCode::OK);
    let error = json_of(reply).await;
    assert_eq!(
        (&error["id"], &error["error"]["code"]),
        (
            &json!("c:0000000000000000000000000000000a:1"),
            &json!(-32600)
        )
    );
    bench.server_sends(&result(1)).await;
    assert_eq!(first.rest().await.len(), 1);
    assert!(bench.server_receives_nothing().await);
    // Once it is answered, the id is free.
    let mut again = bench.call(&tools_call(1)).await;
    bench.server_sends(&result(1)).await;
    assert_eq!(again.rest().await.len(), 1);
}

#[tokio::test]
async fn long_ids_are_carried_but_not_in_event_ids() {
    let mut bench = older().await;
    let id = format!(
        r#""c:0000000000000000000000000000000a:\"{}\"""#,
        "\\\\u0041".repeat(170)
    );
    assert!(id.len() > 1024);
    let mut stream = bench
        .call(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#
        ))
        .await;
    bench
        .server_sends(&format!(r#"{{"id":{id},"result":{{}}}}"#))
        .await;
    assert_eq!(stream.next().await.unwrap().id, None);
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn streams_are_primed_for_the_negotiated_revision() {
    let mut bench = bench(options(), ALL, NEWER).await;
    let mut stream = bench.call(&tools_call(1)).await;
    let primed = stream.next().await.unwrap();
    assert_eq!(primed.data, Value::Null);
    assert!(EventId::parse(&primed.id.unwrap()).is_some());
    // The gateway's own requests are not resumed.
    let mut own = bench
        .call(r#"{"jsonrpc":"2.0","id":"boot:1","method":"tools/list"}"#)
        .await;
    bench.server_sends(r#"{"id":"boot:1","result":{}}"#).await;
    let answer = own.next().await.unwrap();
    assert_eq!(
        (answer.id, answer.data["id"].as_str()),
        (None, Some("boot:1"))
    );
    assert_eq!(bench.listen(None).await.data().await, Value::Null);
}

#[tokio::test]
async fn open_calls_are_counted() {
    let mut bench = older().await;
    assert_eq!(bench.connection.calls_open(), 0);
    let _one = bench.call(&tools_call(1)).await;
    let two = bench.call(&tools_call(2)).await;
    let _own = bench
        .call(r#"{"jsonrpc":"2.0","id":"boot:1","method":"ping"}"#)
        .await;
    bench.wait_processed().await;
    assert_eq!(bench.connection.calls_open(), 2);
    // A disconnect is no cancellation.
    drop(two);
    bench.wait_processed().await;
    assert_eq!(bench.connection.calls_open(), 2);
    bench.server_sends(&result(1)).await;
    bench.server_sends(&result(2)).await;
    bench.connection.idle().await;
    assert_eq!(bench.connection.calls_open(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_without_an_answer_ends_its_stream() {
    let mut bench = older().await;
    let mut stream = bench.call(&tools_call(1)).await;
    let cancelled = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c:0000000000000000000000000000000a:1"}}"#;
    bench.post(cancelled).await;
    assert_eq!(
        bench.server_receives().await["method"],
        "notifications/cancelled"
    );
    bench.connection.idle().await;
    assert_eq!(stream.next().await, None);
    // A late answer is dropped, and the id can be reused.
    bench.server_sends(&result(1)).await;
    bench.wait_processed().await;
    let mut again = bench.call(&tools_call(1)).await;
    bench.server_sends(&result(1)).await;
    assert_eq!(again.rest().await.len(), 1);
}

#[tokio::test]
async fn an_answer_after_the_cancellation_is_delivered() {
    let mut bench = older().await;
    let mut stream = bench.call(&tools_call(1)).await;
    bench
        .post(r#"{"method":"notifications/cancelled","params":{"requestId":"c:0000000000000000000000000000000a:1"}}"#)
        .await;
    bench.server_sends(&result(1)).await;
    assert_eq!(stream.rest().await.len(), 1);
}

#[tokio::test]
async fn invalid_server_messages_are_dropped() {
    let mut bench = older().await;
    let mut stream = bench.call(&tools_call(1)).await;
    for nonsense in [
        "",
        "{",
        "7",
        "\u{feff}",
        "[]",
        "[[]]",
        r#"[1,{"id":"c:0000000000000000000000000000000a:1"},null]"#,
        r#"{"id":"c:0000000000000000000000000000000a:1"}"#,
        r#"{"id":"c:0000000000000000000000000000000a:9","result":{}}"#,
        r#"{"id":null,"error":{"code":-32700,"message":"?"}}"#,
        r#"{"id":{"c":1},"result":{}}"#,
        r#"{"id":"boot:0","result":{}}"#,
        r#"{"method":"notifications/progress"}"#,
        r#"{"method":"notifications/progress","params":{"progressToken":[]}}"#,
        r#"{"method":"notifications/cancelled","params":{"requestId":"c:0000000000000000000000000000000a:1"}}"#,
    ] {
        bench.server_sends(nonsense).await;
    }
    bench
        .transport_end
        .incoming
        .send(Bytes::from_static(b"\xff"))
        .await
        .unwrap();
    bench.server_sends(&result(1)).await;
    bench.server_sends(&result(1)).await;
    assert_eq!(stream.rest().await.len(), 1);
    bench.wait_processed().await;
}

#[tokio::test]
async fn a_batch_is_split() {
    let mut bench = older().await;
    let mut one = bench.call(&tools_call(1)).await;
    let mut two = bench.call(&tools_call(2)).await;
    let ping = r#"{"id":5,"method":"ping"}"#;
    bench
        .server_sends(&format!("[{}, {ping} ,7,{}]", result(2), result(1)))
        .await;
    assert_eq!(
        one.data().await["id"],
        "c:0000000000000000000000000000000a:1"
    );
    assert_eq!(
        two.data().await["id"],
        "c:0000000000000000000000000000000a:2"
    );
    assert_eq!(bench.server_receives().await["id"], 5);
}

#[tokio::test]
async fn an_oversized_answer_becomes_an_error() {
    let mut options = options();
    options.message_bytes_max = 1000;
    let mut bench = bench(options, ALL, OLDER).await;
    let mut stream = bench.call(&tools_call(1)).await;
    let long = "x".repeat(1000);
    bench
        .server_sends(&format!(
            r#"{{"method":"notifications/message","params":"{long}"}}"#
        ))
        .await;
    bench
        .server_sends(&format!(
            r#"{{"method":"notifications/message","params":{{"data":"{long}"}}}}"#
        ))
        .await;
    bench
        .server_sends(&format!(
            r#"{{"id":"c:0000000000000000000000000000000a:1","result":{{"x":"{long}"}}}}"#
        ))
        .await;
    let rest = stream.rest().await;
    assert_eq!(rest.len(), 1);
    assert_eq!(
        (&rest[0]["id"], &rest[0]["error"]["code"]),
        (
            &json!("c:0000000000000000000000000000000a:1"),
            &json!(-32011)
        )
    );
}
