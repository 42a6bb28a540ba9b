//! Servers that operators add over HTTP, and files of servers: seen by all gateways, also by those that start later.

use anyhow::ensure;
use bytes::Bytes;
use http::{Method, Request};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::{Value, json};

use super::load::Load;
use super::{SEEN_WITHIN, http_server};

/// Sends a request to `/admin/servers` and what follows: status and body.
pub(super) async fn send(
    gateway: &Gateway,
    method: Method,
    path: &str,
    body: &Value,
) -> anyhow::Result<(u16, Value)> {
    let request = Request::builder()
        .method(method)
        .uri(gateway.url(&format!("/admin/servers{path}")))
        .header("content-type", "application/json")
        .body(Bytes::from(body.to_string()))?;
    let reply = HttpClient::default().send(request).await?;
    Ok((reply.status.as_u16(), reply.json().await?))
}

/// Waits until every gateway answers a GET of the server's endpoint with another status than 404 and 503, or with 404.
pub(super) async fn seen_by(
    gateways: &[Gateway],
    server: &str,
    is_served: bool,
) -> anyhow::Result<()> {
    let client = HttpClient::default();
    for gateway in gateways {
        let what = format!("{server} at {}, served: {is_served}", gateway.url(""));
        wait::until_true(&what, SEEN_WITHIN, async || {
            let reply = client.get(&gateway.mcp_url(server)).await?;
            let status = reply.status.as_u16();
            Ok(match is_served {
                true => status != 404 && status != 503,
                false => status == 404,
            })
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_server_added_at_one_gateway_is_served_by_all_and_outlives_them() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let (kept, one, two) = (
        Fixture::start("kept").await?,
        Fixture::start("one").await?,
        Fixture::start("two").await?,
    );
    let toml = format!("[store]\nurl = {:?}\n", redis.url()) + &http_server("kept", &[kept.url()]);
    let mut gateways = Gateway::fleet(3, &Settings::toml(toml)).await?;
    let load = Load::start(&[gateways[1].mcp_url("kept")], 2).await?;

    let server = json!({"server": {"name": "late", "url": one.url(), "description": "for tests"}});
    let (status, answer) = send(&gateways[0], Method::POST, "", &server).await?;
    assert_eq!(status, 201, "{answer}");
    assert_eq!(answer["report"]["servers_added"], json!(["late"]));
    assert_eq!(answer["note"], "for tests");
    seen_by(&gateways, "late", true).await?;
    let client = HttpClient::default();
    let endpoints: Vec<String> = gateways
        .iter()
        .map(|gateway| gateway.mcp_url("late"))
        .collect();
    let mut session = McpSession::open(&client, &endpoints).await?;
    for count in 1..=6 {
        assert_eq!(session.increment().await?, count, "at each gateway in turn");
    }

    gateways[2].restart().await?;
    for count in 7..=9 {
        assert_eq!(
            session.increment().await?,
            count,
            "also at one that was started since"
        );
    }
    let both = json!({"instances": [two.url(), one.url()]});
    let (status, answer) = send(&gateways[2], Method::PATCH, "/late", &both).await?;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["report"]["servers_changed"], json!(["late"]));
    for count in 10..=12 {
        assert_eq!(session.increment().await?, count, "its instance remains");
    }

    let (status, answer) = send(&gateways[1], Method::DELETE, "/late", &Value::Null).await?;
    assert_eq!(status, 200, "{answer}");
    seen_by(&gateways, "late", false).await?;
    wait::until_true("the upstream session's end", SEEN_WITHIN, async || {
        Ok(one.stats().await?.sessions_live + two.stats().await?.sessions_live == 0)
    })
    .await?;
    load.stop().await
}

#[tokio::test]
async fn what_cannot_be_added_is_refused_and_not_kept() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let server = http_server("tools", &[fixture.url()]);
    let mut gateway = Gateway::start("adding", Settings::toml(server)).await?;
    let url = fixture.url();
    let secret = json!({"id": "x", "url": url, "headers": {"authorization": "Bearer s3cret"}});
    for (body, status, code, part) in [
        (
            json!({"id": "tools", "url": url}),
            409,
            "server_exists",
            "tools",
        ),
        (
            json!({"id": "x", "kind": "stdio", "command": ["sh"]}),
            422,
            "server_invalid",
            "programs",
        ),
        (
            json!({"id": "x", "url": "ftp://x/"}),
            422,
            "server_invalid",
            "ftp",
        ),
        (
            json!({"id": "x", "url": url, "visibility": "public"}),
            422,
            "server_invalid",
            "visibility",
        ),
        (secret, 422, "server_invalid", "env:NAME"),
    ] {
        let (found, answer) = send(&gateway, Method::POST, "", &body).await?;
        let text = answer.to_string();
        assert_eq!(
            (found, &answer["error"]["code"]),
            (status, &code.into()),
            "{text}"
        );
        ensure!(
            text.contains(part) && !text.contains("s3cret"),
            "{part}: {text}"
        );
    }
    let (status, answer) = send(&gateway, Method::DELETE, "/tools", &Value::Null).await?;
    assert_eq!(status, 404, "a server of the settings: {answer}");

    // The embedded store keeps it too, and files of servers are read with it.
    let (status, answer) = send(
        &gateway,
        Method::POST,
        "",
        &json!({"id": "late", "url": url}),
    )
    .await?;
    assert_eq!(status, 201, "{answer}");
    let sandbox = json!({"server": {"name": "sandbox", "type": "code_execution"}});
    let (status, answer) = send(&gateway, Method::POST, "", &sandbox).await?;
    assert_eq!(status, 201, "{answer}");
    let directory = gateway.directory().join("servers.d");
    std::fs::create_dir(&directory)?;
    let file = format!("id = \"filed\"\ninstances = [{url:?}]\n");
    std::fs::write(directory.join("10-filed.toml"), file)?;
    gateway.hang_up()?;
    let log = wait::until_logged("servers_added=filed", 1, || gateway.process().log_text());
    log.await?;
    gateway.restart().await?;
    let client = HttpClient::default();
    for server in ["tools", "late", "filed"] {
        let mut session = McpSession::open(&client, &[gateway.mcp_url(server)]).await?;
        assert_eq!(session.increment().await?, 1, "{server}");
    }
    let mut session = McpSession::open(&client, &[gateway.mcp_url("sandbox")]).await?;
    let tools = session.request("tools/list", json!({})).await?.response;
    ensure!(tools.to_string().contains("shell_exec"), "{tools}");
    Ok(())
}
