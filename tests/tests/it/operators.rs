//! What operators want of a fleet, and what its gateways do about it: parked instances get nothing new, a drained gateway
//! leaves its balancers and hands over what it owns, and a gateway that stops leaves them first. Over Redis and over a file
//! that gateways share.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use http::StatusCode;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::Fleet;
use mooring_tests::gateway::Gateway;
use mooring_tests::redis::Redis;
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::owned::rig::{OwnedFleet, Shape, goes_on, slow};
use crate::recovery::{call, count_of, mark_of, readiness};
use crate::rig::{kept, sharing};

/// How long anything may take on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// What the store has for an item that an operator asked for.
const NOTE: &str = r#"{"by":"olga","at_ms":1700000000000,"note":"disk"}"#;

/// The version of what is wanted now: a later one than before.
fn version() -> anyhow::Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(now.as_micros().to_string())
}

fn want(redis: &Redis, item: &str) -> anyhow::Result<()> {
    let hash = ["HSET", "mcpgw:desired_state", item, NOTE, "version"];
    redis.cli(&[&hash[..], &[&version()?]].concat()).map(drop)
}

fn want_no_more(redis: &Redis, item: &str) -> anyhow::Result<()> {
    redis.cli(&["HDEL", "mcpgw:desired_state", item])?;
    let hash = ["HSET", "mcpgw:desired_state", "version"];
    redis.cli(&[&hash[..], &[&version()?]].concat()).map(drop)
}

