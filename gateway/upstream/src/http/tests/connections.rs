//! Which connection a request is sent over, and what happens when it is closed.

use tokio::sync::mpsc;

use super::*;
use crate::credential_header::CredentialHeader;
use crate::{PermitSource, SendPermit};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A server that answers every request with these bytes, and keeps its connections open.
async fn answering(answer: &'static [u8]) -> RawServer {
    RawServer::start(move |mut stream| async move {
        while read_request(&mut stream).await.is_some() {
            stream.write_all(answer).await.unwrap();
        }
    })
    .await
}

/// A server that hands over the head and body of every request.
async fn recording() -> (RawServer, mpsc::Receiver<(String, Vec<u8>)>) {
    let (sender, requests) = mpsc::channel(1);
    let server = RawServer::start(move |mut stream| {
        let sender = sender.clone();
        async move {
            while let Some(request) = read_request(&mut stream).await {
                sender.send(request).await.unwrap();
                stream.write_all(ANSWER).await.unwrap();
            }
        }
    })
    .await;
    (server, requests)
}

#[tokio::test]
async fn a_request_is_written_as_http_1_1() {
    let (server, mut heads) = recording().await;
    let client = client(IDLE_MAX);
    let address = server.address;
    let large = Bytes::from(vec![b'x'; 1_000_000]);
    for body in [Bytes::from_static(b"{}"), Bytes::new(), large] {
        exchange(&client, &server.post(body.clone())).await;
        let length = body.len();
        let head = format!(
            "POST /mcp?a=b HTTP/1.1\r\nhost: {address}\r\naccept-encoding: identity\r\ncontent-length: {length}\r\n\r\n"
        );
        assert_eq!(heads.recv().await, Some((head, body.to_vec())));
    }
    let request = Request::delete(format!("http://{address}"))
        .header("mcp-session-id", "s")
        .header("authorization", "static")
        .body(Bytes::new())
        .unwrap();
    let credential = CredentialHeader::authorization(http::HeaderValue::from_static("fetched"));
    let request = HttpRequest {
        credential: Some(&credential),
        ..HttpRequest::from(&request)
    };
    let sent = client.send(request, ConnectionChoice::Pooled).await;
    read_whole(sent.unwrap()).await.unwrap();
    let head = format!(
        "DELETE / HTTP/1.1\r\nhost: {address}\r\nmcp-session-id: s\r\nauthorization: fetched\r\naccept-encoding: identity\r\n\r\n"
    );
    assert_eq!(heads.recv().await, Some((head, Vec::new())));
    assert_eq!(server.accepted(), 1);
}

#[derive(Debug)]
struct Lapsed;

impl PermitSource for Lapsed {
    fn permit_sending(&self) -> bool {
        false
    }
}

#[tokio::test]
async fn a_request_is_not_written_once_its_permit_has_lapsed() {
    let (server, mut requests) = recording().await;
    let client = client(IDLE_MAX);
    let request = server.post(Bytes::new());
    let permit = SendPermit::new(Arc::new(Lapsed));
    let lapsed = HttpRequest {
        permit: Some(&permit),
        ..HttpRequest::from(&request)
    };
    let sent = client.send(lapsed, ConnectionChoice::Pooled).await;
    assert!(matches!(sent, Err(HttpError::NotPermitted)));
    // Only the next request arrives.
    exchange(&client, &request).await;
    assert!(requests.recv().await.is_some());
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_whole_response_only() {
    for (answer, accepted) in [
        (ANSWER, 1),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            1,
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 1),
        (
            b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
            1,
        ),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 3),
        (
            b"HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 2\r\n\r\nok",
            3,
        ),
        // Bytes behind the response could be taken for the next one.
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok!", 3),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            3,
        ),
    ] {
        let server = answering(answer).await;
        let client = client(IDLE_MAX);
        for _ in 0..3 {
            exchange(&client, &server.post("{}")).await;
        }
        let text = String::from_utf8_lossy(answer);
        assert_eq!(server.accepted(), accepted, "{text:?}");
    }
}

