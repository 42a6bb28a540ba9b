//! What is asked is done, and its reply comes as it is made.

use std::io;

use http_body_util::BodyExt;

use super::*;
use crate::PeerBodyError;

async fn next(body: &mut PeerBody) -> Option<Bytes> {
    let frame = within(body.frame()).await?;
    Some(frame.unwrap().into_data().unwrap())
}

async fn ask(worker: &Worker, client: &PeerClient, message: &str) -> Response<PeerBody> {
    let message = message.to_owned();
    send(client, &worker.id, worker.address, message)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_reply_streams_event_by_event() {
    let mut worker = Worker::start().await;
    let reply = ask(&worker, &client(), "stream").await;
    assert_eq!(reply.status(), StatusCode::ACCEPTED);
    assert_eq!(reply.headers()["mooring-epoch"], "7");
    let events = worker.next_stream().await;
    let mut body = reply.into_body();
    for number in 0..20 {
        // The next one is only made when this one has arrived, so nothing holds one back for another.
        let event = Bytes::from(format!("data: {number}\n\n"));
        events.send(Ok(event.clone())).await.unwrap();
        assert_eq!(next(&mut body).await, Some(event));
    }
    drop(events);
    assert_eq!(next(&mut body).await, None);
}

#[tokio::test]
async fn large_messages_and_replies_arrive_whole() {
    let worker = Worker::start().await;
    let message: Bytes = (0..8 * 1024 * 1024_u32).map(|n| (n % 251) as u8).collect();
    let reply = send(&client(), &worker.id, worker.address, message.clone()).await;
    let body = reply.unwrap().into_body();
    let reply = within(body.collect()).await.unwrap().to_bytes();
    assert!(reply == message);
}

#[tokio::test]
async fn every_verdict_says_that_nothing_was_delivered() {
    let worker = Worker::start().await;
    let client = client();
    for verdict in Verdict::ALL {
        let sent = send(&client, &worker.id, worker.address, verdict.as_str()).await;
        let error = sent.unwrap_err();
        assert!(error.is_undelivered(), "{error}");
        assert!(matches!(error, PeerError::Verdict(told) if told == verdict));
    }
}

#[tokio::test]
async fn another_run_of_a_worker_says_that_it_is_not_the_one() {
    let worker = Worker::start().await;
    let earlier = super::worker("b:0");
    let error = send(&client(), &earlier, worker.address, "x")
        .await
        .unwrap_err();
    assert!(matches!(error, PeerError::Verdict(Verdict::NotHere)));
    assert_eq!(worker.calls(), 0);
}

#[tokio::test]
async fn a_reply_that_nobody_reads_any_more_is_noticed() {
    let mut worker = Worker::start().await;
    let reply = ask(&worker, &client(), "stream").await;
    let events = worker.next_stream().await;
    assert!(!events.is_closed());
    drop(reply);
    within(events.closed()).await;
}

#[tokio::test]
async fn a_request_that_nobody_waits_for_any_more_is_noticed() {
    let mut worker = Worker::start().await;
    let (client, forward) = (client(), asking("never"));
    let (address, limit) = (
        announced(&worker.id, worker.address),
        Duration::from_millis(50),
    );
    let sent = client.send(&worker.id, &address, &forward, Some(limit));
    let error = within(sent).await.unwrap_err();
    assert!(matches!(error, PeerError::TimedOut(_)) && !error.is_undelivered());
    within(worker.next_stream().await.closed()).await;
}

#[tokio::test]
async fn a_reply_that_breaks_where_it_comes_from_is_not_whole() {
    let mut worker = Worker::start().await;
    let client = client();
    let mut body = ask(&worker, &client, "stream").await.into_body();
    let events = worker.next_stream().await;
    events.send(Ok("some".into())).await.unwrap();
    assert_eq!(next(&mut body).await, Some("some".into()));
    events
        .send(Err(io::ErrorKind::BrokenPipe.into()))
        .await
        .unwrap();
    let error = within(body.frame()).await.unwrap().unwrap_err();
    assert!(matches!(error, PeerBodyError::Cut));
    assert!(within(body.frame()).await.is_none());
}

#[tokio::test]
async fn a_worker_that_is_cut_off_leaves_no_whole_reply() {
    let mut worker = Worker::start().await;
    let mut body = ask(&worker, &client(), "stream").await.into_body();
    let events = worker.next_stream().await;
    events.send(Ok("some".into())).await.unwrap();
    assert_eq!(next(&mut body).await, Some("some".into()));
    worker.serving.abort();
    let error = within(body.frame()).await.unwrap().unwrap_err();
    assert!(matches!(error, PeerBodyError::Broken(_)));
}

#[tokio::test]
async fn a_thousand_forwards_one_after_another() {
    let worker = Worker::start().await;
    let client = client();
    for number in 0..1000 {
        let message = number.to_string();
        let body = ask(&worker, &client, &message).await.into_body();
        assert_eq!(body.collect().await.unwrap().to_bytes(), message);
    }
    assert_eq!(worker.calls(), 1000);
}

#[tokio::test]
async fn many_forwards_at_a_time() {
    let worker = Arc::new(Worker::start().await);
    let client = client();
    let asking: Vec<_> = (0..64)
        .map(|number| {
            let (worker, client) = (Arc::clone(&worker), client.clone());
            tokio::spawn(async move {
                for round in 0..8 {
                    let message = format!("{number} {round}");
                    let body = ask(&worker, &client, &message).await.into_body();
                    assert_eq!(body.collect().await.unwrap().to_bytes(), message);
                }
            })
        })
        .collect();
    for one in asking {
        within(one).await.unwrap();
    }
    assert_eq!(worker.calls(), 64 * 8);
}

#[tokio::test]
async fn what_stops_ends_its_open_replies_first() {
    let mut worker = Worker::start().await;
    let client = client();
    let mut body = ask(&worker, &client, "stream").await.into_body();
    let events = worker.next_stream().await;
    worker.stopping.cancel();
    // Whoever asks now is refused, at the latest when the listener is closed.
    while send(&client, &worker.id, worker.address, "x").await.is_ok() {
        tokio::task::yield_now().await;
    }
    events.send(Ok("last".into())).await.unwrap();
    assert_eq!(next(&mut body).await, Some("last".into()));
    assert!(!worker.serving.is_finished());
    drop(events);
    assert_eq!(next(&mut body).await, None);
    within(&mut worker.serving).await.unwrap();
}
