//! Servers that redirect their endpoint: the same request is sent to another path of theirs, and to nobody else.

use mooring_tests::client::HttpClient;
use mooring_tests::gateway::Gateway;
use mooring_tests::session::McpSession;
use serde_json::json;

use crate::rig::kept;
use crate::scripted::{Seen, initialize_result};
use crate::small_server::{JSON, SmallServer, response, result};

/// A server at `/mcp/`, which redirects all other paths.
fn answer(request: &Seen, status: &str, location: &str) -> String {
    if request.target != "/mcp/?from=here" {
        return response(
            status,
            "text/plain",
            &format!("location: {location}\r\n"),
            "",
        );
    }
    match request.method().as_str() {
        "initialize" => result(request, "mcp-session-id: one\r\n", &initialize_result()),
        "tools/list" => result(request, "", &json!({"tools": []})),
        "tools/call" => result(
            request,
            "",
            &json!({"content": [], "structuredContent": {"n": 1}}),
        ),
        "ping" => result(request, "", &json!({})),
        _ => response("202 Accepted", JSON, "", ""),
    }
}

#[tokio::test]
async fn a_redirect_of_the_same_origin_is_followed() -> anyhow::Result<()> {
    for status in ["307 Temporary Redirect", "308 Permanent Redirect"] {
        let server =
            SmallServer::start(move |request| answer(request, status, "/mcp/?from=here")).await?;
        let gateway = Gateway::start("redirected", kept(&[server.url()])).await?;
        let endpoints = [gateway.mcp_url("tools")];
        let mut session = McpSession::open(&HttpClient::default(), &endpoints).await?;
        let result = session.call("any", json!({})).await?;
        assert_eq!(result["structuredContent"]["n"], 1, "{status}: {result}");
    }
    Ok(())
}

#[tokio::test]
async fn other_redirects_are_not_followed_and_named() -> anyhow::Result<()> {
    let other = SmallServer::start(|request| answer(request, "", "")).await?;
    let other = other.url().replace("/mcp", "/mcp/?from=here");
    for (status, location, named) in [
        ("307 Temporary Redirect", other.as_str(), "another host"),
        ("301 Moved Permanently", "/mcp/?from=here", "/mcp/"),
        ("307 Temporary Redirect", "/again", "/again"),
    ] {
        let to = location.to_owned();
        let server = SmallServer::start(move |request| answer(request, status, &to)).await?;
        let gateway = Gateway::start("redirected", kept(&[server.url()])).await?;
        let endpoints = [gateway.mcp_url("tools")];
        let opened = McpSession::open(&HttpClient::default(), &endpoints).await;
        let error = format!("{:#}", opened.expect_err("no session can begin"));
        assert!(error.contains(named), "{status} {location}: {error}");
    }
    Ok(())
}