#[tokio::test]
async fn what_is_not_read_to_its_end_is_not_used_again() {
    let server = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok").await;
    let client = client(IDLE_MAX);
    for _ in 0..2 {
        let request = server.post("{}");
        let sent = client.send((&request).into(), ConnectionChoice::Pooled);
        let mut body = sent.await.unwrap().into_body();
        assert!(body.frame().await.unwrap().is_ok());
    }
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn a_fresh_connection_is_neither_taken_from_the_pool_nor_kept() {
    let server = answering(ANSWER).await;
    let client = client(IDLE_MAX);
    exchange(&client, &server.post("{}")).await;
    for accepted in [2, 3] {
        let request = server.post("{}");
        let sent = client.send((&request).into(), ConnectionChoice::Fresh);
        read_whole(sent.await.unwrap()).await.unwrap();
        assert_eq!(server.accepted(), accepted);
    }
    exchange(&client, &server.post("{}")).await;
    assert_eq!(server.accepted(), 3);
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_is_replaced() {
    let closed = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&closed);
    let server = RawServer::start(move |mut stream| {
        let closed = Arc::clone(&counted);
        async move {
            read_request(&mut stream).await.unwrap();
            stream.write_all(ANSWER).await.unwrap();
            drop(stream);
            closed.fetch_add(1, Ordering::Relaxed);
        }
    })
    .await;
    let client = client(IDLE_MAX);
    for round in 1..=20 {
        exchange(&client, &server.post("{}")).await;
        until(|| closed.load(Ordering::Relaxed) == round).await;
    }
    assert_eq!(server.accepted(), 20);
}

#[tokio::test]
async fn a_request_that_was_sent_is_not_sent_again() {
    let server = RawServer::start(async |mut stream| {
        read_request(&mut stream).await.unwrap();
        stream.write_all(ANSWER).await.unwrap();
        read_request(&mut stream).await.unwrap();
    })
    .await;
    let client = client(IDLE_MAX);
    exchange(&client, &server.post("{}")).await;
    let request = server.post("{}");
    let sent = client.send((&request).into(), ConnectionChoice::Pooled);
    let error = sent.await.unwrap_err();
    assert!(
        matches!(error, HttpError::RoundTrip(RoundTripError::Closed)),
        "{error:?}"
    );
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn an_idle_connection_is_closed_without_another_request() {
    let closed = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&closed);
    let server = RawServer::start(move |mut stream| {
        let closed = Arc::clone(&counted);
        async move {
            while read_request(&mut stream).await.is_some() {
                stream.write_all(ANSWER).await.unwrap();
            }
            closed.fetch_add(1, Ordering::Relaxed);
        }
    })
    .await;
    let client = client(Duration::from_millis(10));
    for round in 1..=2 {
        exchange(&client, &server.post("{}")).await;
        until(|| closed.load(Ordering::Relaxed) == round).await;
    }
}

#[tokio::test]
async fn a_response_may_come_before_the_end_of_the_request() {
    const LENGTH: usize = 20_000_000;
    let server = RawServer::start(async |mut stream| {
        read_head(&mut stream).await.unwrap();
        let (first, last) = ANSWER.split_at(ANSWER.len() - 1);
        stream.write_all(first).await.unwrap();
        let mut rest = vec![0; LENGTH];
        stream.read_exact(&mut rest).await.unwrap();
        stream.write_all(last).await.unwrap();
    })
    .await;
    let client = client(IDLE_MAX);
    let request = server.post(vec![b'x'; LENGTH]);
    assert_eq!(exchange(&client, &request).await, (200, "ok".into()));
}

#[tokio::test]
async fn a_request_is_sent_to_its_end_although_it_was_answered_before() {
    const LENGTH: usize = 20_000_000;
    let received = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&received);
    let server = RawServer::start(move |mut stream| {
        let received = Arc::clone(&counted);
        async move {
            read_head(&mut stream).await.unwrap();
            stream.write_all(ANSWER).await.unwrap();
            let mut rest = vec![0; LENGTH];
            stream.read_exact(&mut rest).await.unwrap();
            received.fetch_add(LENGTH, Ordering::Relaxed);
            while read_request(&mut stream).await.is_some() {
                stream.write_all(ANSWER).await.unwrap();
            }
        }
    })
    .await;
    let client = client(IDLE_MAX);
    let request = server.post(vec![b'x'; LENGTH]);
    assert_eq!(exchange(&client, &request).await, (200, "ok".into()));
    until(|| received.load(Ordering::Relaxed) == LENGTH).await;
}

/// More than a task may look at before it has to let others run.
#[tokio::test]
async fn many_connections_that_were_closed_while_idle_are_replaced() {
    const CONNECTIONS: usize = 300;
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let opened = Arc::clone(&gate);
    let server = RawServer::start(move |mut stream| {
        let gate = Arc::clone(&opened);
        async move {
            read_request(&mut stream).await.unwrap();
            gate.acquire().await.unwrap().forget();
            stream.write_all(ANSWER).await.unwrap();
        }
    })
    .await;
    let client = Arc::new(client(IDLE_MAX));
    let calls: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let (client, request) = (Arc::clone(&client), server.post("{}"));
            tokio::spawn(async move { exchange(&client, &request).await })
        })
        .collect();
    until(|| server.accepted() == CONNECTIONS).await;
    gate.add_permits(CONNECTIONS);
    for call in calls {
        call.await.unwrap();
    }
    gate.add_permits(10);
    for _ in 0..10 {
        assert_eq!(exchange(&client, &server.post("{}")).await.0, 200);
    }
}

#[tokio::test]
async fn a_server_that_answers_and_closes_before_the_end_of_the_request_is_heard() {
    let server = RawServer::start(async |mut stream| {
        read_head(&mut stream).await.unwrap();
        let answer = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        stream.shutdown().await.unwrap();
        // Until the client closes its side: closing before would reset the connection, and with it the answer.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    })
    .await;
    let client = client(IDLE_MAX);
    let request = server.post(vec![b'x'; 20_000_000]);
    assert_eq!(exchange(&client, &request).await, (413, Bytes::new()));
}

#[tokio::test]
async fn the_end_of_a_connection_ends_an_early_answer_without_a_length() {
    let server = RawServer::start(async |mut stream| {
        read_head(&mut stream).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 413 Too Large\r\n\r\ntoo")
            .await
            .unwrap();
        stream.write_all(b" large").await.unwrap();
        stream.shutdown().await.unwrap();
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    })
    .await;
    let client = client(IDLE_MAX);
    let request = server.post(vec![b'x'; 20_000_000]);
    assert_eq!(exchange(&client, &request).await, (413, "too large".into()));
}

#[tokio::test]
async fn a_refused_connection_is_one_that_was_not_made() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let request = Request::post(format!("http://{address}/")).body(Bytes::new());
    let request = request.unwrap();
    let client = client(IDLE_MAX);
    let sent = client.send((&request).into(), ConnectionChoice::Pooled);
    let error = sent.await.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("cannot connect: "), "{text}");
    assert!(text.contains("Connection refused"), "{text}");
    match error {
        HttpError::Connect(failure) => assert!(crate::is_refused(&failure)),
        error => panic!("{error:?}"),
    }
}
