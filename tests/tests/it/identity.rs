//! Who a request is from, where a proxy says so: nobody else is believed, and nobody reaches another's session.

use http::{HeaderValue, Method, StatusCode};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::{McpSession, Opening};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::rig::{connect_from, increment, kept, post_of, raw_post, refusal};

const USER: &str = "x-mooring-user";

fn trusting(settings: Settings, peers: &str) -> Settings {
    settings
        .users_by_header()
        .env("MOORING_AUTH_TRUSTED_PEERS", peers)
}

fn opening(user: &str) -> anyhow::Result<Opening> {
    Opening::default().header(USER, user)
}

#[tokio::test]
async fn another_users_session_is_no_session() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let gateway = Gateway::start("identity", trusting(kept(&[fixture.url()]), "127.0.0.1")).await?;
    let client = HttpClient::default();
    let endpoint = [gateway.mcp_url("tools")];
    let mut ada = McpSession::open_with(&client, &endpoint, opening("ada@example.org")?).await?;
    assert_eq!(ada.increment().await?, 1);
    for other in [
        "bob@example.org",
        "ADA@example.org",
        "ada@example.org.evil",
        "local",
    ] {
        for method in [Method::POST, Method::GET, Method::DELETE] {
            let body = match method {
                Method::POST => increment("1").into(),
                _ => bytes::Bytes::new(),
            };
            let mut request = ada.http_request(method.clone(), body)?;
            request
                .headers_mut()
                .insert(USER, HeaderValue::from_static(other));
            let refused = refusal(client.send(request).await?).await?;
            assert_eq!(
                refused,
                (StatusCode::NOT_FOUND, -32001),
                "{method} by {other}"
            );
        }
    }
    let mut bob = McpSession::open_with(&client, &endpoint, opening("bob@example.org")?).await?;
    assert_eq!(bob.increment().await?, 1, "a session of his own");
    assert_eq!(ada.increment().await?, 2, "hers goes on");
    let stats = fixture.stats().await?;
    assert_eq!(
        (
            stats.initializes,
            stats.deletes,
            stats.calls_of("increment")
        ),
        (2, 0, 3)
    );
    Ok(())
}

#[tokio::test]
async fn a_request_that_names_nobody_is_refused() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let gateway = Gateway::start("identity", trusting(kept(&[fixture.url()]), "127.0.0.1")).await?;
    let client = HttpClient::default();
    let endpoint = [gateway.mcp_url("tools")];
    let mut ada = McpSession::open_with(&client, &endpoint, opening("ada")?).await?;
    let table: [(&str, &[&'static [u8]]); 6] = [
        ("no header", &[]),
        ("an empty header", &[b""]),
        ("the header twice", &[b"ada", b"ada"]),
        ("a second user", &[b"ada", b"bob"]),
        ("everybody", &[b"*"]),
        ("no UTF-8", &[b"ada\xff"]),
    ];
    for (what, values) in table {
        let mut request = post_of(&mut ada, increment("1"))?;
        request.headers_mut().remove(USER);
        for value in values {
            request
                .headers_mut()
                .append(USER, HeaderValue::from_bytes(value)?);
        }
        let refused = refusal(client.send(request).await?).await?;
        assert_eq!(refused, (StatusCode::UNAUTHORIZED, -32005), "{what}");
    }
    assert_eq!(ada.increment().await?, 1, "nothing of it ran");
    Ok(())
}

#[tokio::test]
async fn only_a_listed_peer_is_believed() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let gateway = Gateway::start(
        "identity",
        trusting(kept(&[fixture.url()]), "127.0.0.1/32, ::1"),
    )
    .await?;
    let client = HttpClient::default();
    let mut ada =
        McpSession::open_with(&client, &[gateway.mcp_url("tools")], opening("ada")?).await?;
    let request = raw_post(&ada, &increment("1"));
    let request = request.replacen("\r\n", &format!("\r\n{USER}: ada\r\n"), 1);
    for (address, expected) in [
        ("127.0.0.2", "HTTP/1.1 403 "),
        ("127.0.0.1", "HTTP/1.1 200 "),
    ] {
        let mut connection = connect_from(address, &gateway).await?;
        connection.write_all(request.as_bytes()).await?;
        let mut reply = String::new();
        connection.read_to_string(&mut reply).await?;
        assert!(reply.starts_with(expected), "{address}: {reply}");
    }
    assert_eq!(ada.increment().await?, 2, "only the listed peer's call ran");
    Ok(())
}
