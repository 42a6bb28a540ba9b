//! A request that meets another gateway's claim waits to be told that it has settled, and does not ask again and again.

use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::fleet::settings_toml;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::json;

use crate::reaping::{calls, endpoints_of};
use crate::recovery::{binding, counted, record_key};
use crate::rig::{increment, post_text};
use crate::scripted::{Scripted, initialize_result};

const STEP_WITHIN: Duration = Duration::from_secs(20);
/// Requests that wait for one claim.
const WAITERS: u64 = 8;
/// How many beats of the fleet the claim is held for: the test's measure of time, because it is the fleet's own.
const HELD_FOR_BEATS: u64 = 12;

#[tokio::test]
async fn waiters_on_another_gateway_are_woken_and_do_not_poll() -> anyhow::Result<()> {
    let mut slow = Scripted::start_without_handshake().await?;
    let redis = Redis::start().await?;
    let toml = settings_toml(&redis.url(), &[slow.url()])
        + "concurrency = \"parallel\"\n\n[worker]\nbeat_interval_ms = 100\nbeat_ttl_ms = 5000\n";
    let gateways = Gateway::fleet(2, &Settings::toml(toml)).await?;
    let client = HttpClient::default();
    let endpoints = endpoints_of(&gateways);
    let opened = async {
        slow.next().await?.result(&initialize_result()).await?;
        let initialized = slow.next().await?;
        initialized.answer("202 Accepted", "text/plain", "").await
    };
    let (session, ()) = tokio::try_join!(McpSession::open(&client, &endpoints), opened)?;
    let (key, principal) = (record_key(&session)?, "local");
    let epoch = binding(&redis, &session)?["epoch"].to_string();
    redis.cli(&["SESSION.UNBIND", &key, principal, "tools", &epoch])?;

    // The next use makes a claim, which stays one for as long as the test wants.
    let mut claiming = session.fork(&client, &[gateways[0].mcp_url("tools")]);
    let posting = client.clone();
    let claimed =
        tokio::spawn(async move { post_text(&posting, &mut claiming, increment("1")).await });
    let handshake = slow.next().await?;
    let routes_before = calls(&redis, "session.route")?;
    let mut waiting = Vec::new();
    for _ in 0..WAITERS {
        let mut waiter = session.fork(&client, &[gateways[1].mcp_url("tools")]);
        let posting = client.clone();
        waiting.push(tokio::spawn(async move {
            post_text(&posting, &mut waiter, increment("2")).await
        }));
    }
    let routes = || Ok::<_, anyhow::Error>(calls(&redis, "session.route")? - routes_before);
    wait::until_true("everybody to wait", STEP_WITHIN, async || {
        Ok(routes()? >= 2 * WAITERS)
    })
    .await?;
    let beats_before = calls(&redis, "worker.beat")?;
    wait::until_true("time to pass", STEP_WITHIN, async || {
        Ok(calls(&redis, "worker.beat")? >= beats_before + HELD_FOR_BEATS)
    })
    .await?;
    let (asked, held_for) = (routes()?, calls(&redis, "worker.beat")? - beats_before);
    // Who polls asks ten times a second, and so does each of the two beats; the backstop is a second.
    assert!(
        asked <= 2 * WAITERS + WAITERS * held_for / 10,
        "{asked} asked by {WAITERS} who waited for {held_for} beats"
    );

    handshake.result(&initialize_result()).await?;
    slow.next()
        .await?
        .answer("202 Accepted", "text/plain", "")
        .await?;
    for _ in 0..=WAITERS {
        slow.next()
            .await?
            .result(&json!({"content": [], "on": true}))
            .await?;
    }
    for reply in waiting.into_iter().chain([claimed]) {
        let reply = reply.await??.json().await?;
        assert_eq!(reply["result"]["on"], true, "{reply}");
    }
    let woken = counted(&gateways[1..], "mooring_claim_news_total", &[]).await?;
    assert_eq!(woken, 1, "told once, for all of them");
    Ok(())
}
