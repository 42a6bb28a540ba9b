//! What is not let in, sent by hand.
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::{Forgery, unix_now_ms};

/// Sends a request of these bytes, and answers with all that comes back.
async fn post(worker: &Worker, bytes: &[u8]) -> Vec<u8> {
    post_to(worker, "POST /peer/v1", bytes.len(), bytes).await
}

async fn post_to(worker: &Worker, line: &str, length: usize, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(worker.address).await.unwrap();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: b\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    if length > bytes.len() {
        stream.shutdown().await.unwrap();
    }
    let mut answer = Vec::new();
    within(stream.read_to_end(&mut answer)).await.unwrap();
    answer
}

/// What `a` sends to `to` at this time, whole.
fn request(keys: &KeyRing, to: &str, message: &str, sent_at_ms: u64) -> Vec<u8> {
    let gate = Gate::new(worker("a:1"), keys);
    let forward = asking(message.to_owned());
    let front = gate.seal(&worker(to), &forward, sent_at_ms).unwrap().front;
    [&front[..], &forward.body[..]].concat()
}

/// The status line and the header without its date.
fn shown(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    let lines = text.lines().filter(|line| !line.starts_with("date:"));
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn whatever_is_refused_gets_the_same_answer() {
    let worker = Worker::start().await;
    let now_ms = unix_now_ms();
    let good = || request(&ring(), "b:1", "hello", now_ms);
    let mut flipped_envelope = good();
    flipped_envelope[100] ^= 1;
    let mut flipped_message = good();
    *flipped_message.last_mut().unwrap() ^= 1;
    let mut too_long = good();
    too_long[0] = 1;
    let used = good();
    assert!(shown(&post(&worker, &used).await).starts_with("HTTP/1.1 200"));
    let too_large = "x".repeat(usize::try_from(BODY_BYTES_MAX).unwrap() + 1);
    let other = KeyRing::of(&[b"another fleet's key"]);
    let refused: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", Vec::new()),
        ("garbage", vec![0; 100]),
        ("flipped envelope", flipped_envelope),
        ("flipped message", flipped_message),
        (
            "another message",
            [&good()[..good().len() - 5], b"HELLO"].concat(),
        ),
        ("surplus", [&good()[..], b"x"].concat()),
        ("truncated message", good()[..good().len() - 1].to_vec()),
        ("truncated envelope", good()[..60].to_vec()),
        ("too long an envelope", too_long),
        ("replayed", used),
        ("stale", request(&ring(), "b:1", "hello", now_ms - 60_000)),
        ("early", request(&ring(), "b:1", "hello", now_ms + 90_000)),
        ("another worker's", request(&ring(), "c:1", "hello", now_ms)),
        ("another fleet's", request(&other, "b:1", "hello", now_ms)),
    ];
    let expected = shown(&post(&worker, b"").await);
    assert!(
        expected.starts_with("HTTP/1.1 401 Unauthorized\n"),
        "{expected}"
    );
    for (what, bytes) in refused {
        assert_eq!(shown(&post(&worker, &bytes).await), expected, "{what}");
    }
    assert_eq!(worker.calls(), 1, "only the good one was served");
    // The rest is not read, so it is enough to say that it comes.
    let large = request(&ring(), "b:1", &too_large, now_ms);
    let answer = post_to(&worker, "POST /peer/v1", large.len(), &large[..1024]).await;
    assert_eq!(shown(&answer), expected);
    assert_eq!(worker.calls(), 1);
}

#[tokio::test]
async fn there_is_one_route() {
    let worker = Worker::start().await;
    for line in [
        "GET /peer/v1",
        "PUT /peer/v1",
        "POST /",
        "POST /peer/v1/",
        "GET /metrics",
    ] {
        let answer = post_to(&worker, line, 0, b"").await;
        assert!(shown(&answer).starts_with("HTTP/1.1 404"), "{line}");
    }
}

#[tokio::test]
async fn who_asks_with_another_key_learns_that_keys_differ() {
    let mine = Worker::start().await;
    // It still verifies the fleet's old key, and signs with one that the other does not have yet.
    let ring = KeyRing::of(&[b"another key", b"the fleet's key"]);
    let client = PeerClient::new(Arc::new(Gate::new(worker("a:1"), &ring)));
    let error = send(&client, &mine.id, mine.address, "x")
        .await
        .unwrap_err();
    // Nobody has signed that nothing was delivered.
    assert!(!error.is_undelivered());
    assert!(matches!(
        error,
        PeerError::Forged(Forgery::Unsigned(StatusCode::UNAUTHORIZED))
    ));
    assert_eq!(mine.calls(), 0);
}

#[tokio::test]
async fn an_address_that_the_worker_did_not_sign_receives_nothing() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let (to, elsewhere) = (worker("b:1"), announced(&worker("b:1"), "127.0.0.1:1"));
    let (_, other_tag) = elsewhere.split_once('|').unwrap();
    let other_ring = KeyRing::of(&[b"another fleet's key"]);
    for announced in [
        address.to_string(),
        format!("{address}|{other_tag}"),
        announced(&worker("b:2"), address),
        Gate::new(to.clone(), &other_ring).sign_address(&address.to_string()),
    ] {
        let forward = asking("x");
        let sent = within(client().send(&to, &announced, &forward, Some(PATIENCE))).await;
        let error = sent.unwrap_err();
        assert!(matches!(error, PeerError::Unverified(_)), "{announced}");
        assert!(error.is_undelivered());
    }
    let accepted = listener.accept().unwrap_err();
    assert_eq!(accepted.kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn where_nobody_listens_nothing_was_delivered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let (client, to) = (client(), worker("b:1"));
    let error = send(&client, &to, address, "x").await.unwrap_err();
    assert!(matches!(error, PeerError::Refused) && error.is_undelivered());
    let error = send(&client, &to, "no address", "x").await.unwrap_err();
    assert!(matches!(error, PeerError::Address(_)) && error.is_undelivered());
}

#[test]
fn every_reason_and_outcome_is_documented() {
    const PAGE: &str = include_str!("../../../../docs/metrics.md");
    let verdicts = Verdict::ALL.map(Verdict::as_str);
    for word in crate::intake::REASONS.iter().chain(&verdicts) {
        assert!(PAGE.contains(&format!("`{word}`")), "{word}");
    }
}
