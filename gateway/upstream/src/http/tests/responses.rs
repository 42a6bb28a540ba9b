//! What a response is: the same for this client as for hyper's, however it arrives.

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::runtime::Runtime;

use super::*;

/// What a client made of a response: its status and body, or nothing if it failed.
type Outcome = Option<(u16, Bytes)>;

/// A server that writes these pieces as its response to any request, each by itself, and closes the connection.
async fn scripted(pieces: Vec<Vec<u8>>) -> RawServer {
    let pieces = Arc::new(pieces);
    RawServer::start(move |mut stream| {
        let pieces = Arc::clone(&pieces);
        async move {
            while read_request(&mut stream).await.is_some() {
                for piece in pieces.iter() {
                    if stream.write_all(piece).await.is_err() {
                        return;
                    }
                    tokio::task::yield_now().await;
                }
                let _ = stream.shutdown().await;
            }
        }
    })
    .await
}

async fn by_this_client(server: &RawServer) -> Outcome {
    let request = server.post("{}");
    let client = client(IDLE_MAX);
    let sent = client.send((&request).into(), ConnectionChoice::Pooled);
    read_whole(sent.await.ok()?).await.ok()
}

async fn by_hyper(server: &RawServer) -> Outcome {
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let body = http_body_util::Full::new(Bytes::from_static(b"{}"));
    let request = Request::post("/mcp").body(body).unwrap();
    let response = sender.send_request(request).await.ok()?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.ok()?.to_bytes();
    Some((status, body))
}

/// Both clients have to agree on a response that arrives in these pieces.
async fn agree(pieces: Vec<Vec<u8>>) -> Outcome {
    let text = String::from_utf8_lossy(&pieces.concat()).into_owned();
    let server = scripted(pieces).await;
    let both = async { (by_this_client(&server).await, by_hyper(&server).await) };
    let (ours, hypers) = tokio::time::timeout(PATIENCE, both)
        .await
        .unwrap_or_else(|_| panic!("no end of {text:?}"));
    assert_eq!(ours, hypers, "{text:?}");
    ours
}

#[tokio::test]
async fn the_end_of_a_body_is_where_rfc_9112_has_it() {
    let ok = |body: &'static str| Some((200, Bytes::from_static(body.as_bytes())));
    for (response, expected) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", ok("ab")),
        ("HTTP/1.1 200 OK\r\ncontent-length:2\r\n\r\nabc", ok("ab")),
        ("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", ok("")),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nab",
            ok("ab"),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
            ok("ab"),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
            None,
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\na", None),
        ("HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na", None),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", None),
        ("HTTP/1.1 200 OK\r\n\r\nto the end", ok("to the end")),
        ("HTTP/1.0 200 OK\r\n\r\nto the end", ok("to the end")),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;a=b\r\nc\r\n0\r\n\r\n",
            ok("abc"),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n1\r\na\r\n0\r\nX: y\r\n\r\n",
            ok("a"),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n",
            ok("0123456789"),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
            None,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabX",
            None,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n",
            None,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n\r\n\r\n",
            None,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n;x\r\n\r\n",
            None,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n \r\n\r\n",
            None,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            None,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nno trailer\r\n\r\n",
            None,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\nZ: w\r\n\r\n",
            None,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a\nb\r\na\r\n0\r\n\r\n",
            None,
        ),
        (
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            None,
        ),
        (
            "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
            ok("a"),
        ),
        (
            "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
            Some((204, Bytes::new())),
        ),
        (
            "HTTP/1.1 304 Not Modified\r\n\r\n",
            Some((304, Bytes::new())),
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n", None),
        ("HTTP/2 200 OK\r\n\r\n", None),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n", None),
        ("", None),
    ] {
        let outcome = agree(vec![response.as_bytes().to_vec()]).await;
        assert_eq!(outcome, expected, "{response:?}");
        let bytes = response.bytes().map(|byte| vec![byte]).collect();
        assert_eq!(agree(bytes).await, expected, "byte by byte: {response:?}");
    }
}

