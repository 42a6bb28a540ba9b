//! What is not let in, and to whom nothing is sent.
use rustls::client::ResolvesClientCert;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::*;
use crate::fleet::tls_name;

/// A client without a certificate.
#[derive(Debug)]
struct Nobody;

impl ResolvesClientCert for Nobody {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// A request that would be served.
fn request() -> Vec<u8> {
    post("/peer/v2/serve", FIELDS, b"hello")
}

const FIELDS: &str = "mooring-peer-session: bQ\r\nmooring-peer-principal: em9l\r\nmooring-peer-server: files\r\n\
                      mooring-peer-epoch: 7\r\n";

fn post(path: &str, fields: &str, message: &[u8]) -> Vec<u8> {
    let length = message.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: b\r\nconnection: close\r\n{fields}content-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), message].concat()
}

/// Writes this, and answers with all that comes back before the connection ends, in whatever way.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) -> String {
    let mut answer = Vec::new();
    let exchanging = async {
        // The other side may close at any moment.
        let _ = stream.write_all(bytes).await;
        let _ = stream.read_to_end(&mut answer).await;
    };
    within(exchanging).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// The same over TLS; nothing where the handshake fails.
async fn exchange_tls(gateway: &Gateway, config: ClientConfig, bytes: &[u8]) -> String {
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let name = ServerName::try_from(tls_name(&gateway.id)).unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    match within(connector.connect(name, stream)).await {
        Ok(stream) => exchange(stream, bytes).await,
        Err(_) => String::new(),
    }
}

fn config(keys: &[&[u8]]) -> ClientConfig {
    (*tls("a:1", keys).client()).clone()
}

#[tokio::test]
async fn who_has_no_key_is_not_served() {
    let gateway = Gateway::start().await;
    let served = exchange_tls(&gateway, config(&[KEY]), &request()).await;
    assert!(served.starts_with("HTTP/1.1 202 "), "{served}");
    assert_eq!(gateway.calls(), 1);

    let mut nobody = config(&[KEY]);
    nobody.client_auth_cert_resolver = Arc::new(Nobody);
    // It verifies this gateway, and has a certificate that this gateway cannot verify.
    let stranger = config(&[b"another fleet's key", KEY]);
    for (who, config) in [("nobody", nobody), ("stranger", stranger)] {
        let reply = exchange_tls(&gateway, config, &request()).await;
        assert_eq!(reply, "", "{who}");
    }
    for (what, bytes) in [
        ("plain HTTP", request()),
        ("garbage", vec![0; 100]),
        (
            "nothing of a record",
            b"\x16\x03\x01\x02\x00 no TLS\r\n\r\n".to_vec(),
        ),
    ] {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let reply = exchange(stream, b"").await;
        assert!(!reply.contains("HTTP"), "{what}: {reply}");
    }
    assert_eq!(gateway.calls(), 1);
}

#[tokio::test]
async fn a_request_of_a_peer_is_within_limits_and_well_formed() {
    let gateway = Gateway::start().await;
    let without_epoch = FIELDS.replace("mooring-peer-epoch: 7\r\n", "");
    let large = format!("content-length: {}\r\n", BODY_BYTES_MAX + 1);
    let head = format!("POST /peer/v2/serve HTTP/1.1\r\nhost: b\r\n{FIELDS}{large}\r\n");
    for (what, bytes) in [
        ("no epoch", post("/peer/v2/serve", &without_epoch, b"")),
        (
            "epoch",
            post("/peer/v2/serve", &FIELDS.replace('7', "-7"), b""),
        ),
        (
            "key",
            post("/peer/v2/serve", &FIELDS.replace("bQ", "b!"), b""),
        ),
        (
            "principal",
            post("/peer/v2/serve", &FIELDS.replace("em9l", "Kg"), b""),
        ),
        ("no fields", post("/peer/v2/serve", "", b"")),
        ("too large", head.into_bytes()),
    ] {
        let reply = exchange_tls(&gateway, config(&[KEY]), &bytes).await;
        assert!(reply.starts_with("HTTP/1.1 400 "), "{what}: {reply}");
        assert!(!reply.contains("mooring-peer-outcome"), "{what}: {reply}");
    }
    // Of another release: what it asks is not done, and it learns that.
    for path in [
        "/peer/v1",
        "/peer/v2/",
        "/peer/v2/serve/",
        "/peer/v3/serve",
        "/metrics",
    ] {
        let reply = exchange_tls(&gateway, config(&[KEY]), &post(path, FIELDS, b"")).await;
        let outcome = "mooring-peer-outcome: unsupported";
        assert!(reply.contains(outcome), "{path}: {reply}");
    }
    assert_eq!(gateway.calls(), 0);
}

#[tokio::test]
async fn a_reply_without_an_outcome_is_not_the_connections() {
    let gateway = Gateway::start().await;
    let too_large = vec![0; BODY_BYTES_MAX + 1];
    let sent = send(&client(), &gateway.id, gateway.address, too_large).await;
    let error = sent.unwrap_err();
    // The gateway closes before it has read all of it, so its reply may not arrive.
    let is_expected = matches!(
        error,
        PeerError::Unexpected(StatusCode::BAD_REQUEST) | PeerError::Broken(_)
    );
    assert!(is_expected && !error.is_undelivered(), "{error:?}");
    assert_eq!(gateway.calls(), 0);
}

