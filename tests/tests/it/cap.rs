//! The cap on a principal's sessions: a new one takes the place of the one that was not used for longest, and never of
//! one that is in use.

use std::time::{Duration, Instant};

use anyhow::Context;
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::settings_toml;
use mooring_tests::gate::Gate;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::session::{McpSession, Opening};
use mooring_tests::wait;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::reaping::{CLEANED_WITHIN, calls, deletes_and_live, endpoints_of};
use crate::recovery::counted;
use crate::rig::{increment, initialize_params};
use crate::scripted::{Scripted, initialize_result};

const TOO_MANY: i64 = -32007;

fn capped(store_url: &str, instances: &[String], cap: u32) -> Settings {
    Settings::toml(settings_toml(store_url, instances)).env(
        "MOORING_AFFINITY_MAX_SESSIONS_PER_PRINCIPAL",
        &cap.to_string(),
    )
}

async fn open(endpoints: &[String]) -> anyhow::Result<McpSession> {
    McpSession::open(&HttpClient::default(), endpoints).await
}

async fn capped_count(gateways: &[Gateway], outcome: &str) -> anyhow::Result<u64> {
    let label = format!("outcome=\"{outcome}\"");
    counted(gateways, "mooring_capped_sessions_total", &[&label]).await
}

/// Whether the session is gone, as its client sees it. Asking is a use of it.
async fn is_gone(session: &mut McpSession) -> anyhow::Result<bool> {
    let text = increment("1");
    let request = session.http_request(http::Method::POST, text.into())?;
    Ok(HttpClient::default().send(request).await?.status == 404)
}

/// `initialize`, whatever comes of it.
async fn initialize(endpoint: &str) -> anyhow::Result<Reply> {
    let message = json!({
        "jsonrpc": "2.0", "id": 7, "method": "initialize", "params": initialize_params(),
    });
    let request = http::Request::post(endpoint)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(message.to_string().into())?;
    HttpClient::default().send(request).await
}

/// The refusal of a session that would be one too many.
async fn refused(reply: Reply) -> anyhow::Result<String> {
    assert_eq!(reply.status, 429);
    let retry_after = reply.header("retry-after").context("Retry-After")?;
    assert!(retry_after.parse::<u32>()? >= 1);
    let body: Value = reply.json().await?;
    assert_eq!(
        (&body["id"], &body["error"]["code"]),
        (&json!(7), &json!(TOO_MANY))
    );
    let message = body["error"]["message"].as_str().context("a message")?;
    Ok(message.to_owned())
}

/// Opens three sessions, uses the first and the third, reads included, for `used_for` and at least once, and opens a
/// fourth. Those that are left, in the order of their last use.
async fn fourth_of_three(
    gateways: &[Gateway],
    fixture: &Fixture,
    used_for: Duration,
) -> anyhow::Result<[McpSession; 3]> {
    let endpoints = endpoints_of(gateways);
    let mut first = open(&endpoints).await?;
    let mut second = open(&endpoints).await?;
    let mut third = open(&endpoints).await?;
    assert_eq!(second.increment().await?, 1);
    let started = Instant::now();
    wait::until_true("them to be used", CLEANED_WITHIN, async || {
        third.increment().await?;
        first.increment().await?;
        Ok(started.elapsed() >= used_for)
    })
    .await?;
    let mut fourth = open(&endpoints).await?;
    assert!(is_gone(&mut second).await?, "the least recently used");
    for session in [&mut third, &mut first, &mut fourth] {
        assert!(!is_gone(session).await?);
    }
    wait::until_true("its upstream session to go", CLEANED_WITHIN, async || {
        Ok(deletes_and_live(&[fixture]).await? == (1, 3))
    })
    .await?;
    assert_eq!(capped_count(gateways, "ended").await?, 1);
    assert_eq!(capped_count(gateways, "refused").await?, 0);
    Ok([third, first, fourth])
}

#[tokio::test]
async fn a_new_session_takes_the_place_of_the_least_recently_used_one() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let redis = Redis::start().await?;
    let mut gateways = Gateway::fleet(2, &capped(&redis.url(), &[fixture.url()], 3)).await?;
    // None of these uses is written to a record.
    let left = fourth_of_three(&gateways, &fixture, Duration::ZERO).await?;
    let endpoints = endpoints_of(&gateways);
    for mut least_recently_used in left {
        open(&endpoints).await?;
        assert!(
            is_gone(&mut least_recently_used).await?,
            "one after the other"
        );
    }
    for gateway in &mut gateways {
        let log = gateway.process().log_text();
        assert!(!log.contains("mcpgw:"), "no key is logged: {log}");
    }
    Ok(())
}

/// A file knows the order of uses up to the step at which they are written: a sixteenth of the TTL.
#[tokio::test]
async fn the_same_holds_for_processes_on_one_file() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let state = TempDir::with_prefix("mooring-shared-")?;
    let settings = capped("embedded", &[fixture.url()], 3)
        .env("MOORING_AFFINITY_TTL_SECONDS", "16")
        .state_home(state.path());
    let gateways = Gateway::fleet(2, &settings).await?;
    fourth_of_three(&gateways, &fixture, Duration::from_millis(1_500)).await?;
    Ok(())
}

