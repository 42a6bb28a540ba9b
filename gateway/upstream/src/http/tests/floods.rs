//! Servers that send without end what amounts to nothing: it has a limit, or others have their turn.

use std::task::Poll;

use futures_util::StreamExt as _;
use http_body::Body as _;
use mooring_protocol::{ReplyBody, ReplyError};
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::read_http;

const INTERIM: &[u8] = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const EVENTS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
/// Most bytes that one poll may process: a share, and what one read takes beyond it.
const POLL_BYTES_MAX: usize = 64 * 1024 + 72 * 1024;

/// A server that answers with `begin`, and then sends `part` for as long as it is read.
async fn flooding(begin: &'static [u8], part: &'static [u8]) -> RawServer {
    let part: &'static [u8] = part.repeat(64 * 1024 / part.len()).leak();
    RawServer::start(move |mut stream| async move {
        read_request(&mut stream).await.unwrap();
        stream.write_all(begin).await.unwrap();
        while stream.write_all(part).await.is_ok() {}
    })
    .await
}

#[tokio::test]
async fn interim_responses_are_read_up_to_a_limit() {
    let before: &'static [u8] = [INTERIM.repeat(100), ANSWER.to_vec()].concat().leak();
    let server = RawServer::start(move |mut stream| async move {
        read_request(&mut stream).await.unwrap();
        stream.write_all(before).await.unwrap();
    })
    .await;
    let client = client(IDLE_MAX);
    assert_eq!(exchange(&client, &server.post("{}")).await.1, "ok");

    let server = flooding(b"", INTERIM).await;
    let request = server.post("{}");
    let sent = client.send((&request).into(), ConnectionChoice::Pooled);
    let refused = tokio::time::timeout(PATIENCE, sent).await.unwrap();
    let is_expected = matches!(
        refused,
        Err(HttpError::RoundTrip(RoundTripError::TooManyInterim))
    );
    assert!(is_expected, "{refused:?}");
}

/// The server has a thread of its own, so that there is always more to read.
#[test]
fn a_task_lets_others_run_after_a_share_of_a_stream() {
    let others = Runtime::new().unwrap();
    let server = others.block_on(flooding(EVENTS, b": comment\n\n"));
    let own = Builder::new_current_thread().enable_all().build().unwrap();
    own.block_on(async {
        let client = client(IDLE_MAX);
        let request = server.post("{}");
        let sent = client.send((&request).into(), ConnectionChoice::Pooled);
        let mut body = sent.await.unwrap().into_body();
        let mut whole = 0;
        while whole < 20_000_000 {
            let in_one_poll = std::future::poll_fn(|context| {
                let mut bytes = 0;
                while let Poll::Ready(frame) = Pin::new(&mut body).poll_frame(context) {
                    bytes += frame.unwrap().unwrap().into_data().unwrap().len();
                }
                match bytes {
                    0 => Poll::Pending,
                    bytes => Poll::Ready(bytes),
                }
            })
            .await;
            assert!(in_one_poll <= POLL_BYTES_MAX, "{in_one_poll} bytes");
            whole += in_one_poll;
        }
    });
}

/// As many calls of another user as a test makes end while the flood goes on, on the same thread.
#[test]
fn other_calls_of_the_thread_end_during_a_flood_of_comments() {
    let others = Runtime::new().unwrap();
    let flood = others.block_on(flooding(EVENTS, b": comment\n\n"));
    let server = others.block_on(RawServer::start(async |mut stream| {
        while read_request(&mut stream).await.is_some() {
            stream.write_all(ANSWER).await.unwrap();
        }
    }));
    let own = Builder::new_current_thread().enable_all().build().unwrap();
    own.block_on(async {
        let client = client(IDLE_MAX);
        let request = flood.post("{}");
        let sent = client.send((&request).into(), ConnectionChoice::Pooled);
        let reply = read_http(sent.await.unwrap(), 1024, None, ReplyError::broken);
        let ReplyBody::Events(mut events) = reply.body else {
            panic!("no events");
        };
        let flooded = tokio::spawn(async move { events.next().await.is_some() });
        for _ in 0..100 {
            assert_eq!(exchange(&client, &server.post("{}")).await.1, "ok");
        }
        assert!(!flooded.is_finished());
        flooded.abort();
    });
}
