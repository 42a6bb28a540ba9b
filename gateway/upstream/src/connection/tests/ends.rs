//! How connections end, and what pending callers get.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use super::*;

#[tokio::test]
async fn an_in_flight_call_breaks_with_the_link_after_earlier_events() {
    let mut bench = older().await;
    let mut stream = bench.call(&tools_call(1)).await;
    bench
        .server_sends(r#"{"method":"notifications/progress","params":{"progressToken":"c:0000000000000000000000000000000a:1"}}"#)
        .await;
    bench
        .transport_end
        .ending
        .set(LinkEnd::Exited(ExitStatus::from_raw(3 << 8)));
    drop(bench.transport_end);
    assert_eq!(stream.data().await["method"], "notifications/progress");
    let broken = stream.try_next().await.unwrap().unwrap_err();
    assert!(broken.contains("exit status: 3"), "{broken}");
    bench.connection.ended().await;
    assert!(matches!(bench.connection.end(), Some(LinkEnd::Exited(_))));
    bench.connection.gone().await;
    bench.connection.idle().await;
    let late = bench.connection.serve(&post(&tools_call(2))).await;
    assert!(matches!(late, Err(SendError::Ended(_))), "{late:?}");
}

#[tokio::test]
async fn messages_before_the_servers_end_are_delivered() {
    let mut bench = older().await;
    let mut stream = bench.call(&tools_call(1)).await;
    bench.server_sends(&result(1)).await;
    drop(bench.transport_end);
    assert_eq!(stream.rest().await.len(), 1);
}

#[tokio::test]
async fn an_unsent_request_is_reported_undelivered() {
    let bench = older().await;
    // The server reads nothing, so everything beyond the link's own queue waits here.
    let mut posted = Vec::new();
    for id in 0..40 {
        let connection = bench.connection.clone();
        posted.push(tokio::spawn(async move {
            connection.serve(&post(&tools_call(id))).await
        }));
    }
    while bench.transport_end.outgoing.len() < 16 {
        tokio::task::yield_now().await;
    }
    drop(bench.transport_end);
    let mut undelivered = 0;
    for served in posted {
        match served.await.unwrap() {
            Ok(reply) => {
                let mut stream = Stream::of(reply);
                assert!(stream.try_next().await.unwrap().is_err());
            }
            Err(error) => {
                assert!(error.is_undelivered());
                undelivered += 1;
            }
        }
    }
    assert_eq!(undelivered, 40 - 16);
}

#[tokio::test]
async fn a_server_that_reads_nothing_blocks_only_messages_to_it() {
    let bench = older().await;
    let mut refused = None;
    let mut waiting = Vec::new();
    for id in 0..1000 {
        let connection = bench.connection.clone();
        let mut task =
            tokio::spawn(async move { connection.serve(&post(&tools_call(id))).await.unwrap() });
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        if id > 16 && task.is_finished() {
            refused = Some((&mut task).await.unwrap());
            break;
        }
        waiting.push(task);
    }
    let refused = refused.expect("no request was refused");
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.retry_after.is_some());
    // The client can still listen, and close.
    let _stream = bench.listen(None).await;
    bench.connection.close();
    bench.connection.ended().await;
    for task in waiting {
        task.abort();
    }
}

#[tokio::test]
async fn a_delete_closes_in_order() {
    let mut bench = older().await;
    let mut stream = bench.call(&tools_call(1)).await;
    let delete = Outgoing::forwarded(Method::DELETE, HeaderMap::new(), Bytes::new());
    let reply = bench.connection.serve(&delete).await.unwrap();
    assert_eq!(reply.status, StatusCode::NO_CONTENT);
    bench.connection.ended().await;
    assert_eq!(bench.connection.end(), Some(LinkEnd::Closed));
    assert!(bench.transport_end.stop.is_cancelled());
    assert_eq!(bench.transport_end.outgoing.recv().await, None);
    assert!(stream.try_next().await.unwrap().is_err());
}

#[tokio::test]
async fn dropping_the_last_handle_closes_the_connection() {
    let bench = older().await;
    let clone = bench.connection.clone();
    drop(bench.connection);
    assert!(!bench.transport_end.stop.is_cancelled());
    drop(clone);
    bench.transport_end.stop.cancelled().await;
}