#[tokio::test]
async fn principals_do_not_share_a_cap() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let redis = Redis::start().await?;
    let settings = capped(&redis.url(), &[fixture.url()], 1).users_by_header();
    let gateway = Gateway::start("capped", settings).await?;
    let endpoints = [gateway.mcp_url("tools")];
    let client = HttpClient::default();
    let of = async |user: &str| {
        let opening = Opening::default().header("x-mooring-user", user)?;
        McpSession::open_with(&client, &endpoints, opening).await
    };
    let mut alice = of("alice").await?;
    let mut bob = of("bob").await?;
    assert!(!is_gone(&mut alice).await? && !is_gone(&mut bob).await?);
    let mut alice_again = of("alice").await?;
    assert!(is_gone(&mut alice).await?);
    assert!(!is_gone(&mut bob).await? && !is_gone(&mut alice_again).await?);
    Ok(())
}

/// A session in the middle of its initialization is in use, wherever it is initialized.
#[tokio::test]
async fn where_every_session_is_in_use_a_new_one_is_refused() -> anyhow::Result<()> {
    let mut upstream = Scripted::start_without_handshake().await?;
    let redis = Redis::start().await?;
    let gateways = Gateway::fleet(2, &capped(&redis.url(), &[upstream.url()], 1)).await?;
    let endpoints = endpoints_of(&gateways);
    let first = endpoints[0].clone();
    let opening = tokio::spawn(async move { initialize(&first).await });
    let handshake = upstream.next().await?;

    let said = refused(initialize(&endpoints[1]).await?).await?;
    assert!(said.contains("holds 1 sessions"), "{said}");
    assert_eq!(capped_count(&gateways, "refused").await?, 1);

    handshake.result(&initialize_result()).await?;
    assert_eq!(opening.await??.status, 200, "it was spared");
    // It is idle now, so the next one takes its place.
    let second = endpoints[1].clone();
    let opening = tokio::spawn(async move { initialize(&second).await });
    upstream.next().await?.result(&initialize_result()).await?;
    assert_eq!(opening.await??.status, 200);
    assert_eq!(capped_count(&gateways, "ended").await?, 1);
    Ok(())
}

/// A call that takes long keeps its session, at the gateway that carries it and at any other.
async fn check_call_spared(initializing_at: usize) -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let redis = Redis::start().await?;
    let gateways = Gateway::fleet(2, &capped(&redis.url(), &[fixture.url()], 2)).await?;
    let endpoints = endpoints_of(&gateways);
    let mut busy = open(&endpoints[..1]).await?;
    let mut idle = open(&endpoints[..1]).await?;
    let gate = Gate::new()?;
    let arguments = json!({"name": "slow_increment", "arguments": {"until": gate.path()}});
    let call = busy.request_body("tools/call", arguments);
    let mut answer = busy.post(&call).await?;
    // The idle one is used after the call began, so the order of use alone would end the busy one.
    assert_eq!(idle.increment().await?, 1);
    if initializing_at != 0 {
        let noted = calls(&redis, "session.touch")?;
        wait::until_true(
            "the call to be noted as a use",
            CLEANED_WITHIN,
            async || Ok(calls(&redis, "session.touch")? >= noted + 2),
        )
        .await?;
    }
    let mut new = open(&endpoints[initializing_at..=initializing_at]).await?;
    assert!(is_gone(&mut idle).await?);
    gate.open()?;
    let answer = answer.next_message().await?.context("an answer")?;
    assert_eq!(
        answer["result"]["structuredContent"]["count"], 1,
        "{answer}"
    );
    assert!(!is_gone(&mut busy).await? && !is_gone(&mut new).await?);
    Ok(())
}

#[tokio::test]
async fn a_session_in_a_call_is_spared_by_the_gateway_that_carries_it() -> anyhow::Result<()> {
    check_call_spared(0).await
}

#[tokio::test]
async fn a_session_in_a_call_is_spared_by_other_gateways() -> anyhow::Result<()> {
    check_call_spared(1).await
}

/// Sessions that begin at the same moment end each other or are refused, and neither looks to a client as if it had
/// named a session that there is not.
#[tokio::test]
async fn sessions_that_begin_at_once_are_opened_or_refused() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let state = TempDir::with_prefix("mooring-shared-")?;
    let settings = capped("embedded", &[fixture.url()], 1).state_home(state.path());
    let gateways = Gateway::fleet(3, &settings).await?;
    let endpoints = endpoints_of(&gateways);
    let opening = endpoints.iter().cycle().take(24).cloned();
    let opening = opening.map(|at| tokio::spawn(async move { initialize(&at).await }));
    let mut statuses = Vec::new();
    for opened in opening.collect::<Vec<_>>() {
        statuses.push(opened.await??.status.as_u16());
    }
    assert!(statuses.contains(&200), "{statuses:?}");
    assert!(
        statuses.iter().all(|status| matches!(status, 200 | 429)),
        "{statuses:?}"
    );
    Ok(())
}
