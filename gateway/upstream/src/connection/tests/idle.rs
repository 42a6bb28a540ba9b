//! Servers that are stopped because they are idle: what counts as a use, and what their clients notice.

use super::*;

const LIMIT: Duration = Duration::from_secs(60);

/// Lets the limit pass, and has the server stopped if nothing used it meanwhile.
async fn is_stopped_after_limit(bench: &Bench) -> bool {
    tokio::time::advance(LIMIT).await;
    bench.connection.stop_if_idle(LIMIT).await
}

#[tokio::test(start_paused = true)]
async fn a_server_that_a_request_waits_for_is_not_idle() {
    let mut bench = older().await;
    let mut call = bench.call(&tools_call(1)).await;
    assert!(!is_stopped_after_limit(&bench).await);
    assert_eq!(bench.connection.activity(), Activity::Busy);
    bench.says(&result(1)).await;
    assert_eq!(call.rest().await.len(), 1);
    assert!(!bench.connection.stop_if_idle(LIMIT).await, "used just now");

    let mut stream = bench.listen(None).await;
    bench
        .says(r#"{"id":1,"method":"elicitation/create","params":{}}"#)
        .await;
    assert_eq!(stream.data().await["method"], "elicitation/create");
    tokio::time::advance(LIMIT / 2).await;
    assert!(!bench.connection.stop_if_idle(LIMIT / 2).await, "it asks");
    bench.post(r#"{"id":1,"result":{}}"#).await;
    assert_eq!(bench.sent().await["id"], 1);
    assert!(is_stopped_after_limit(&bench).await);
    assert!(bench.transport_end.stop.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn what_is_said_on_a_stream_that_is_read_is_a_use_and_pings_are_none() {
    let mut bench = older().await;
    let told = r#"{"method":"notifications/tools/list_changed"}"#;
    let mut stream = bench.listen(None).await;
    tokio::time::advance(LIMIT).await;
    bench.says(told).await;
    stream.data().await;
    assert!(!bench.connection.stop_if_idle(LIMIT).await);
    drop(stream);

    tokio::time::advance(LIMIT).await;
    bench.says(told).await;
    bench.is_heard().await;
    let mut ping = bench
        .call(r#"{"jsonrpc":"2.0","id":"c:1","method":"ping"}"#)
        .await;
    bench.says(r#"{"id":"c:1","result":{}}"#).await;
    ping.rest().await;
    // The answer is one; nobody hears the rest, and a stream that is only open says nothing.
    assert!(!bench.connection.stop_if_idle(LIMIT).await);
    let _silent = bench.listen(None).await;
    assert!(is_stopped_after_limit(&bench).await);
}

#[tokio::test(start_paused = true)]
async fn a_client_keeps_its_streams_and_its_session_when_its_server_was_stopped() {
    let mut bench = older().await;
    let mut stream = bench.listen(None).await;
    let mut call = bench.call(&tools_call(1)).await;
    bench.says(&result(1)).await;
    let answer = call.next().await.unwrap();
    assert!(is_stopped_after_limit(&bench).await);
    assert!(!bench.connection.stop_if_idle(LIMIT).await, "only once");
    assert_eq!(bench.connection.activity(), Activity::Stopped);
    assert_eq!(bench.connection.end(), None);

    let ping = r#"{"jsonrpc":"2.0","id":"c:2","method":"ping"}"#;
    let mut pong = Stream::of(bench.post(ping).await);
    let empty = json!({"jsonrpc": "2.0", "id": "c:2", "result": {}});
    assert_eq!(pong.rest().await, [empty]);
    for message in [tools_call(3), r#"{"method":"notifications/x"}"#.to_owned()] {
        let refused = bench.connection.serve(&post(&message)).await;
        assert!(matches!(refused, Err(SendError::Ended(_))), "{refused:?}");
    }
    // What it had is resumed, and its stream is opened again where a proxy cut it.
    let resumed = bench.listen(answer.id.as_deref()).await.rest().await;
    assert!(resumed.is_empty(), "it had the answer: {resumed:?}");
    let waits = tokio::time::timeout(LIMIT, stream.next()).await;
    assert!(waits.is_err(), "the stream is open: {waits:?}");
    drop(stream);
    let mut stream = bench.listen(None).await;
    bench.connection.close();
    assert!(stream.try_next().await.unwrap().is_err());
}
