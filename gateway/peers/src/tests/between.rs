//! Somebody between two gateways, who can read, record and change everything that passes.
use std::sync::Mutex;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

/// What is done with each piece that passes in one direction; none ends the connection.
type Tamper = Box<dyn FnMut(Vec<u8>) -> Option<Vec<u8>> + Send>;

/// Relays one connection to `gateway`. Answers with its own address.
async fn between(gateway: &Gateway, asking: Tamper, answering: Tamper) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let target = gateway.address;
    tokio::spawn(async move {
        let (near, _) = listener.accept().await.unwrap();
        let (from_near, to_near) = near.into_split();
        let (from_far, to_far) = TcpStream::connect(target).await.unwrap().into_split();
        tokio::select! {
            () = relay(from_near, to_far, asking) => {}
            () = relay(from_far, to_near, answering) => {}
        }
    });
    address
}

async fn relay(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut tamper: Tamper,
) {
    let mut piece = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut piece).await.unwrap_or(0);
        match tamper(piece[..count].to_vec()) {
            Some(bytes) if count > 0 => {
                if to.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}

fn unchanged() -> Tamper {
    Box::new(Some)
}

/// Flips a bit of the piece of this number, from 1.
fn flipping(number: usize) -> Tamper {
    let mut seen = 0;
    Box::new(move |mut piece| {
        seen += 1;
        if seen == number {
            *piece.last_mut().unwrap() ^= 1;
        }
        Some(piece)
    })
}

/// What passed, and what records it.
fn recording() -> (Arc<Mutex<Vec<u8>>>, Tamper) {
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let recorder = Arc::clone(&recorded);
    let recording: Tamper = Box::new(move |piece| {
        recorder.lock().unwrap().extend_from_slice(&piece);
        Some(piece)
    });
    (recorded, recording)
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

#[tokio::test]
async fn nothing_that_passes_can_be_read() {
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;

    let gateway = Gateway::start().await;
    let ((asked, asking_tamper), (answered, answering)) = (recording(), recording());
    let address = between(&gateway, asking_tamper, answering).await;
    let mut forward = asking("the marker in the message");
    (forward.headers).insert(
        "mcp-param-a",
        HeaderValue::from_static("marker-in-a-header"),
    );
    let reply = within(client().send(&gateway.id, &address, &forward, pending())).await;
    let body = within(reply.unwrap().into_body().collect()).await.unwrap();
    assert_eq!(body.to_bytes(), forward.body, "the reply is the message");
    let secrets = [
        "the marker",
        "marker-in",
        &forward.session_key,
        &BASE64_URL_SAFE_NO_PAD.encode(&*forward.session_key),
        forward.principal.as_str(),
        "files",
        "mooring-epoch",
        "HTTP/1.1",
        "a:1",
        "b:1",
    ];
    for recorded in [asked, answered] {
        let recorded = recorded.lock().unwrap();
        assert!(recorded.len() > forward.body.len(), "{}", recorded.len());
        for secret in secrets {
            assert!(!contains(&recorded, secret), "{secret}");
        }
    }
}

#[tokio::test]
async fn a_recorded_connection_does_nothing_a_second_time() {
    let gateway = Gateway::start().await;
    let ((asked, asking), (answered, answering)) = (recording(), recording());
    let address = between(&gateway, asking, answering).await;
    let reply = send(&client(), &gateway.id, address, "once").await.unwrap();
    within(reply.into_body().collect()).await.unwrap();
    assert_eq!(gateway.calls(), 1);

    // The same bytes to the gateway: it closes the connection, without having served anything.
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let bytes = asked.lock().unwrap().clone();
    stream.write_all(&bytes).await.unwrap();
    let mut rest = Vec::new();
    // What it has not read by then resets the connection.
    let _ = within(stream.read_to_end(&mut rest)).await;
    assert_eq!(gateway.calls(), 1);

    // The same bytes to who asks: they are no answer, and nothing is sent after them.
    let recorded = answered.lock().unwrap().clone();
    let mut recorded = Some(recorded);
    let replaying: Tamper = Box::new(move |_| recorded.take());
    let address = between(&gateway, unchanged(), replaying).await;
    let error = send(&client(), &gateway.id, address, "once").await;
    let error = error.unwrap_err();
    assert!(error.is_undelivered(), "{error:?}");
    assert_eq!(gateway.calls(), 1);
}

#[tokio::test]
async fn a_request_that_is_changed_is_not_served() {
    // The first piece begins the handshake, the second one ends it.
    for number in 1..=3 {
        let gateway = Gateway::start().await;
        let address = between(&gateway, flipping(number), unchanged()).await;
        let large = vec![b'x'; 256 * 1024];
        let sent = send(&client(), &gateway.id, address, large).await;
        let error = sent.unwrap_err();
        assert_eq!(gateway.calls(), 0, "{number}: {error:?}");
    }
}

#[tokio::test]
async fn a_reply_that_is_changed_is_not_whole() {
    let mut gateway = Gateway::start().await;
    let mut seen = 0;
    let spoiling = Arc::new(Mutex::new(false));
    let spoils = Arc::clone(&spoiling);
    let tamper: Tamper = Box::new(move |mut piece| {
        if *spoils.lock().unwrap() {
            seen += 1;
            if seen == 1 {
                *piece.last_mut().unwrap() ^= 1;
            }
        }
        Some(piece)
    });
    let address = between(&gateway, unchanged(), tamper).await;
    let reply = send(&client(), &gateway.id, address, "stream").await;
    let mut body = reply.unwrap().into_body();
    let events = gateway.next_stream().await;
    events.send(Ok("first".into())).await.unwrap();
    let first = within(body.frame()).await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "first");
    *spoiling.lock().unwrap() = true;
    events.send(Ok("second".into())).await.unwrap();
    assert!(within(body.frame()).await.unwrap().is_err());
}

#[tokio::test]
async fn a_reply_that_is_ended_early_is_not_whole() {
    let mut gateway = Gateway::start().await;
    let ending = Arc::new(Mutex::new(false));
    let ends = Arc::clone(&ending);
    let tamper: Tamper = Box::new(move |piece| (!*ends.lock().unwrap()).then_some(piece));
    let address = between(&gateway, unchanged(), tamper).await;
    let reply = send(&client(), &gateway.id, address, "stream").await;
    let mut body = reply.unwrap().into_body();
    let events = gateway.next_stream().await;
    events.send(Ok("event".into())).await.unwrap();
    assert!(within(body.frame()).await.unwrap().is_ok());
    *ending.lock().unwrap() = true;
    events.send(Ok("last".into())).await.unwrap();
    drop(events);
    assert!(within(body.frame()).await.unwrap().is_err());
}

#[tokio::test]
async fn a_request_whose_reply_is_stopped_on_its_way_may_have_been_delivered() {
    let mut gateway = Gateway::start().await;
    let stopping = Arc::new(Mutex::new(false));
    let stops = Arc::clone(&stopping);
    let tamper: Tamper = Box::new(move |piece| (!*stops.lock().unwrap()).then_some(piece));
    let address = between(&gateway, unchanged(), tamper).await;
    let (client, to) = (client(), gateway.id.clone());
    let sending = tokio::spawn(async move { send(&client, &to, address, "never").await });
    // It is being served.
    let events = gateway.next_stream().await;
    *stopping.lock().unwrap() = true;
    gateway.serving.abort();
    let error = within(sending).await.unwrap().unwrap_err();
    assert!(matches!(error, PeerError::Broken(_)) && !error.is_undelivered());
    drop(events);
}
