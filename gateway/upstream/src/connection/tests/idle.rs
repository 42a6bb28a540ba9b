//! Idle stops: what counts as a use, and what clients notice.

use super::*;

const LIMIT: Duration = Duration::from_secs(60);

/// Waits for the limit and stops the server if it was unused.
async fn is_stopped_after_limit(bench: &Bench) -> bool {
    tokio::time::advance(LIMIT).await;
    is_stopped(&bench.connection, LIMIT).await
}

async fn is_stopped(connection: &Connection, limit: Duration) -> bool {
    let limits = IdleLimits::all(limit);
    connection.stop_if_idle(limits).await.is_some()
}

/// A client that has called the server, and listens or not, from the last limit on.
async fn called(is_listening: bool) -> (Bench, Option<Stream>) {
    let mut bench = older().await;
    let stream = bench.listen(None).await;
    let mut call = bench.call(&tools_call(1)).await;
    bench.server_sends(&result(1)).await;
    call.rest().await;
    tokio::time::advance(LIMIT).await;
    bench.wait_processed().await;
    (bench, is_listening.then_some(stream))
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_left_keeps_its_server_for_less_long() {
    let limits = IdleLimits::of(LIMIT);
    let (bench, _listening) = called(true).await;
    tokio::time::advance(LIMIT - limits.left).await;
    assert_eq!(
        bench.connection.stop_if_idle(limits).await,
        Some(StoppedServer::Used),
        "its time is over"
    );

    let (bench, _) = called(false).await;
    assert_eq!(bench.connection.stop_if_idle(limits).await, None);
    tokio::time::advance(limits.left).await;
    let stopped = bench.connection.stop_if_idle(limits).await;
    assert_eq!(stopped, Some(StoppedServer::Used));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_nobody_called_goes_soon_unless_its_client_listens() {
    let limits = IdleLimits::of(LIMIT);
    let bench = older().await;
    let stream = bench.listen(None).await;
    tokio::time::advance(limits.unused).await;
    assert_eq!(bench.connection.stop_if_idle(limits).await, None);
    drop(stream);
    tokio::time::advance(limits.unused).await;
    let stopped = bench.connection.stop_if_idle(limits).await;
    assert_eq!(stopped, Some(StoppedServer::Unused));
}

#[tokio::test(start_paused = true)]
async fn a_server_with_an_open_request_is_not_idle() {
    let mut bench = older().await;
    let mut call = bench.call(&tools_call(1)).await;
    assert!(!is_stopped_after_limit(&bench).await);
    assert_eq!(bench.connection.activity(), Activity::Busy);
    bench.server_sends(&result(1)).await;
    assert_eq!(call.rest().await.len(), 1);
    assert!(!is_stopped(&bench.connection, LIMIT).await, "used just now");

    let mut stream = bench.listen(None).await;
    bench
        .server_sends(r#"{"id":1,"method":"elicitation/create","params":{}}"#)
        .await;
    assert_eq!(stream.data().await["method"], "elicitation/create");
    tokio::time::advance(LIMIT / 2).await;
    assert!(!is_stopped(&bench.connection, LIMIT / 2).await, "it asks");
    bench.post(r#"{"id":1,"result":{}}"#).await;
    assert_eq!(bench.server_receives().await["id"], 1);
    assert!(is_stopped_after_limit(&bench).await);
    assert!(bench.transport_end.stop.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn messages_on_a_read_stream_are_uses_and_pings_are_not() {
    let mut bench = older().await;
    let notification = r#"{"method":"notifications/tools/list_changed"}"#;
    let mut stream = bench.listen(None).await;
    tokio::time::advance(LIMIT).await;
    bench.server_sends(notification).await;
    stream.data().await;
    assert!(!is_stopped(&bench.connection, LIMIT).await);
    drop(stream);

    tokio::time::advance(LIMIT).await;
    bench.server_sends(notification).await;
    bench.wait_processed().await;
    let mut ping = bench
        .call(r#"{"jsonrpc":"2.0","id":"c:0000000000000000000000000000000a:1","method":"ping"}"#)
        .await;
    bench
        .server_sends(r#"{"id":"c:0000000000000000000000000000000a:1","result":{}}"#)
        .await;
    ping.rest().await;
    // The answer is a use; unread messages and an open, silent stream are not.
    assert!(!is_stopped(&bench.connection, LIMIT).await);
    let _silent = bench.listen(None).await;
    assert!(is_stopped_after_limit(&bench).await);
}

#[tokio::test(start_paused = true)]
async fn an_idle_stop_keeps_the_clients_streams_and_session() {
    let mut bench = older().await;
    let mut stream = bench.listen(None).await;
    let mut call = bench.call(&tools_call(1)).await;
    bench.server_sends(&result(1)).await;
    let answer = call.next().await.unwrap();
    assert!(is_stopped_after_limit(&bench).await);
    assert!(!is_stopped(&bench.connection, LIMIT).await, "only once");
    assert_eq!(bench.connection.activity(), Activity::Stopped);
    assert_eq!(bench.connection.end(), None);

    let ping = r#"{"jsonrpc":"2.0","id":"c:0000000000000000000000000000000a:2","method":"ping"}"#;
    let mut pong = Stream::of(bench.post(ping).await);
    let empty =
        json!({"jsonrpc": "2.0", "id": "c:0000000000000000000000000000000a:2", "result": {}});
    assert_eq!(pong.rest().await, [empty]);
    for message in [tools_call(3), r#"{"method":"notifications/x"}"#.to_owned()] {
        let refused = bench.connection.serve(&post(&message)).await;
        assert!(matches!(refused, Err(SendError::Ended(_))), "{refused:?}");
    }
    // The answer's stream can be resumed, and the general stream reopened after a proxy cut it.
    let resumed = bench.listen(answer.id.as_deref()).await.rest().await;
    assert!(resumed.is_empty(), "it had the answer: {resumed:?}");
    let waits = tokio::time::timeout(LIMIT, stream.next()).await;
    assert!(waits.is_err(), "the stream is open: {waits:?}");
    drop(stream);
    let mut stream = bench.listen(None).await;
    bench.connection.close();
    assert!(stream.try_next().await.unwrap().is_err());
}