#[tokio::test]
async fn a_header_that_does_not_fit_is_not_sent() {
    let mut gateway = Gateway::start().await;
    let (client, address) = (client(), gateway.address.to_string());
    let mut forward = asking("x");
    for _ in 0..80 {
        (forward.headers).append("mcp-param-a", HeaderValue::from_static("b"));
    }
    let sent = within(client.send(&gateway.id, &address, &forward, pending())).await;
    assert!(sent.is_ok(), "{sent:?}");
    assert_eq!(within(gateway.asked.recv()).await, Some(forward.clone()));
    let (mut many, mut long) = (forward.clone(), asking("x"));
    (many.headers).append("mcp-param-a", HeaderValue::from_static("b"));
    let value = HeaderValue::from_str(&"x".repeat(64 * 1024)).unwrap();
    long.headers.insert("mcp-param-a", value);
    for forward in [many, long] {
        let sent = client.send(&gateway.id, &address, &forward, pending());
        let error = within(sent).await.unwrap_err();
        assert!(matches!(error, PeerError::TooLarge(_)) && error.is_undelivered());
    }
    assert_eq!(gateway.calls(), 1);
}

#[tokio::test]
async fn who_asks_with_another_key_is_refused() {
    let gateway = Gateway::start().await;
    // Neither knows the other's key: nothing is sent.
    let stranger = PeerClient::new(&tls("a:1", &[b"another key"]));
    let sent = send(&stranger, &gateway.id, gateway.address, "x").await;
    let error = sent.unwrap_err();
    assert!(matches!(error, PeerError::Unverified(_)) && error.is_undelivered());
    // It still accepts the fleet's old key, and signs with one that the other does not have yet: it is refused after its
    // own handshake has succeeded, when it may have sent the request.
    let early = PeerClient::new(&tls("a:1", &[b"another key", KEY]));
    let sent = send(&early, &gateway.id, gateway.address, "x").await;
    let error = sent.unwrap_err();
    assert!(matches!(error, PeerError::Broken(_)) && !error.is_undelivered());
    assert_eq!(gateway.calls(), 0);
}

#[tokio::test]
async fn another_boot_at_the_announced_address_receives_nothing() {
    let gateway = Gateway::start().await;
    let client = client();
    // A connection to the boot that is there must not serve for another.
    let reply = send(&client, &gateway.id, gateway.address, "x")
        .await
        .unwrap();
    within(reply.into_body().collect()).await.unwrap();
    for other in ["b:0", "b:2", "c:1", "a:1"] {
        let sent = send(&client, &worker(other), gateway.address, "x").await;
        let error = sent.unwrap_err();
        assert!(
            matches!(error, PeerError::OtherGateway),
            "{other}: {error:?}"
        );
        assert!(error.is_undelivered());
    }
    assert_eq!(gateway.calls(), 1);
}

#[tokio::test]
async fn who_took_over_an_address_learns_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stolen = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = vec![0; 64 * 1024];
        let count = stream.read(&mut bytes).await.unwrap();
        bytes.truncate(count);
        let answer =
            b"HTTP/1.1 200 OK\r\nmooring-peer-outcome: served\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        stream.read_to_end(&mut bytes).await.unwrap();
        bytes
    });
    let sent = send(&client(), &worker("b:1"), address, "the marker").await;
    let error = sent.unwrap_err();
    assert!(matches!(error, PeerError::Unverified(_)) && error.is_undelivered());
    let bytes = within(stolen).await.unwrap();
    assert_eq!(bytes.first(), Some(&0x16), "a handshake was begun");
    for secret in ["the marker", "mcpgw", "zoe", "HTTP"] {
        let is_shown = bytes
            .windows(secret.len())
            .any(|part| part == secret.as_bytes());
        assert!(!is_shown, "{secret}");
    }
}

#[tokio::test]
async fn an_announced_address_cannot_choose_who_has_to_answer() {
    let gateway = Gateway::start().await;
    let (client, to, there) = (client(), worker("b:9"), gateway.address);
    let name = tls_name(&gateway.id);
    for announced in [
        format!("{name}@{there}"),
        format!("{there}/@{name}"),
        format!("{there}?"),
        format!("{there}|AAAAAAAAAAAAAAAAAAAAAA"),
        "no address".to_owned(),
        String::new(),
    ] {
        let sent = send(&client, &to, &announced, "x").await;
        let error = sent.unwrap_err();
        assert!(error.is_undelivered(), "{announced}: {error:?}");
    }
    assert_eq!(gateway.calls(), 0);
}

#[tokio::test]
async fn where_nobody_listens_nothing_was_delivered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = send(&client(), &worker("b:1"), address, "x").await;
    let error = error.unwrap_err();
    assert!(matches!(error, PeerError::Refused) && error.is_undelivered());
}

#[test]
fn every_reason_and_outcome_is_documented() {
    const PAGE: &str = include_str!("../../../../docs/metrics.md");
    let verdicts = Verdict::VARIANTS.iter().map(<&str>::from);
    for word in crate::metrics::REFUSAL_REASONS.into_iter().chain(verdicts) {
        assert!(PAGE.contains(&format!("`{word}`")), "{word}");
    }
}
