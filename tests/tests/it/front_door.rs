//! What clients may use up before they have said who they are: connections, time, streams and memory. Whatever they do,
//! health probes are answered, and who comes later is served.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::Request;
use mooring_tests::client::HttpClient;
use mooring_tests::code::CodeVolume;
use mooring_tests::fixture::Fixture;
use mooring_tests::gate::Gate;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::{McpSession, Opening};
use mooring_tests::wait;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::rig::{
    RAW_WITHIN, connect_from, increment, kept, post_text, raw_exchange, raw_head, read_until,
};

/// The gateway is at a limit of its own.
const OVERLOADED: i64 = -32015;
/// What a client sends that speaks HTTP/2 without asking first (RFC 9113, 3.4), and its empty settings.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

async fn silent_connections(gateway: &Gateway, count: usize) -> anyhow::Result<Vec<TcpStream>> {
    let mut silent = Vec::with_capacity(count);
    for _ in 0..count {
        silent.push(connect_from("127.0.0.1", gateway).await?);
    }
    Ok(silent)
}

/// Reads until the gateway closes; what came.
async fn read_to_close(stream: &mut TcpStream) -> anyhow::Result<Vec<u8>> {
    let mut read = Vec::new();
    let ended = tokio::time::timeout(RAW_WITHIN, stream.read_to_end(&mut read));
    match ended.await.context("the connection is not closed")? {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => Err(error.into()),
        _ => Ok(read),
    }
}

async fn check_probes(gateway: &Gateway) -> anyhow::Result<()> {
    for path in ["/healthz", "/readyz", "/metrics"] {
        let head = format!("GET {path} HTTP/1.1\r\nhost: 10.0.0.1\r\nconnection: close\r\n\r\n");
        let reply = raw_exchange(gateway, head.as_bytes()).await?;
        ensure!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {reply}");
    }
    Ok(())
}

/// Whether a client with connections of its own is served.
async fn is_served(gateway: &Gateway) -> anyhow::Result<bool> {
    let opened = McpSession::open(&HttpClient::default(), &[gateway.mcp_url("tools")]).await;
    match opened {
        Ok(mut session) => Ok(session.increment().await? == 1),
        Err(_) => Ok(false),
    }
}

#[tokio::test]
async fn probes_are_answered_while_clients_have_used_up_the_connections() -> anyhow::Result<()> {
    const MAX: usize = 12;
    let fixture = Fixture::start("one").await?;
    let settings = kept(&[fixture.url()])
        .env("MOORING_LISTEN_CONNECTIONS_MAX", &MAX.to_string())
        .env("MOORING_LISTEN_HEADER_TIMEOUT_MS", "600000")
        .env("MOORING_LISTEN_IDLE_TIMEOUT_MS", "100");
    let gateway = Gateway::start("full", settings).await?;
    let mut silent = silent_connections(&gateway, MAX).await?;
    let refused = async || {
        let client = HttpClient::default();
        let request = Request::post(gateway.mcp_url("tools")).body(Bytes::from_static(b"{}"))?;
        let reply = client.send(request).await?;
        let (status, retry) = (reply.status, reply.header("retry-after").map(str::to_owned));
        let code = reply.json().await?["error"]["code"].as_i64();
        anyhow::Ok((status.as_u16(), retry.as_deref() == Some("1"), code))
    };
    // The harness's own connection, which asked for readiness, makes room when it ends: for one more of these.
    wait::until_true("the gateway to be full", RAW_WITHIN, async || {
        silent.push(connect_from("127.0.0.1", &gateway).await?);
        Ok(refused().await.ok() == Some((503, true, Some(OVERLOADED))))
    })
    .await?;
    for _ in 0..3 {
        check_probes(&gateway).await?;
    }
    // What the probes do not use is not there for whoever sends nothing.
    let more = silent_connections(&gateway, 100).await?;
    wait::until_true(
        "the connections beyond to be closed",
        RAW_WITHIN,
        async || {
            let name = "mooring_client_connections_refused_total";
            let refused = gateway.metric(name, &["reason=\"all\""]).await;
            Ok(refused.is_ok_and(|refused| refused > 0.0))
        },
    )
    .await?;
    wait::until_true("the probes to be answered", RAW_WITHIN, async || {
        Ok(check_probes(&gateway).await.is_ok())
    })
    .await?;
    drop((silent, more));
    wait::until_true("a client to be served", RAW_WITHIN, async || {
        is_served(&gateway).await
    })
    .await
}

#[tokio::test]
async fn more_silent_connections_than_the_soft_limit_of_files_leave_a_gateway_that_serves()
-> anyhow::Result<()> {
    const SOFT_LIMIT: u32 = 128;
    let fixture = Fixture::start("one").await?;
    let settings = kept(&[fixture.url()]).open_files(SOFT_LIMIT);
    let gateway = Gateway::start("files", settings).await?;
    let _silent = silent_connections(&gateway, 2 * SOFT_LIMIT as usize).await?;
    assert!(is_served(&gateway).await?);
    check_probes(&gateway).await
}

