//! What an `initialize` leaves behind: bounded in size and in rate, and gone with its session.

use http::HeaderMap;
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::settings_toml;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::session::{McpSession, Opening};
use mooring_tests::wait;
use serde_json::json;

use crate::reaping::CLEANED_WITHIN;
use crate::rig::{kept, refusal};

/// An opening whose params have about this many bytes, unlike those of any other number.
fn opening_of(bytes: usize, number: usize) -> Opening {
    let padding = format!("{number}-{}", "x".repeat(bytes));
    Opening {
        capabilities: json!({"experimental": {"padding": {"text": padding}}}),
        ..Opening::default()
    }
}

/// `initialize` as this opening has it, whatever comes of it.
async fn initialize(gateway: &Gateway, opening: &Opening) -> anyhow::Result<Reply> {
    let message = json!({
        "jsonrpc": "2.0", "id": 7, "method": "initialize", "params": opening.initialize_params(),
    });
    let mut request = http::Request::post(gateway.mcp_url("tools"))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    for (name, value) in &opening.headers {
        request = request.header(name, value);
    }
    let request = request.body(message.to_string().into())?;
    HttpClient::default().send(request).await
}

fn params_kept(redis: &Redis) -> anyhow::Result<usize> {
    let keys = redis.cli(&["KEYS", "mcpgw:init:*"])?;
    Ok(keys.lines().filter(|line| !line.is_empty()).count())
}

async fn until_kept(redis: &Redis, count: usize) -> anyhow::Result<()> {
    let what = format!("{count} params to be kept");
    wait::until_true(&what, CLEANED_WITHIN, async || {
        Ok(params_kept(redis)? == count)
    })
    .await
}

#[tokio::test]
async fn large_params_go_with_their_session_and_shared_ones_stay_for_the_others()
-> anyhow::Result<()> {
    let mut fixture = Fixture::start("one").await?;
    let redis = Redis::start().await?;
    let settings = Settings::toml(settings_toml(&redis.url(), &[fixture.url()]))
        .env("MOORING_AFFINITY_MAX_SESSIONS_PER_PRINCIPAL", "2")
        .env("MOORING_AFFINITY_REAP_INTERVAL_MS", "100");
    let gateway = Gateway::start("params", settings).await?;
    let client = HttpClient::default();
    let endpoints = [gateway.mcp_url("tools")];
    // At the cap each of these ends an earlier one.
    for number in 0..10 {
        McpSession::open_with(&client, &endpoints, opening_of(4096, number)).await?;
    }
    until_kept(&redis, 2).await?;
    let mut large = McpSession::open_with(&client, &endpoints, opening_of(4096, 10)).await?;
    let mut small = McpSession::open_with(&client, &endpoints, opening_of(16, 0)).await?;
    until_kept(&redis, 2).await?;
    // A session is still introduced anew by its params where its upstream session is lost.
    assert_eq!(large.increment().await?, 1);
    fixture.restart().await?;
    assert_eq!(large.increment().await?, 1);
    assert_eq!(large.delete().await?.status, 204);
    until_kept(&redis, 1).await?;
    // One client build's sessions share its params: they outlive the first of them that ends.
    let mut same = McpSession::open_with(&client, &endpoints, opening_of(16, 0)).await?;
    assert_eq!(small.delete().await?.status, 204);
    assert_eq!(same.increment().await?, 1);
    fixture.restart().await?;
    assert_eq!(same.increment().await?, 1);
    assert_eq!(params_kept(&redis)?, 1);
    Ok(())
}

#[tokio::test]
async fn params_longer_than_any_clients_are_refused() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let gateway = Gateway::start("params", kept(&[fixture.url()])).await?;
    let reply = initialize(&gateway, &opening_of(8 * 1024, 0)).await?;
    let status = reply.status;
    let body = reply.json().await?;
    assert_eq!(
        (status.as_u16(), &body["error"]["code"]),
        (400, &json!(-32602))
    );
    assert!(body.to_string().contains("at most 8192"), "{body}");
    assert_eq!(body["id"], 7);
    assert_eq!(
        initialize(&gateway, &opening_of(7 * 1024, 0)).await?.status,
        200
    );
    assert_eq!(fixture.stats().await?.initializes, 1);
    Ok(())
}

#[tokio::test]
async fn a_principal_begins_only_so_many_sessions_in_a_minute_and_others_are_not_held_up()
-> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let settings = kept(&[fixture.url()])
        .env("MOORING_AFFINITY_INITIALIZES_PER_MINUTE", "3")
        .users_by_header();
    let gateway = Gateway::start("rate", settings).await?;
    let of = |user: &str| Opening::default().header("x-mooring-user", user);
    let client = HttpClient::default();
    let endpoints = [gateway.mcp_url("tools")];
    let mut session = McpSession::open_with(&client, &endpoints, of("ada")?).await?;
    for _ in 0..2 {
        assert_eq!(initialize(&gateway, &of("ada")?).await?.status, 200);
    }
    let reply = initialize(&gateway, &of("ada")?).await?;
    let headers: HeaderMap = reply.headers.clone();
    assert_eq!(
        refusal(reply).await?,
        (http::StatusCode::TOO_MANY_REQUESTS, -32007)
    );
    let seconds: u64 = headers["retry-after"].to_str()?.parse()?;
    assert!((1..=60).contains(&seconds), "{seconds}");
    // A client of HTTP+SSE begins its session with its stream.
    let stream = http::Request::get(gateway.url("/servers/tools/sse"))
        .header("x-mooring-user", "ada")
        .header("accept", "text/event-stream")
        .body(bytes::Bytes::new())?;
    assert_eq!(client.send(stream).await?.status, 429);
    assert_eq!(session.increment().await?, 1);
    assert_eq!(initialize(&gateway, &of("bob")?).await?.status, 200);
    Ok(())
}
