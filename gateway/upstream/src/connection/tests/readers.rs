//! Slow readers and fast servers.

use super::*;
use crate::connection::actor::BACKLOG_EVENTS_MAX;

async fn flood(bench: &Bench, events: usize) {
    for number in 0..events {
        bench
            .server_sends(&format!(
                r#"{{"method":"notifications/progress","params":{{"progressToken":"c:0000000000000000000000000000000a:1","progress":{number}}}}}"#
            ))
            .await;
    }
}

#[tokio::test]
async fn ten_thousand_notifications_at_once_all_arrive_in_order() {
    let mut bench = older().await;
    let mut stream = bench.call(&tools_call(1)).await;
    let reading = tokio::spawn(async move { stream.rest().await });
    flood(&bench, 10_000).await;
    bench.server_sends(&result(1)).await;
    let rest = reading.await.unwrap();
    assert_eq!(rest.len(), 10_001);
    for (number, event) in rest.iter().take(10_000).enumerate() {
        assert_eq!(event["params"]["progress"], number);
    }
}

#[tokio::test]
async fn ten_thousand_unread_notifications_leave_the_newest() {
    let mut bench = older().await;
    for number in 0..10_000 {
        bench
            .server_sends(&format!(
                r#"{{"method":"notifications/x","params":{{"number":{number}}}}}"#
            ))
            .await;
    }
    bench.wait_processed().await;
    let mut general = bench.listen(None).await;
    bench
        .server_sends(r#"{"method":"notifications/last"}"#)
        .await;
    let mut heard = Vec::new();
    loop {
        let data = general.data().await;
        if data["method"] == "notifications/last" {
            break;
        }
        heard.push(data["params"]["number"].as_u64().unwrap());
    }
    assert!(heard.len() >= 100, "{}", heard.len());
    assert!(
        heard
            .iter()
            .rev()
            .copied()
            .eq((0..10_000).rev().take(heard.len()))
    );
}

#[tokio::test(start_paused = true)]
async fn a_stalled_reader_is_cut_and_the_others_continue() {
    let mut bench = older().await;
    let mut slow = bench.call(&tools_call(1)).await;
    let mut other = bench.call(&tools_call(2)).await;
    flood(&bench, BACKLOG_EVENTS_MAX + 50).await;
    bench.server_sends(&result(2)).await;
    assert_eq!(other.rest().await.len(), 1);
    bench.server_sends(&result(1)).await;
    bench.wait_processed().await;
    // The cut reader gets one event to resume after, then all kept events and the answer.
    let first = slow.next().await.unwrap();
    assert_eq!(first.data["params"]["progress"], 0);
    assert_eq!(slow.next().await, None);
    let rest = bench.listen(first.id.as_deref()).await.rest().await;
    assert!(rest.len() > 50);
    assert_eq!(rest.last().unwrap()["result"]["of"], 1);
}

#[tokio::test(start_paused = true)]
async fn backpressure_counts_bytes() {
    let mut options = options();
    options.message_bytes_max = 10_000;
    let mut bench = bench(options, ALL, OLDER).await;
    let mut slow = bench.call(&tools_call(1)).await;
    let large = "x".repeat(8000);
    for _ in 0..3 {
        bench
            .server_sends(&format!(
                r#"{{"method":"notifications/progress","params":{{"progressToken":"c:0000000000000000000000000000000a:1","message":"{large}"}}}}"#
            ))
            .await;
    }
    bench.server_sends(&result(1)).await;
    bench.wait_processed().await;
    let first = slow.next().await.unwrap();
    assert_eq!(slow.next().await, None);
    let rest = bench.listen(first.id.as_deref()).await.rest().await;
    assert_eq!(rest.len(), 3);
}

#[tokio::test]
async fn unread_answers_are_bounded() {
    let mut options = options();
    options.message_bytes_max = 1000;
    let mut bench = bench(options, ALL, OLDER).await;
    let mut unread = Vec::new();
    let large = "x".repeat(900);
    let refused = loop {
        let id = unread.len();
        let reply = bench.post(&tools_call(id as u64)).await;
        if reply.status != StatusCode::OK {
            break reply;
        }
        bench.server_receives().await;
        bench
            .server_sends(&format!(
                r#"{{"id":"c:0000000000000000000000000000000a:{id}","result":{{"x":"{large}"}}}}"#
            ))
            .await;
        bench.wait_processed().await;
        unread.push(Stream::of(reply));
        assert!(unread.len() < 100);
    };
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(unread.len() >= 4);
    // All answers arrive, and once they are read new requests are accepted.
    for (id, stream) in unread.iter_mut().enumerate() {
        assert_eq!(
            stream.data().await["id"],
            format!("c:0000000000000000000000000000000a:{id}")
        );
        assert_eq!(stream.next().await, None);
    }
    let mut again = bench.call(&tools_call(7)).await;
    bench.server_sends(&result(7)).await;
    assert_eq!(again.rest().await.len(), 1);
}