#[tokio::test]
async fn heads_that_do_not_arrive_and_idle_connections_are_cut_and_open_replies_are_not()
-> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let settings = kept(&[fixture.url()])
        .env("MOORING_LISTEN_HEADER_TIMEOUT_MS", "300")
        .env("MOORING_LISTEN_IDLE_TIMEOUT_MS", "300");
    let gateway = Gateway::start("cut", settings).await?;
    let mut session = McpSession::open(&HttpClient::default(), &[gateway.mcp_url("tools")]).await?;
    // A reply that takes longer than both time-outs, and the stream of the session.
    let gate = Gate::new()?;
    let call = json!({"name": "slow_increment", "arguments": {"until": gate.path()}});
    let call = session.request_body("tools/call", call);
    let mut reply = session.post(&call).await?;
    let mut stream = session.listen(None).await?;
    assert!(stream.next_event().await?.is_some(), "the stream has begun");
    const HEALTHZ: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for (what, sent) in [
        ("nothing", &b""[..]),
        ("half a head", b"GET /healthz HTTP/1.1\r\nhost: local"),
        ("half of HTTP/2's preface", &HTTP2_PREFACE[..10]),
        ("HTTP/2 without a request", HTTP2_PREFACE),
        ("one request", HEALTHZ),
        (
            "half a head after a request",
            &[HEALTHZ, b"GET /he"].concat(),
        ),
    ] {
        let mut stream = connect_from("127.0.0.1", &gateway).await?;
        stream.write_all(sent).await?;
        let read = read_to_close(&mut stream).await.context(what)?;
        let answered = String::from_utf8_lossy(&read).contains("HTTP/1.1 200 OK");
        assert_eq!(answered, sent.starts_with(HEALTHZ), "{what}");
    }
    // The cut connections above, one after the other, took several times as long as either time-out.
    gate.open()?;
    let answer = reply.next_message().await?.context("an answer")?;
    assert_eq!(answer["result"]["structuredContent"]["count"], 1);
    let ended = tokio::time::timeout(Duration::from_millis(100), stream.next_event()).await;
    assert!(ended.is_err(), "the stream has ended: {ended:?}");
    Ok(())
}

/// The value of a setting in the first SETTINGS frame of an HTTP/2 server (RFC 9113, 6.5).
fn http2_setting(frames: &[u8], id: u16) -> Option<u32> {
    const HEAD_BYTES: usize = 9;
    let length = usize::from(*frames.get(2)?);
    let settings = frames.get(HEAD_BYTES..HEAD_BYTES + length)?;
    let entry = settings
        .chunks_exact(6)
        .find(|entry| entry[..2] == id.to_be_bytes())?;
    Some(u32::from_be_bytes(entry[2..].try_into().ok()?))
}

#[tokio::test]
async fn http2_is_limited_in_requests_and_windows_or_turned_off() -> anyhow::Result<()> {
    const MAX_CONCURRENT_STREAMS: u16 = 3;
    const INITIAL_WINDOW_SIZE: u16 = 4;
    let fixture = Fixture::start("one").await?;
    let greeted = async |settings: Settings| {
        let settings = settings.env("MOORING_LISTEN_HEADER_TIMEOUT_MS", "500");
        let gateway = Gateway::start("h2", settings).await?;
        let mut stream = connect_from("127.0.0.1", &gateway).await?;
        stream.write_all(HTTP2_PREFACE).await?;
        read_to_close(&mut stream).await
    };
    let read = greeted(kept(&[fixture.url()])).await?;
    assert_eq!(http2_setting(&read, MAX_CONCURRENT_STREAMS), Some(64));
    assert_eq!(http2_setting(&read, INITIAL_WINDOW_SIZE), Some(256 * 1024));
    let off = kept(&[fixture.url()]).env("MOORING_LISTEN_HTTP2_STREAMS_MAX", "0");
    let read = greeted(off).await?;
    let said = String::from_utf8_lossy(&read);
    assert!(
        said.is_empty() || said.starts_with("HTTP/1.1 400 "),
        "{said}"
    );
    Ok(())
}

