//! A wall clock that is set by an hour, forward and back: nothing is reaped, no claim is frozen, nobody is dead, and the
//! log says so.

use std::time::Duration;

use anyhow::ensure;
use mooring_tests::redis::{Module, Redis};
use mooring_tests::wait;
use mooring_tests::wall_clock::WallClock;

use super::resp::{Connection, Value};
use super::truth;

const NOTICED_WITHIN: Duration = Duration::from_secs(10);
const HOUR_MS: i64 = 3_600_000;

/// A server with this clock.
async fn start_server(clock: &WallClock) -> anyhow::Result<Redis> {
    let mut command = clock.command();
    command.push("redis-server".to_owned());
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    Redis::start_by(&command, Module::Loaded, &[]).await
}

/// Waits until the module has noticed `count` steps so far.
async fn noticed(redis: &mut Redis, count: usize) -> anyhow::Result<()> {
    wait::until_true("the step to be noticed", NOTICED_WITHIN, async || {
        let log = redis.process().log_text();
        Ok(log.matches("the wall clock was set by").count() == count)
    })
    .await
}

/// What REAP names: whether it says to know all, and how many keys.
fn reaped(c: &mut Connection) -> anyhow::Result<(i64, usize)> {
    let reply = c.run("SESSION.REAP w:1 COUNT 10")?;
    let Value::Array(keys) = reply.field("keys") else {
        anyhow::bail!("keys are an array: {reply}");
    };
    Ok((reply.field("complete").integer(), keys.len()))
}

#[tokio::test]
async fn an_hour_forward_and_back_reaps_freezes_and_kills_nobody() -> anyhow::Result<()> {
    let clock = WallClock::new()?;
    let mut redis = start_server(&clock).await?;
    let mut c = Connection::open(&redis)?;
    c.run("WORKER.BEAT w:1 127.0.0.1:1 TTL 600000")?;
    // Its tombstone outlives the hour.
    c.run("SESSION.CREATE mcpgw:a s zoe TTL 2400000")?;
    c.run("SESSION.BIND mcpgw:a zoe tools w:1 t LEASE 60000 INSTANCES 1 i UPSTREAM u")?;
    c.run("SESSION.BIND mcpgw:a zoe other w:1 t LEASE 500000 INSTANCES 1 i")?;
    c.run("SESSION.CREATE mcpgw:ended s zoe TTL 2400000")?;
    c.run("SESSION.BIND mcpgw:ended zoe tools w:1 t LEASE 60000 INSTANCES 1 i UPSTREAM u")?;
    c.run("SESSION.END mcpgw:ended zoe")?;
    assert_eq!(reaped(&mut c)?, (1, 0), "the caller of END is cleaning");

    // Both deadlines, of the session and of the cleaning, are past at once. REAP itself notices.
    clock.set(HOUR_MS)?;
    assert_eq!(reaped(&mut c)?, (0, 0), "an hour ahead");
    noticed(&mut redis, 1).await?;
    assert_eq!(alive(&mut c)?, 1);
    assert_eq!(truth::holds(&redis, "an hour ahead").await?, 2);

    // A claim that was given there, and a use.
    c.run("SESSION.CREATE mcpgw:b s zoe TTL 900000")?;
    let ahead = "SESSION.BIND mcpgw:b zoe tools w:2 t2 LEASE 600000 INSTANCES 1 i";
    assert_eq!(c.run(ahead)?.field("won").integer(), 1);

    clock.set(0)?;
    noticed(&mut redis, 2).await?;
    assert_eq!(reaped(&mut c)?, (0, 0), "and back");
    assert_eq!(alive(&mut c)?, 1);
    assert_eq!(truth::holds(&redis, "and back").await?, 3);
    let state = |c: &mut Connection, key: &str| -> anyhow::Result<String> {
        let record = c.run(&format!("SESSION.GET {key}"))?;
        Ok(record.field("state").to_string())
    };
    assert_eq!(state(&mut c, "mcpgw:a")?, "active");
    assert_eq!(state(&mut c, "mcpgw:b")?, "active");
    // The claim given ahead would stand for more than an hour; it is anybody's now.
    let route = c.run("SESSION.ROUTE mcpgw:b zoe tools w:3")?;
    assert_eq!(route.field("state").to_string(), "orphaned");
    let epoch = route.field("epoch").integer();
    let move_it =
        format!("SESSION.REBIND mcpgw:b zoe tools {epoch} w:3 t3 LEASE 60000 INSTANCES 1 i");
    let moved = c.run(&move_it)?;
    assert_eq!(moved.field("won").integer(), 1);
    assert!(moved.field("epoch").integer() > epoch, "numbers only grow");
    // And the other session is used as ever.
    let route = c.run("SESSION.ROUTE mcpgw:a zoe tools w:1")?;
    assert_eq!(route.field("state").to_string(), "bound");
    Ok(())
}