/// The same in the file of an embedded store.
fn want_in_file(home: &Path, item: &str) -> anyhow::Result<()> {
    let script = "import sqlite3, sys\n\
                  connection = sqlite3.connect(sys.argv[1], timeout=30)\n\
                  rows = [(sys.argv[2], sys.argv[3]), ('version', sys.argv[4])]\n\
                  connection.executemany('INSERT OR REPLACE INTO desired_state VALUES (?, ?)', rows)\n\
                  connection.commit()";
    let status = Command::new("python3")
        .args(["-c", script])
        .arg(home.join("mooring/sessions.db"))
        .args([item, NOTE, &version()?])
        .status()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// What `/readyz` says of the server `tools`.
async fn tools(gateway: &Gateway) -> anyhow::Result<Value> {
    let reply = HttpClient::default().get(&gateway.url("/readyz")).await?;
    Ok(reply.json().await?["parts"]["servers"]["tools"].take())
}

async fn until_parked(gateways: &[Gateway], instances: u64) -> anyhow::Result<()> {
    wait::until_true("all gateways to know", SOON, async || {
        for gateway in gateways {
            if tools(gateway).await?["parked"] != instances {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await
}

async fn until_ready_is(gateway: &Gateway, word: &str) -> anyhow::Result<()> {
    wait::until_true(word, SOON, async || {
        Ok(readiness(gateway).await.is_ok_and(|(_, now)| now == word))
    })
    .await
}

#[tokio::test]
async fn all_gateways_leave_a_parked_instance_out_and_its_sessions_stay() -> anyhow::Result<()> {
    let fixtures = [Fixture::start("one").await?, Fixture::start("two").await?];
    let urls = fixtures.each_ref().map(Fixture::url);
    let fleet = Fleet::start(2, &urls).await?;
    let client = HttpClient::default();
    let open = async || McpSession::open(&client, &fleet.endpoints()).await;
    let mut sessions = vec![open().await?, open().await?];
    for session in &mut sessions {
        goes_on(session, 1, 2).await?;
    }
    let before = fixtures[0].stats().await?.initializes;
    ensure!(before == 1, "sessions are spread: {before}");

    want(&fleet.redis, &format!("parked:tools {}", urls[0]))?;
    until_parked(&fleet.gateways, 1).await?;
    for _ in 0..4 {
        goes_on(&mut open().await?, 1, 1).await?;
    }
    assert_eq!(fixtures[0].stats().await?.initializes, before);
    for session in &mut sessions {
        goes_on(session, 3, 2).await?;
    }

    want(&fleet.redis, "parked:tools")?;
    until_parked(&fleet.gateways, 2).await?;
    let error = format!("{:#}", open().await.expect_err("the server is parked"));
    assert!(error.contains("503"), "{error}");
    for session in &mut sessions {
        goes_on(session, 5, 2).await?;
    }
    want_no_more(&fleet.redis, "parked:tools")?;
    until_parked(&fleet.gateways, 1).await?;
    goes_on(&mut open().await?, 1, 1).await
}

#[tokio::test]
async fn gateways_that_share_a_file_park_together() -> anyhow::Result<()> {
    let fixtures = [Fixture::start("one").await?, Fixture::start("two").await?];
    let (urls, home) = (fixtures.each_ref().map(Fixture::url), TempDir::new()?);
    let settings = kept(&urls);
    let gateways = [
        sharing("first", &settings, home.path()).await?,
        sharing("second", &settings, home.path()).await?,
    ];
    want_in_file(home.path(), &format!("parked:tools {}", urls[1]))?;
    until_parked(&gateways, 1).await?;
    for gateway in &gateways {
        for _ in 0..2 {
            let endpoint = gateway.mcp_url("tools");
            let mut session = McpSession::open(&HttpClient::default(), &[endpoint]).await?;
            goes_on(&mut session, 1, 1).await?;
        }
    }
    assert_eq!(fixtures[1].stats().await?.initializes, 0);
    want_in_file(home.path(), "draining:first")?;
    until_ready_is(&gateways[0], "draining").await?;
    assert_eq!(readiness(&gateways[1]).await?.1, "ok");
    Ok(())
}

/// Whether the store counts this gateway as draining.
fn drains(redis: &Redis, name: &str) -> anyhow::Result<bool> {
    let listed = redis.cli(&["--json", "WORKER.LIST"])?;
    let listed: Value = serde_json::from_str(&listed)?;
    let mut workers = listed.as_array().context("a list")?.iter();
    let of_name = |worker: &&Value| {
        let id = worker["worker"].as_str().unwrap_or_default();
        id.starts_with(&format!("{name}:"))
    };
    let worker = workers.find(of_name).context("the worker")?;
    Ok(worker["draining"] == 1 || worker["draining"] == true)
}

#[tokio::test]
async fn a_drained_gateway_hands_over_what_is_idle_and_serves_again_afterwards()
-> anyhow::Result<()> {
    let shape = Shape {
        worker: "leave_ms = 0",
        ..Shape::default()
    };
    let fleet = OwnedFleet::start_as(2, &shape).await?;
    let (mut idle, mut busy) = (fleet.open_at(0).await?, fleet.open_at(0).await?);
    goes_on(&mut idle, 1, 2).await?;
    goes_on(&mut busy, 1, 2).await?;
    let call_body = busy.request_body("tools/call", slow(3_000, "busy"));
    let running = busy.post(&call_body).await?;

    want(&fleet.redis, "draining:gateway-1")?;
    until_ready_is(&fleet.gateways[0], "draining").await?;
    assert_eq!(
        readiness(&fleet.gateways[0]).await?.0,
        StatusCode::SERVICE_UNAVAILABLE
    );
    wait::until_true("the store to know", SOON, async || {
        drains(&fleet.redis, "gateway-1")
    })
    .await?;
    let refused = McpSession::open(&fleet.client, &[fleet.endpoint(0)]).await;
    let refused = format!("{:#}", refused.expect_err("no new owned session"));
    assert!(refused.contains("503"), "{refused}");
    // A call that runs is answered by the process that it began in.
    let exchange = mooring_tests::session::read_exchange(running, &call_body).await?;
    mooring_tests::session::result_of(exchange.response)?;
    fleet.until_children(0).await?;
    // Also where the load balancer still sends them to the one that drains.
    let (mut idle, mut busy) = (fleet.through(&idle, &[0]), fleet.through(&busy, &[1]));
    for session in [&mut idle, &mut busy] {
        let exchange = call(session, "increment").await?;
        assert_eq!(count_of(&exchange), Some(1), "{exchange:?}");
        let mark = mark_of(&exchange).context("a mark")?;
        assert_eq!(
            mark["reason"],
            "the worker that held the connection was drained"
        );
        goes_on(session, 2, 2).await?;
        assert_eq!(fleet.owner_of(session)?, 1);
    }

    want_no_more(&fleet.redis, "draining:gateway-1")?;
    until_ready_is(&fleet.gateways[0], "ok").await?;
    wait::until_true("the store to know", SOON, async || {
        Ok(!drains(&fleet.redis, "gateway-1")?)
    })
    .await?;
    let mut session = fleet.open_at(0).await?;
    goes_on(&mut session, 1, 5).await
}

/// A load balancer that asks `/readyz` has as long as `worker.leave_ms` to notice.
#[tokio::test]
async fn a_gateway_that_stops_serves_everything_until_balancers_had_time_to_notice()
-> anyhow::Result<()> {
    let shape = Shape {
        worker: "leave_ms = 600000",
        ..Shape::default()
    };
    let mut fleet = OwnedFleet::start_as(1, &shape).await?;
    fleet.gateways[0].process().begin_to_terminate()?;
    until_ready_is(&fleet.gateways[0], "stopping").await?;
    let mut session = McpSession::open(&fleet.client, &[fleet.endpoint(0)]).await?;
    goes_on(&mut session, 1, 2).await?;
    // A second signal ends the wait.
    fleet.gateways[0].process().begin_to_terminate()?;
    let status = fleet.gateways[0].process().ended(SOON).await?;
    assert!(status.success(), "{status}");
    Ok(())
}

#[tokio::test]
async fn an_instance_that_is_down_is_known_before_it_is_called() -> anyhow::Result<()> {
    let mut fixture = Fixture::start("one").await?;
    let settings = kept(&[fixture.url()]).more_toml("[upstream]\nprobe_interval_ms = 100\n");
    let gateway = Gateway::start("probing", settings).await?;
    let until = async |readiness: &str| {
        wait::until_true(readiness, SOON, async || {
            Ok(tools(&gateway).await?["readiness"] == readiness)
        })
        .await
    };
    until("ready").await?;
    fixture.process().kill_now()?;
    until("not_ready").await?;
    fixture.restart().await?;
    until("ready").await?;
    assert_eq!(
        fixture.stats().await?.initializes,
        0,
        "probes begin no sessions"
    );
    assert_eq!(json!("ok"), readiness(&gateway).await?.1);
    Ok(())
}