#[tokio::test]
async fn bodies_that_are_being_read_share_one_budget_and_give_it_back() -> anyhow::Result<()> {
    const BODY_BYTES_MAX: usize = 256 * 1024;
    let fixture = Fixture::start("one").await?;
    let settings = kept(&[fixture.url()])
        .env("MOORING_LISTEN_BODY_BYTES_MAX", &BODY_BYTES_MAX.to_string())
        .env(
            "MOORING_LISTEN_BODY_BUDGET_BYTES",
            &(4 * BODY_BYTES_MAX).to_string(),
        );
    let gateway = Gateway::start("bodies", settings).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    // Bodies that lack their last byte: three fit, beside the reserve for short ones.
    let head = format!(
        "{}content-length: {BODY_BYTES_MAX}\r\n\r\n",
        raw_head(&session)
    );
    let part = [head.as_bytes(), &vec![b' '; BODY_BYTES_MAX - 1]].concat();
    let mut open = Vec::new();
    for _ in 0..5 {
        let mut stream = connect_from("127.0.0.1", &gateway).await?;
        stream.write_all(&part).await?;
        open.push(stream);
    }
    let refused = wait::until("one body to be refused", RAW_WITHIN, async || {
        let answered = open
            .iter()
            .position(|stream| stream.try_read(&mut [0; 1]).is_ok());
        Ok(answered)
    });
    let mut refused = open.remove(refused.await?);
    let said = read_until(&mut refused, &OVERLOADED.to_string(), RAW_WITHIN).await?;
    assert!(said.contains(" 503 Service Unavailable\r\n"), "{said}");
    assert!(said.contains("retry-after: 1\r\n"), "{said}");
    let post = async |session: &mut McpSession, body: Vec<u8>| {
        let reply = post_text(&client, session, body).await?;
        anyhow::Ok(reply.status.as_u16())
    };
    let long = vec![b' '; BODY_BYTES_MAX];
    // The bodies that were not refused may still be on their way.
    wait::until_true("the budget to be used up", RAW_WITHIN, async || {
        Ok(post(&mut session, long.clone()).await? == 503)
    })
    .await?;
    // Short ones have a reserve, and a request without a body needs none of it.
    assert_eq!(post(&mut session, increment("1").into()).await?, 200);
    check_probes(&gateway).await?;
    // The body that is completed is answered, and the ones that break off are given up.
    let is_open = |stream: &TcpStream| stream.try_read(&mut [0; 1]).is_err();
    let held = open.iter().position(is_open).context("an open body")?;
    let mut last = open.remove(held);
    last.write_all(b" ").await?;
    read_until(&mut last, "HTTP/1.1 400 Bad Request", RAW_WITHIN).await?;
    drop(open);
    wait::until_true("the budget to be given back", RAW_WITHIN, async || {
        Ok(post(&mut session, long.clone()).await? == 400)
    })
    .await
}

/// Each user has an allowance of their own, which the REST interface and each message of a batch take from, too.
#[tokio::test]
async fn the_requests_of_a_user_are_limited() -> anyhow::Result<()> {
    let (fixture, volume) = (Fixture::start("one").await?, CodeVolume::new()?);
    let settings = Settings::toml(format!(
        "[listen]\nrequests_per_user_per_minute = 10\n\
         [[servers]]\nid = \"tools\"\ninstances = [{:?}]\n\
         [[servers]]\nid = \"sandbox\"\nkind = \"code\"\nallow = [{{}}]\n",
        fixture.url()
    ))
    .users_by_header()
    .env(
        "MOORING_CODE_BASE_DIR",
        &volume.path().display().to_string(),
    );
    let mut gateway = Gateway::start("limited", settings).await?;
    let client = HttpClient::default();
    let open = async |user: &str, protocol_version: &str| {
        let opening = Opening {
            protocol_version: protocol_version.to_owned(),
            ..Opening::default().header("x-mooring-user", user)?
        };
        McpSession::open_with(&client, &[gateway.mcp_url("tools")], opening).await
    };
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let runs = async |user: &str| {
        let request = Request::get(gateway.url("/servers/sandbox/code/runs"))
            .header("x-mooring-user", user)
            .body(Bytes::new())?;
        client.send(request).await
    };

    let mut ada = open("ada", "2025-11-25").await?;
    for _ in 0..7 {
        let reply = ada.post(&ping).await?;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    }
    let tenth = runs("ada").await?;
    assert_eq!(tenth.status, 200);
    assert_eq!(tenth.header("cache-control"), Some("no-store"));
    for reply in [ada.post(&ping).await?, runs("ada").await?] {
        assert_eq!(reply.status, 429);
        let seconds: u64 = reply.header("retry-after").context("a wait")?.parse()?;
        assert!((1..=6).contains(&seconds), "{seconds}");
    }
    let mut bob = open("bob", "2025-03-26").await?;
    let batch = |count| Value::from(vec![ping.clone(); count]);
    assert_eq!(bob.post(&batch(9)).await?.status, 429, "nine of eight");
    assert_eq!(bob.post(&batch(7)).await?.status, 200);
    let limit = "listen.requests_per_user_per_minute";
    let label = format!("limit=\"{limit}\"");
    let counted = gateway
        .metric("mooring_requests_refused_total", &[label.as_str()])
        .await?;
    assert!(counted >= 3.0, "{counted}");
    // Two of MCP, and one of the REST interface.
    let text = format!("limit={limit}");
    let log = wait::until_logged(&text, 3, || gateway.process().log_text()).await?;
    let users: BTreeSet<&str> = (log.lines())
        .filter(|line| line.contains(limit))
        .filter_map(|line| line.split("user=").nth(1)?.get(..16))
        .collect();
    assert_eq!(users.len(), 2, "each line names its user: {log}");
    Ok(())
}
