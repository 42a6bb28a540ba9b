//! How children end: with their session wherever that ends, by themselves, or not at all because they never started.

use anyhow::Context;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::stdio_command;
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::journal::{Event, Journal};
use mooring_tests::process_tree::started_with;
use mooring_tests::redis::Redis;
use mooring_tests::session::{McpSession, read_exchange, result_of};
use mooring_tests::wait;
use serde_json::json;

use crate::recovery::{OUTCOME_UNKNOWN, call, mark_of};
use crate::rig::initialize_params;

use super::rig::{
    GONE_WITHIN, OwnedFleet, Shape, assert_begun_anew, error_code, goes_on, owned_toml, pid_of,
    slow, stdio_toml, unique,
};

/// How long a call is in flight while another session wants its place; longer than that waits.
const IN_FLIGHT_MS: u64 = 8_000;

#[tokio::test]
async fn two_sessions_are_two_children_and_each_ends_with_its_delete_at_any_worker()
-> anyhow::Result<()> {
    let fleet = OwnedFleet::start(3).await?;
    let (mut one, mut two) = (fleet.open_at(0).await?, fleet.open_at(1).await?);
    goes_on(&mut one, 1, 3).await?;
    goes_on(&mut two, 1, 3).await?;
    let (first, second) = (pid_of(&mut one).await?, pid_of(&mut two).await?);
    assert_eq!(fleet.children()?, [first, second].into());

    assert_eq!(fleet.through(&one, &[2]).delete().await?.status, 204);
    assert_eq!(fleet.until_children(1).await?, [second].into());
    let refused = one
        .post(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
        .await?;
    assert_eq!(refused.status, 404);
    goes_on(&mut two, 4, 3).await?;
    assert_eq!(fleet.through(&two, &[1]).delete().await?.status, 204);
    fleet.until_children(0).await?;
    // Asked to end, a child says goodbye; a killed one would not.
    assert_eq!(fleet.journal.of(Event::Stopped)?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn the_child_of_an_expired_session_ends() -> anyhow::Result<()> {
    let fleet = OwnedFleet::start_as(
        2,
        &Shape {
            affinity: "ttl_seconds = 1\nreap_interval_ms = 200",
            ..Shape::default()
        },
    )
    .await?;
    let mut session = fleet.open_at(0).await?;
    goes_on(&mut session, 1, 2).await?;
    fleet.until_children(0).await?;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(session.post(&ping).await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn a_child_that_exits_in_mid_call_fails_that_call_and_the_next_begins_anew()
-> anyhow::Result<()> {
    let fleet = OwnedFleet::start(3).await?;
    let session = fleet.open_at(0).await?;
    // Through the owner itself, and through another worker.
    for gateway in [0, 1] {
        let mut session = fleet.through(&session, &[gateway]);
        session.increment().await?;
        let exchange = call(&mut session, "exit").await?;
        assert_eq!(
            error_code(&exchange.response),
            Some(OUTCOME_UNKNOWN),
            "{exchange:?}"
        );
        let mut session = fleet.through(&session, &[gateway, 2]);
        assert_begun_anew(&call(&mut session, "increment").await?);
        goes_on(&mut session, 2, 2).await?;
        fleet.until_children(1).await?;
        assert_eq!(
            fleet.owner_of(&session)?,
            0,
            "a living owner renews its own"
        );
    }
    assert_eq!(fleet.journal.of(Event::Initialized)?.len(), 3);
    Ok(())
}

/// The same where the client's stream meets it first, here or at another worker: the stream has no reply that could bear
/// the mark, and the next call's does.
#[tokio::test]
async fn an_exit_that_the_clients_stream_met_is_marked_in_the_next_reply() -> anyhow::Result<()> {
    let fleet = OwnedFleet::start(3).await?;
    let session = fleet.open_at(0).await?;
    for gateway in [0, 1] {
        let mut at_gateway = fleet.through(&session, &[gateway]);
        at_gateway.increment().await?;
        let watched = at_gateway.listen(None).await?;
        assert_eq!(watched.status, 200);
        call(&mut at_gateway, "exit").await?;
        fleet.until_children(0).await?;
        drop(watched);
        // The former stream may still be on its way back.
        let mut stream = wait::until("the stream to open again", GONE_WITHIN, async || {
            let reply = at_gateway.listen(None).await?;
            Ok((reply.status == 200).then_some(reply))
        })
        .await?;
        let warning = stream.next_message().await?.context("the warning")?;
        let warned = warning["params"]["data"].get("mooring/rebound");
        assert!(warned.is_some(), "{warning}");

        let mut elsewhere = fleet.through(&session, &[2]);
        let first = call(&mut elsewhere, "increment").await?;
        assert_begun_anew(&first);
        assert_eq!(mark_of(&first), warned);
        goes_on(&mut fleet.through(&session, &[0, 1, 2]), 2, 3).await?;
    }
    assert_eq!(fleet.journal.of(Event::Initialized)?.len(), 3);
    Ok(())
}

/// A server whose program is not there, beside one that has as many children as it may, none of them idle.
#[tokio::test]
async fn who_cannot_have_a_child_is_told_so_and_others_are_served() -> anyhow::Result<()> {
    let (redis, keys) = (Redis::start().await?, FleetKeys::new()?);
    let (instance, journal) = (unique("few"), Journal::new()?);
    let command = stdio_command(&instance, Some(&journal), &[])?;
    let shape = Shape {
        server: "children_max = 1",
        more: "[[servers]]\nid = \"missing\"\nkind = \"stdio\"\ncommand = [\"/nowhere/at-all\"]\n",
        ..Shape::default()
    };
    let toml = owned_toml(&redis, &keys, &stdio_toml(&command), &shape);
    let gateways = Gateway::fleet(2, &Settings::toml(toml)).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[gateways[0].mcp_url("tools")]).await?;
    goes_on(&mut session, 1, 1).await?;
    let running = session.request_body("tools/call", slow(IN_FLIGHT_MS, "in flight"));
    let reply = session.post(&running).await?;

    for (server, words) in [("missing", "was not found"), ("tools", "process")] {
        let (status, message) = initialize(&client, &gateways[0], server).await?;
        assert_eq!(status, 503, "{server}: {message}");
        assert!(message.contains(words), "{server}: {message}");
        assert!(
            !message.contains("/nowhere"),
            "paths are the operator's: {message}"
        );
    }
    result_of(read_exchange(reply, &running).await?.response)?;
    goes_on(&mut session, 2, 2).await?;
    // Another worker has a place of its own, and a place that is free again is given again.
    let mut elsewhere = McpSession::open(&client, &[gateways[1].mcp_url("tools")]).await?;
    goes_on(&mut elsewhere, 1, 1).await?;
    assert_eq!(session.delete().await?.status, 204);
    // A process that is ending counts until its supervisors have seen it gone.
    let endpoint = [gateways[0].mcp_url("tools")];
    let mut again =
        mooring_tests::wait::until("a free place", super::rig::GONE_WITHIN, async || {
            Ok(McpSession::open(&client, &endpoint).await.ok())
        })
        .await?;
    assert_eq!(started_with(&instance)?.len(), 2, "one at each worker");
    goes_on(&mut again, 1, 1).await?;
    Ok(())
}

/// The status of an `initialize` and the message of its error.
async fn initialize(
    client: &HttpClient,
    gateway: &Gateway,
    server: &str,
) -> anyhow::Result<(u16, String)> {
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize_params(),
    });
    let request = http::Request::post(gateway.mcp_url(server))
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .body(body.to_string().into())?;
    let reply = client.send(request).await?;
    let status = reply.status.as_u16();
    let error = reply.json().await?;
    Ok((status, error["error"]["message"].to_string()))
}