#[tokio::test]
async fn an_hour_back_and_forward_keeps_every_session_and_every_order() -> anyhow::Result<()> {
    let clock = WallClock::new()?;
    let mut redis = start_server(&clock).await?;
    let mut c = Connection::open(&redis)?;
    let created = c.run("SESSION.CREATE mcpgw:a s zoe TTL 7200000")?;
    let generation = created.field("gen").integer();
    clock.set(-HOUR_MS)?;
    noticed(&mut redis, 1).await?;
    c.run("SESSION.TOUCH mcpgw:a zoe")?;
    assert_eq!(truth::holds(&redis, "an hour behind").await?, 1);
    // Dropped by hand and made anew: its numbers still grow.
    c.run("DEL mcpgw:a")?;
    let again = c.run("SESSION.CREATE mcpgw:a s zoe TTL 7200000")?;
    ensure!(again.field("gen").integer() > generation, "{again}");
    clock.set(0)?;
    noticed(&mut redis, 2).await?;
    assert_eq!(truth::holds(&redis, "and forward").await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_step_lets_no_cap_be_exceeded() -> anyhow::Result<()> {
    let clock = WallClock::new()?;
    let mut redis = start_server(&clock).await?;
    let mut c = Connection::open(&redis)?;
    c.run("SESSION.CREATE mcpgw:a s zoe TTL 7200000 CAP 1")?;
    // So that the walk that follows a step takes a while.
    c.run("DEBUG POPULATE 400000")?;
    clock.set(5_000)?;
    noticed(&mut redis, 1).await?;
    let refused = c.show("SESSION.CREATE mcpgw:b s zoe TTL 7200000 CAP 1")?;
    let stats = c.run("SESSION.STATS")?;
    let ready = stats.field("index_ready").integer();
    assert_eq!((refused.as_str(), ready), ("LIMIT 1 mcpgw:a", 0));
    assert_eq!(stats.field("clock_steps").integer(), 1);
    Ok(())
}

/// Each refusal would otherwise find the stored moment a whole window ahead again.
#[tokio::test]
async fn a_step_back_refuses_a_rate_for_a_window_and_not_for_the_step() -> anyhow::Result<()> {
    let clock = WallClock::new()?;
    clock.set(HOUR_MS)?;
    let mut redis = start_server(&clock).await?;
    let mut c = Connection::open(&redis)?;
    let ask = "SESSION.RATE mcpgw:rate:zoe LIMIT 5 WINDOW 1000";
    assert_eq!(c.run(ask)?.field("allowed").integer(), 1);
    clock.set(0)?;
    noticed(&mut redis, 1).await?;
    wait::until_true("the rate passes", NOTICED_WITHIN, async || {
        Ok(c.run(ask)?.field("allowed").integer() == 1)
    })
    .await?;
    let left = c.run("PTTL mcpgw:rate:zoe")?.integer();
    assert!(left <= 1_000, "{left} ms");
    Ok(())
}

fn alive(c: &mut Connection) -> anyhow::Result<i64> {
    Ok(c.run("SESSION.STATS")?.field("workers_alive").integer())
}
