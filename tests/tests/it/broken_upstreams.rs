//! Servers that cannot be reached: what the client is told, what `/readyz` and `/metrics` say, and what they keep to
//! themselves.

use anyhow::Context as _;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::port::free_port;
use mooring_tests::session::McpSession;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::rig::initialize_params;

/// In the address of a server, its variables and what it writes: nobody may be shown it.
const SECRET: &str = "s3cret-of-the-server";

/// A server that answers every connection with this text and closes it; with nothing, it never answers.
async fn answering(text: &'static str) -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = connection.read(&mut request).await;
            if text.is_empty() {
                open.push(connection);
            } else {
                let _ = connection.write_all(text.as_bytes()).await;
            }
        }
    });
    Ok(port)
}

const NOT_FOUND: &str =
    "HTTP/1.1 404 Not Found\r\ncontent-length: 9\r\nconnection: close\r\n\r\nnot found";
const PAGE: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>";
const BAD_GATEWAY: &str =
    "HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// What each broken server is, what its client reads, and the outcome of its last contact.
async fn breakages() -> anyhow::Result<Vec<(&'static str, String, &'static str, &'static str)>> {
    let http = |url: String| format!("kind = \"http\"\ninstances = [{url:?}]");
    let crash = format!(
        "kind = \"stdio\"\ncommand = [\"sh\", \"-c\", \"echo started; echo \\\"Error: missing API_KEY, not $TOKEN\\\" >&2; exit 3\"]\nenv = {{ TOKEN = {SECRET:?} }}"
    );
    let missing = free_port()?;
    let (page, silent) = (answering(PAGE).await?, answering("").await?);
    let (gone, plain) = (answering(NOT_FOUND).await?, answering(PAGE).await?);
    let (gone_sse, proxy) = (answering(NOT_FOUND).await?, answering(BAD_GATEWAY).await?);
    Ok(vec![
        (
            "program",
            "kind = \"stdio\"\ncommand = [\"/nowhere/mooring-no-such-program\"]".to_owned(),
            "\"mooring-no-such-program\" was not found",
            "not_started",
        ),
        (
            "crash",
            crash,
            "exit status: 3, before it answered `initialize`; it wrote: Error: missing API_KEY, not ***",
            "not_started",
        ),
        (
            "refused",
            http(format!("http://127.0.0.1:{missing}/mcp?key={SECRET}")),
            "connection refused",
            "refused",
        ),
        (
            "name",
            http("http://no-such-host.invalid/mcp".to_owned()),
            "lookup",
            "connect",
        ),
        (
            "tls",
            http(format!("https://127.0.0.1:{plain}/mcp")),
            "InvalidContentType",
            "tls",
        ),
        (
            "silent",
            http(format!("http://127.0.0.1:{silent}/mcp")),
            "did not answer",
            "timed_out",
        ),
        (
            "proxy",
            http(format!("http://127.0.0.1:{proxy}/mcp")),
            "HTTP status 502",
            "status",
        ),
        (
            "gone",
            http(format!("http://127.0.0.1:{gone}/mcp")),
            "",
            "status",
        ),
        (
            "page",
            http(format!("http://127.0.0.1:{page}/mcp")),
            "",
            "invalid",
        ),
        (
            "gone-sse",
            format!("kind = \"sse\"\ninstances = [\"http://127.0.0.1:{gone_sse}/sse\"]"),
            "HTTP status 404",
            "status",
        ),
    ])
}

#[tokio::test]
async fn the_client_and_the_operator_are_told_why_a_server_is_away() -> anyhow::Result<()> {
    let breakages = breakages().await?;
    let good = Fixture::start("good").await?;
    for affinity in ["true", "false"] {
        let mut toml = format!(
            "[affinity]\nenabled = {affinity}\n[upstream]\nresponse_headers_timeout_ms = 1000\n\
             [[servers]]\nid = \"good\"\nkind = \"http\"\ninstances = [{:?}]\n",
            good.url()
        );
        for (id, lines, ..) in &breakages {
            toml.push_str(&format!("[[servers]]\nid = {id:?}\n{lines}\n"));
        }
        let gateway = Gateway::start("alone", Settings::toml(toml)).await?;
        let client = HttpClient::default();
        let mut session = McpSession::open(&client, &[gateway.mcp_url("good")]).await?;
        session.increment().await?;
        for (id, _, words, outcome) in &breakages {
            let (status, answer) = initialize(&client, &gateway, id).await?;
            assert!(matches!(status, 502..=504), "{id}: {status} {answer}");
            let message = answer["error"]["message"].to_string().replace('\\', "");
            assert!(message.contains(words), "{id}: {message}");
            let labels = [format!("server={id:?}"), format!("outcome={outcome:?}")];
            let labels = labels.each_ref().map(String::as_str);
            let shown = gateway
                .metric("mooring_server_last_contact", &labels)
                .await?;
            assert!(shown > 0.5, "{id}: the metric of {outcome}");
            assert!(
                !message.contains(SECRET) && !message.contains("/nowhere"),
                "{message}"
            );
        }
        let ready = client.get(&gateway.url("/readyz")).await?;
        assert_eq!(ready.status, 200, "the others are served");
        let ready = ready.json().await?;
        assert_eq!(ready["status"], "degraded");
        let servers = &ready["parts"]["servers"];
        for (id, _, _, outcome) in &breakages {
            let server = &servers[id];
            assert_eq!(server["status"], "unavailable", "{id}: {server}");
            let contact = &server["last_contact"];
            assert_eq!(contact["outcome"], *outcome, "{id}: {server}");
            assert!(contact["at_ms"].as_u64().is_some_and(|at| at > 0));
            assert!(contact["cause"].is_string(), "{id}: {server}");
        }
        assert_eq!(servers["good"]["status"], "ok");
        assert_eq!(servers["good"]["last_contact"]["cause"], Value::Null);
        let text = ready.to_string();
        assert!(!text.contains(SECRET), "{text}");
        assert!(!text.contains("API_KEY"), "the program's words: {text}");
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_back_is_shown_so() -> anyhow::Result<()> {
    let mut fixture = Fixture::start("one").await?;
    let settings = crate::rig::kept(&[fixture.url()]);
    let gateway = Gateway::start("alone", settings).await?;
    let client = HttpClient::default();
    let tools = async || -> anyhow::Result<(Value, Value)> {
        let ready = client.get(&gateway.url("/readyz")).await?.json().await?;
        let tools = ready["parts"]["servers"].get("tools").context("tools")?;
        Ok((ready["status"].clone(), tools["status"].clone()))
    };
    assert_eq!(tools().await?, (json!("ok"), json!("unknown")));
    fixture.process().kill_now()?;
    initialize(&client, &gateway, "tools").await?;
    assert_eq!(tools().await?, (json!("degraded"), json!("unavailable")));
    fixture.restart().await?;
    let mut session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    session.increment().await?;
    assert_eq!(tools().await?, (json!("ok"), json!("ok")));
    Ok(())
}

/// The status of an `initialize`, and its body.
async fn initialize(
    client: &HttpClient,
    gateway: &Gateway,
    server: &str,
) -> anyhow::Result<(u16, Value)> {
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize_params(),
    });
    let request = http::Request::post(gateway.mcp_url(server))
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .body(body.to_string().into())?;
    let reply = client.send(request).await?;
    Ok((reply.status.as_u16(), reply.json().await?))
}
