//! Pages of other origins: a browser lets one on an allowed origin call the gateway and read what it needs, and no other.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::Gateway;
use mooring_tests::servers::Server;
use mooring_tests::session::{McpSession, Opening};
use serde_json::{Value, json};

use crate::everything_streams::text_of;
use crate::rig::kept;

/// What an MCP client in a page does: a handshake, a call in the session that it was given, and a DELETE. It answers with
/// what it could read, or with the error of `fetch`.
const PAGE_CLIENT: &str = r#"async () => {
    const url = "GATEWAY";
    const post = (message, session) => fetch(url, {
        method: "POST",
        headers: {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "authorization": "Bearer of-the-page",
            "mcp-protocol-version": "2025-11-25",
            ...session,
        },
        body: JSON.stringify({jsonrpc: "2.0", ...message}),
    });
    try {
        const opened = await post({id: 1, method: "initialize", params: {
            protocolVersion: "2025-11-25", capabilities: {}, clientInfo: {name: "page", version: "1"},
        }});
        const id = opened.headers.get("mcp-session-id");
        const session = {"mcp-session-id": id, "x-mcp-session-id": id, "last-event-id": "1/1"};
        await post({method: "notifications/initialized"}, session);
        const called = await post({id: 2, method: "tools/call", params: {name: "increment", arguments: {}}}, session);
        const text = await called.text();
        const ended = await fetch(url, {method: "DELETE", headers: {"mcp-session-id": id}});
        return `called ${called.status} ended ${ended.status} ${text}`;
    } catch (error) {
        return `failed ${error}`;
    }
}"#;

/// What `PAGE_CLIENT` says on a page of this server.
async fn run_on_page(
    browser: &mut McpSession,
    page_of: &Fixture,
    gateway: &Gateway,
) -> anyhow::Result<String> {
    let page = page_of.url().replace("/mcp", "/stats");
    let opened = browser
        .call("browser_navigate", json!({"url": page}))
        .await?;
    assert_ne!(opened["isError"], true, "{opened}");
    let function = PAGE_CLIENT.replace("GATEWAY", &gateway.mcp_url("tools"));
    let result = browser
        .call("browser_evaluate", json!({"function": function}))
        .await?;
    assert_eq!(result["isError"], Value::Null, "{result}");
    Ok(text_of(&result).to_owned())
}

fn origin_of(fixture: &Fixture) -> String {
    fixture.url().trim_end_matches("/mcp").to_owned()
}

#[tokio::test]
async fn a_page_on_an_allowed_origin_keeps_a_session_and_no_other_page_does() -> anyhow::Result<()>
{
    let (ours, foreign) = (
        Fixture::start("ours").await?,
        Fixture::start("foreign").await?,
    );
    let settings = kept(&[ours.url()]).env("MOORING_LISTEN_ALLOWED_ORIGINS", &origin_of(&ours));
    let gateway = Gateway::start("pages", settings).await?;
    let browsers = Server::playwright("pages").await?;
    // The browser starts with the first page.
    let client = HttpClient::new(Duration::from_secs(60));
    let opening = Opening {
        capabilities: json!({}),
        ..Opening::default()
    };
    let mut browser = McpSession::open_with(&client, &[browsers.url()], opening).await?;

    let said = run_on_page(&mut browser, &ours, &gateway).await?;
    assert!(said.contains("called 200 ended 204"), "{said}");
    assert!(said.contains("count"), "{said}");

    let said = run_on_page(&mut browser, &foreign, &gateway).await?;
    assert!(said.contains("failed TypeError"), "{said}");
    assert_eq!(ours.stats().await?.initializes, 1);
    Ok(())
}

#[tokio::test]
async fn a_browser_is_told_what_a_page_on_an_allowed_origin_may_do() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let settings = kept(&[fixture.url()]).env(
        "MOORING_LISTEN_ALLOWED_ORIGINS",
        "https://app.example,http://localhost:6274",
    );
    let gateway = Gateway::start("preflight", settings).await?;
    let client = HttpClient::default();
    let ask = |method: Method, path: &str, headers: &[(&'static str, &'static str)]| {
        let mut request = Request::builder().method(method).uri(gateway.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Bytes::new())
    };
    const OURS: (&str, &str) = ("origin", "https://app.example");
    const FOREIGN: (&str, &str) = ("origin", "https://evil.example");
    const WISH: (&str, &str) = ("access-control-request-method", "POST");
    for path in [
        "/mcp",
        "/servers/tools/mcp",
        "/servers/tools/sse",
        "/servers/tools/messages",
    ] {
        let reply = client
            .send(ask(Method::OPTIONS, path, &[OURS, WISH])?)
            .await?;
        assert_eq!(reply.status, 204, "{path}");
        let header = |name| reply.header(name).unwrap_or_default().to_owned();
        assert_eq!(header("access-control-allow-origin"), OURS.1, "{path}");
        assert_eq!(header("vary"), "origin", "{path}");
        assert_eq!(
            header("access-control-allow-methods"),
            "GET, POST, PUT, DELETE"
        );
        for name in [
            "authorization",
            "content-type",
            "last-event-id",
            "mcp-protocol-version",
            "mcp-session-id",
            "x-mcp-session-id",
        ] {
            let allowed = header("access-control-allow-headers");
            assert!(
                allowed.split(", ").any(|one| one == name),
                "{name}: {allowed}"
            );
        }
        // Cookies are nothing that a page may send along.
        assert_eq!(header("access-control-allow-credentials"), "");
        let refused = client
            .send(ask(Method::OPTIONS, path, &[FOREIGN, WISH])?)
            .await?;
        assert_eq!(refused.status, 403, "{path}");
        assert_eq!(refused.header("access-control-allow-origin"), None);
    }
    // A refusal can be read too, and tells the page why.
    let reply = client.send(ask(Method::GET, "/mcp", &[OURS])?).await?;
    assert_eq!(reply.status, 406);
    assert_eq!(reply.header("access-control-allow-origin"), Some(OURS.1));
    let exposed = reply
        .header("access-control-expose-headers")
        .unwrap_or_default();
    assert!(exposed.contains("mcp-session-id, "), "{exposed}");
    // Without an origin nobody is allowed anything, and an OPTIONS is a method like others.
    let reply = client.send(ask(Method::OPTIONS, "/mcp", &[WISH])?).await?;
    assert_eq!(reply.status, 405);
    assert_eq!(reply.header("access-control-allow-origin"), None);
    Ok(())
}
