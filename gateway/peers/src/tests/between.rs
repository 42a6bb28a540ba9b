//! Somebody between two workers, who can read and change everything.
use std::sync::Mutex;

use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::{Forgery, PeerBodyError};

/// What is done with each piece that the asked worker sends; none ends the connection.
type Tamper = Box<dyn FnMut(&[u8]) -> Option<Vec<u8>> + Send>;

/// Passes on one connection to `worker`, and what comes back through `tamper`. Answers with its own address.
async fn between(worker: &Worker, mut tamper: Tamper) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let target = worker.address;
    tokio::spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = TcpStream::connect(target).await.unwrap();
        let (mut from_near, mut to_near) = near.split();
        let (mut from_far, mut to_far) = far.split();
        let asking = tokio::io::copy(&mut from_near, &mut to_far);
        let answering = async {
            let mut piece = vec![0; 64 * 1024];
            loop {
                let count = from_far.read(&mut piece).await.unwrap();
                match tamper(&piece[..count]) {
                    Some(bytes) if count > 0 => to_near.write_all(&bytes).await.unwrap(),
                    _ => return,
                }
            }
        };
        tokio::select! {
            _ = asking => {}
            () = answering => {}
        }
    });
    address
}

fn replacing(from: &'static [u8], to: &'static [u8]) -> Tamper {
    Box::new(move |piece| {
        let mut changed = piece.to_vec();
        if let Some(at) = piece.windows(from.len()).position(|window| window == from) {
            changed[at..at + from.len()].copy_from_slice(to);
        }
        Some(changed)
    })
}

#[tokio::test]
async fn a_reply_passes_unchanged_or_not_at_all() {
    let worker = Worker::start().await;
    let client = client();
    let address = between(&worker, Box::new(|piece| Some(piece.to_vec()))).await;
    let reply = send(&client, &worker.id, address, "hello").await.unwrap();
    let body = within(reply.into_body().collect()).await.unwrap();
    assert_eq!(body.to_bytes(), "hello");

    let address = between(&worker, replacing(b"hello", b"HELLO")).await;
    let reply = send(&client, &worker.id, address, "hello").await.unwrap();
    let error = within(reply.into_body().collect()).await.unwrap_err();
    assert!(matches!(error, PeerBodyError::Forged(_)), "{error:?}");

    // The epoch stands in the head.
    let address = between(&worker, replacing(b"mooring-epoch", b"mooring-hcope")).await;
    let error = send(&client, &worker.id, address, "hello")
        .await
        .unwrap_err();
    let PeerError::Forged(Forgery::Head(PeerBodyError::Forged(_))) = error else {
        panic!("{error:?}");
    };

    let address = between(&worker, replacing(b"200 OK", b"500 No")).await;
    let error = send(&client, &worker.id, address, "hello")
        .await
        .unwrap_err();
    assert!(
        matches!(error, PeerError::Forged(Forgery::Unsigned(_))),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_reply_that_is_ended_early_is_not_whole() {
    let mut worker = Worker::start().await;
    // Ends the HTTP body in order, where the second event should begin.
    let mut pieces = 0;
    let ending: Tamper = Box::new(move |piece| {
        pieces += 1;
        match pieces {
            1 => Some(piece.to_vec()),
            _ => Some(b"0\r\n\r\n".to_vec()),
        }
    });
    let address = between(&worker, ending).await;
    let reply = send(&client(), &worker.id, address, "stream").await;
    let mut body = reply.unwrap().into_body();
    let events = worker.next_stream().await;
    events.send(Ok("event".into())).await.unwrap();
    let error = within(body.frame()).await.unwrap().unwrap_err();
    assert!(matches!(error, PeerBodyError::Truncated), "{error:?}");
}

#[tokio::test]
async fn a_request_that_is_stopped_on_its_way_may_have_been_delivered() {
    let worker = Worker::start().await;
    let address = between(&worker, Box::new(|_| None)).await;
    let error = send(&client(), &worker.id, address, "hello")
        .await
        .unwrap_err();
    assert!(matches!(error, PeerError::Broken(_)) && !error.is_undelivered());
    assert_eq!(worker.calls(), 1);
}

#[tokio::test]
async fn the_reply_to_one_request_is_none_to_another() {
    let worker = Worker::start().await;
    let client = client();
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let recorder = Arc::clone(&recorded);
    let recording: Tamper = Box::new(move |piece| {
        recorder.lock().unwrap().extend_from_slice(piece);
        Some(piece.to_vec())
    });
    let address = between(&worker, recording).await;
    let sent = send(&client, &worker.id, address, "not_here").await;
    assert!(matches!(sent, Err(PeerError::Verdict(Verdict::NotHere))));
    let replaying: Tamper = Box::new(move |_| Some(recorded.lock().unwrap().clone()));
    let address = between(&worker, replaying).await;
    let sent = send(&client, &worker.id, address, "not_here").await;
    let error = sent.unwrap_err();
    assert!(
        matches!(error, PeerError::Forged(Forgery::Head(_))),
        "{error:?}"
    );
}
