//! A connection over which a response came that answers no request, or may have: it is not used again.

use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::*;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// How late a surplus response comes. Were it earlier, it would be found when the connection is given back.
const LATE: Duration = Duration::from_millis(50);
const SURPLUS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nanother";

/// A server that answers the first request of each connection with `first` and, after that, sends what is `late`. All
/// other requests get [`ANSWER`]. Says when it has sent what is late.
async fn shifting(
    first: &'static [u8],
    late: &'static [u8],
) -> (RawServer, std::sync::mpsc::Receiver<()>) {
    let (sender, done) = std::sync::mpsc::channel();
    let server = RawServer::start(move |mut stream| {
        let sender = sender.clone();
        async move {
            read_request(&mut stream).await.unwrap();
            stream.write_all(first).await.unwrap();
            // Until the client has this response and nothing else, and has given the connection back.
            tokio::time::sleep(LATE).await;
            stream.write_all(late).await.unwrap();
            sender.send(()).unwrap();
            while read_request(&mut stream).await.is_some() {
                stream.write_all(ANSWER).await.unwrap();
            }
        }
    })
    .await;
    (server, done)
}

/// Sends a request, waits until its server has sent what is late, and sends another: it has to get its own response. The
/// client's runtime is busy meanwhile, as on a serving thread with other calls: it has not noticed that anything came.
fn check(first: &'static [u8], late: &'static [u8]) {
    let text = format!("{}, {}", first.escape_ascii(), late.escape_ascii());
    let others = Runtime::new().unwrap();
    let (server, done) = others.block_on(shifting(first, late));
    let own = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    own.unwrap().block_on(async {
        let client = client(IDLE_MAX);
        let own = exchange(&client, &server.post("{}")).await;
        done.recv().unwrap();
        // The second connection answers its first request in the same way.
        assert_eq!(exchange(&client, &server.post("{}")).await, own, "{text}");
        assert_eq!(server.accepted(), 2, "{text}");
    });
}

#[test]
fn a_second_response_to_one_request_reaches_nobody() {
    check(ANSWER, SURPLUS);
}

#[test]
fn what_follows_a_response_that_has_no_body_reaches_nobody() {
    for first in [
        &b"HTTP/1.1 204 No Content\r\n\r\n"[..],
        b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\n\r\n",
    ] {
        check(first, SURPLUS);
    }
}

/// The body that is announced arrives late, and could look like a response.
#[tokio::test]
async fn a_response_that_must_not_have_the_body_it_announces_ends_its_connection() {
    for answer in [
        &b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"[..],
        b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\nContent-Length: 5, 6\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 103 Early Hints\r\nConnection: close\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ] {
        let server = RawServer::start(move |mut stream| async move {
            while read_request(&mut stream).await.is_some() {
                stream.write_all(answer).await.unwrap();
            }
        })
        .await;
        let client = client(IDLE_MAX);
        for _ in 0..3 {
            exchange(&client, &server.post("{}")).await;
        }
        assert_eq!(server.accepted(), 3, "{}", answer.escape_ascii());
    }
}

#[tokio::test]
async fn two_responses_in_one_segment_end_their_connection() {
    let both: &'static [u8] = [ANSWER, SURPLUS].concat().leak();
    let server = RawServer::start(move |mut stream| async move {
        while read_request(&mut stream).await.is_some() {
            stream.write_all(both).await.unwrap();
        }
    })
    .await;
    let client = client(IDLE_MAX);
    for _ in 0..3 {
        assert_eq!(exchange(&client, &server.post("{}")).await.1, "ok");
    }
    assert_eq!(server.accepted(), 3);
}

/// The answer may be a surplus one to the request before, and the own one still to come.
#[tokio::test]
async fn an_answer_before_the_request_was_sent_whole_ends_its_connection() {
    const LENGTH: usize = 20_000_000;
    let (sender, mut done) = mpsc::channel(64);
    let server = RawServer::start(move |mut stream| {
        let sender = sender.clone();
        async move {
            while read_head(&mut stream)
                .await
                .is_some_and(|head| head.contains("20000000"))
            {
                stream.write_all(ANSWER).await.unwrap();
                let mut rest = vec![0; LENGTH];
                stream.read_exact(&mut rest).await.unwrap();
                sender.send(()).await.unwrap();
            }
            stream.write_all(SURPLUS).await.unwrap();
        }
    })
    .await;
    let client = client(IDLE_MAX);
    for accepted in 1..=3 {
        let request = server.post(vec![b'x'; LENGTH]);
        assert_eq!(exchange(&client, &request).await, (200, "ok".into()));
        // The server gets all of the request.
        let received = tokio::time::timeout(PATIENCE, done.recv()).await;
        received.unwrap().unwrap();
        assert_eq!(server.accepted(), accepted);
    }
}

/// Whoever finds that a reply answers another request drops it: its connection may have more such replies.
#[tokio::test]
async fn a_reply_that_is_dropped_before_its_end_takes_its_connection_with_it() {
    const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n:ok\n\r\n";
    let (sender, mut closed) = mpsc::channel(64);
    let server = RawServer::start(move |mut stream| {
        let sender = sender.clone();
        async move {
            read_request(&mut stream).await.unwrap();
            stream.write_all(STREAM).await.unwrap();
            assert!(read_request(&mut stream).await.is_none());
            sender.send(()).await.unwrap();
        }
    })
    .await;
    let client = client(IDLE_MAX);
    let request = server.post("{}");
    for is_read in [false, true] {
        let sent = client.send((&request).into(), ConnectionChoice::Pooled);
        let mut body = sent.await.unwrap().into_body();
        if is_read {
            assert!(body.frame().await.unwrap().is_ok());
        }
        drop(body);
        let ended = tokio::time::timeout(PATIENCE, closed.recv());
        ended.await.unwrap().unwrap();
    }
    assert_eq!(server.accepted(), 2);
}

/// A whole reply has given its connection back before anybody has read it.
#[tokio::test]
async fn of_a_distrusted_origin_no_connection_is_used_again() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let opened = Arc::clone(&gate);
    let server = RawServer::start(move |mut stream| {
        let gate = Arc::clone(&opened);
        async move {
            while let Some((_, body)) = read_request(&mut stream).await {
                if body == b"slow" {
                    gate.acquire().await.unwrap().forget();
                }
                stream.write_all(ANSWER).await.unwrap();
            }
        }
    })
    .await;
    let client = client(IDLE_MAX);
    let slow = server.post("slow");
    let sent = client.send((&slow).into(), ConnectionChoice::Pooled);
    let in_use = async { read_whole(sent.await.unwrap()).await.unwrap() };
    let meanwhile = async {
        until(|| server.accepted() == 1).await;
        exchange(&client, &server.post("{}")).await;
        exchange(&client, &server.post("{}")).await;
        assert_eq!(server.accepted(), 2, "idle connections are used");
        client.distrust(slow.uri());
        exchange(&client, &server.post("{}")).await;
        assert_eq!(server.accepted(), 3, "the idle one was closed");
        gate.add_permits(1);
    };
    tokio::join!(in_use, meanwhile);
    // The connection that was in use would be the one that was used last.
    exchange(&client, &server.post("{}")).await;
    assert_eq!(server.accepted(), 3);
    let both = async {
        let two = server.post("{}");
        tokio::join!(exchange(&client, &two), exchange(&client, &two))
    };
    both.await;
    assert_eq!(server.accepted(), 4, "it was not kept");
}
