//! What the tests of the HTTP surface share: a gateway with a store of its own, requests as raw bytes, and the
//! measure of "nothing happened".

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{Request, StatusCode};
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::fleet::settings_toml;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::McpSession;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// How long a raw exchange may take.
pub(crate) const RAW_WITHIN: Duration = Duration::from_secs(60);

/// Settings with affinity on, the embedded store and one server, `tools`.
pub(crate) fn kept(instances: &[String]) -> Settings {
    Settings::toml(settings_toml("embedded", instances))
}

/// A gateway with these settings that shares its sessions with every other in `state_home`.
pub(crate) async fn sharing(
    name: &str,
    settings: &Settings,
    state_home: &Path,
) -> anyhow::Result<Gateway> {
    Gateway::start(name, settings.clone().state_home(state_home)).await
}

/// How many store commands the gateway has run for its clients. Its own heartbeat is not counted, nor what it reads of the
/// desired state, nor that a call which was answered passes its turn on, which nobody waits for.
pub(crate) async fn store_commands(gateway: &Gateway) -> anyhow::Result<f64> {
    let metrics = gateway.metrics().await?;
    let counts = metrics
        .lines()
        .filter(|line| line.starts_with("mooring_store_duration_seconds_count{"))
        .filter(|line| {
            // Heartbeats, what operators want, histories, and turns that were left before.
            let own = ["\"WORKER.", "\"HGET", "\"RPUSH", "SESSION.LEAVE"];
            !own.iter().any(|command| line.contains(command))
        })
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    Ok(counts.sum())
}

/// The request `tools/call` of `increment` with this id, given as JSON.
pub(crate) fn increment(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"increment","arguments":{{}}}}}}"#
    )
}

/// A POST of this text in the session.
pub(crate) fn post_of(
    session: &mut McpSession,
    text: impl Into<Bytes>,
) -> anyhow::Result<Request<Bytes>> {
    session.http_request(http::Method::POST, text.into())
}

/// Posts this text in the session; the reply as it is.
pub(crate) async fn post_text(
    client: &HttpClient,
    session: &mut McpSession,
    text: impl Into<Bytes>,
) -> anyhow::Result<Reply> {
    client.send(post_of(session, text)?).await
}

/// The status of a reply and the code of the JSON-RPC error in it. Fails where the body of a refusal is no whole
/// JSON-RPC error.
pub(crate) async fn refusal(reply: Reply) -> anyhow::Result<(StatusCode, i64)> {
    let status = reply.status;
    let body = reply.json().await?;
    ensure!(body["jsonrpc"] == "2.0", "no JSON-RPC: {body}");
    let message = body["error"]["message"].as_str().unwrap_or_default();
    ensure!(!message.is_empty(), "an error says what is wrong: {body}");
    let code = body["error"]["code"].as_i64().context("an error code")?;
    Ok((status, code))
}

/// Params of `initialize`.
pub(crate) fn initialize_params() -> Value {
    json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "mooring-tests", "version": "1"},
    })
}

/// A TCP connection to the gateway from this address of the loopback network.
pub(crate) async fn connect_from(address: &str, gateway: &Gateway) -> anyhow::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(format!("{address}:0").parse()?)?;
    let there = format!("127.0.0.1:{}", gateway.port()).parse()?;
    Ok(socket.connect(there).await?)
}

/// The head of a POST to `tools` in this session, short of the headers that frame the body.
pub(crate) fn raw_head(session: &McpSession) -> String {
    format!(
        "POST /servers/tools/mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\nmcp-session-id: {}\r\n",
        session.id().unwrap_or_default()
    )
}

/// A whole POST to `tools` in this session, after which the connection is closed.
pub(crate) fn raw_post(session: &McpSession, body: &str) -> String {
    let (head, length) = (raw_head(session), body.len());
    format!("{head}content-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

/// Sends these bytes and reads until the gateway closes; what came.
pub(crate) async fn raw_exchange(gateway: &Gateway, bytes: &[u8]) -> anyhow::Result<String> {
    let mut stream = connect_from("127.0.0.1", gateway).await?;
    stream.write_all(bytes).await?;
    let mut reply = Vec::new();
    let read = tokio::time::timeout(RAW_WITHIN, stream.read_to_end(&mut reply));
    match read.await.context("the gateway does not close")? {
        // A gateway that refuses a body that it has not read closes with a reset; what it said before counts.
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => return Err(error.into()),
    }
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

/// Reads from a raw connection until `needle` has come; everything that came.
pub(crate) async fn read_until(
    stream: &mut TcpStream,
    needle: &str,
    within: Duration,
) -> anyhow::Result<String> {
    let mut all = Vec::new();
    let reading = async {
        let mut buffer = vec![0; 64 * 1024];
        while !String::from_utf8_lossy(&all).contains(needle) {
            let read = stream.read(&mut buffer).await?;
            ensure!(read > 0, "the stream ended before {needle:?}");
            all.extend_from_slice(buffer.get(..read).unwrap_or_default());
        }
        Ok(())
    };
    tokio::time::timeout(within, reading)
        .await
        .with_context(|| format!("waited for {needle:?}"))??;
    Ok(String::from_utf8_lossy(&all).into_owned())
}

/// The most memory that the gateway has ever had resident, in KiB.
pub(crate) fn resident_peak_kib(process: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(number.context("a peak of resident memory")?.parse()?)
}