/// A head from parts that can contradict each other, and a body that may follow from it.
fn response() -> impl Strategy<Value = Vec<u8>> {
    let version = prop::sample::select(vec!["HTTP/1.1", "HTTP/1.0"]);
    let status = prop::sample::select(vec!["200 OK", "202 Accepted", "204 No", "404 Not Found"]);
    let header = prop::sample::select(vec![
        "Content-Length: 5",
        "content-length: 0",
        "Content-Length: 17",
        "Content-Length: five",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: identity",
        "Connection: close",
        "Connection: keep-alive",
        "Content-Type: application/json",
        "X-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ]);
    let body = prop_oneof![
        Just("hello".to_owned()),
        Just(String::new()),
        Just("5\r\nhello\r\n0\r\n\r\n".to_owned()),
        Just("5\r\nhello\r\n5;x\r\nworld\r\n0\r\nA: b\r\n\r\n".to_owned()),
        Just("05\r\nhello\r\n000\r\n\r\n".to_owned()),
        "[0-9a-f;\r\n]{0,24}",
    ];
    (version, status, prop::collection::vec(header, 0..4), body).prop_map(
        |(version, status, headers, body)| {
            let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
            format!("{version} {status}\r\n{headers}\r\n{body}").into_bytes()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_response_is_what_it_is_for_hyper(response in response(), piece in 1_usize..64) {
        let pieces = response.chunks(piece).map(<[u8]>::to_vec).collect();
        Runtime::new().unwrap().block_on(agree(pieces));
    }
}

#[tokio::test]
async fn what_is_too_large_is_refused() {
    let long = "x".repeat(70_000);
    for response in [
        format!("HTTP/1.1 200 OK\r\nX: {long}\r\n\r\n"),
        format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(101)),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;{long}\r\na\r\n0\r\n\r\n"),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: {long}\r\n\r\n"),
    ] {
        let server = scripted(vec![response.into_bytes()]).await;
        assert_eq!(by_this_client(&server).await, None);
    }
}

#[tokio::test]
async fn a_refusal_names_what_is_refused() {
    let long = "x".repeat(70_000);
    for (response, named) in [
        (
            format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(101)),
            "more than 100 headers",
        ),
        (
            format!("HTTP/1.1 200 OK\r\nX: {long}\r\n\r\n"),
            "larger than 65536 bytes",
        ),
        (
            "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n".to_owned(),
            "head of the response is invalid",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Encoding: GZIP\r\nContent-Length: 2\r\n\r\nab".to_owned(),
            "compressed (GZIP)",
        ),
    ] {
        let server = scripted(vec![response.into_bytes()]).await;
        let request = server.post("{}");
        let client = client(IDLE_MAX);
        let sent = client.send((&request).into(), ConnectionChoice::Pooled);
        let HttpError::RoundTrip(error) = sent.await.unwrap_err() else {
            panic!("{named}");
        };
        assert!(error.is_invalid_response(), "{error}");
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[tokio::test]
async fn a_coding_of_what_is_not_read_is_no_error() {
    for response in [
        "HTTP/1.1 404 Not Found\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Encoding: Identity\r\nContent-Length: 2\r\n\r\nab",
    ] {
        let server = scripted(vec![response.into()]).await;
        assert!(by_this_client(&server).await.is_some(), "{response}");
    }
}

#[tokio::test]
async fn chunks_that_arrived_together_are_one_part_of_the_body() {
    let chunks = "5\r\nhello\r\n".repeat(1_000);
    let response =
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n");
    let server = scripted(vec![response.into_bytes()]).await;
    let request = server.post("");
    let client = client(IDLE_MAX);
    let sent = client.send((&request).into(), ConnectionChoice::Pooled);
    let mut body = sent.await.unwrap().into_body();
    let (mut parts, mut bytes) = (0, 0);
    while let Some(frame) = body.frame().await {
        parts += 1;
        bytes += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!(bytes, 5_000);
    assert!(parts < 100, "{parts} parts");
}

#[tokio::test]
async fn what_arrived_before_an_invalid_chunk_is_delivered() {
    let response =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\nnone\r\n";
    let server = scripted(vec![response.into()]).await;
    let request = server.post("");
    let client = client(IDLE_MAX);
    let sent = client.send((&request).into(), ConnectionChoice::Pooled);
    let mut body = sent.await.unwrap().into_body();
    let mut data = Vec::new();
    let error = loop {
        match body.frame().await.unwrap() {
            Ok(frame) => data.extend(frame.into_data().unwrap()),
            Err(error) => break error,
        }
    };
    assert_eq!(data, b"abc");
    assert!(matches!(error, RoundTripError::Chunk), "{error}");
    assert!(body.frame().await.is_none());
}
