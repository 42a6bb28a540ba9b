//! Turns over many workers: one call at a time, in the order of arrival, whoever dies, stalls or goes away.
//!
//! [`order`]: who has the turn when. [`losses`]: how it is lost. [`restarts`]: what a restart or a failover leaves of it.
//! [`sessions`]: what it means for the session and its other commands. [`withdrawn`]: whoever is taken out of the queue by
//! another. Here is what they share.

mod losses;
mod order;
mod restarts;
mod sessions;
mod withdrawn;

use std::time::{Duration, Instant};

use mooring_tests::redis::{Module, Redis};
use mooring_tests::wait;

use super::resp::{Connection, Value};

pub(super) const KEY: &str = "mcpgw:session_affinity:s1";
pub(super) const SOON: Duration = Duration::from_secs(20);

pub(super) async fn server(settings: &[&str]) -> anyhow::Result<(Redis, Connection)> {
    let mut arguments = vec!["--mooring.worker-grace-ms", "60000"];
    arguments.extend(settings);
    let redis = Redis::start_with(Module::Loaded, &arguments).await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    over_the_quiet_time(&mut c).await?;
    Ok((redis, c))
}

/// A node that has just started grants only what was held: until it grants a turn to somebody else.
pub(super) async fn over_the_quiet_time(c: &mut Connection) -> anyhow::Result<()> {
    wait::until_true("the end of the quiet time", SOON, async || {
        let shown = c.run(&format!(
            "SESSION.ENTER {KEY} zoe other w:0 quiet LEASE 100"
        ))?;
        Ok(*shown.field("turn") != Value::Null)
    })
    .await?;
    c.run(&format!("SESSION.LEAVE {KEY} zoe other quiet"))?;
    Ok(())
}

/// Short enough for tests, long enough for a machine that is busy.
pub(super) const SHORT_QUIET: [&str; 2] = ["--mooring.turn-lease-max-ms", "1000"];

pub(super) fn enter(worker: &str, ticket: &str, lease: u64, more: &str) -> String {
    format!("SESSION.ENTER {KEY} zoe tools {worker} {ticket} LEASE {lease}{more}")
}

pub(super) fn leave(ticket: &str) -> String {
    format!("SESSION.LEAVE {KEY} zoe tools {ticket}")
}

/// The turn that ENTER answers with.
pub(super) fn turn(reply: &Value) -> Option<i64> {
    match reply.field("turn") {
        Value::Null => None,
        number => Some(number.integer()),
    }
}

/// What one WAIT brings, `event ticket` each.
pub(super) fn hear(
    c: &mut Connection,
    worker: &str,
    timeout_ms: u64,
) -> anyhow::Result<Vec<String>> {
    let reply = c.run(&format!("WORKER.WAIT {worker} TIMEOUT {timeout_ms}"))?;
    let Value::Array(items) = reply else {
        panic!("WAIT answers with an array: {reply}");
    };
    let shown = |item: &Value| match item.field("ticket") {
        Value::Null => item.field("event").to_string(),
        ticket => format!("{} {ticket}", item.field("event")),
    };
    Ok(items.iter().map(shown).collect())
}

/// Waits until the worker hears of the ticket's turn.
pub(super) fn hear_turn(c: &mut Connection, worker: &str, ticket: &str) -> anyhow::Result<()> {
    let started = Instant::now();
    while started.elapsed() < SOON {
        if hear(c, worker, 1_000)?.contains(&format!("turn {ticket}")) {
            return Ok(());
        }
    }
    anyhow::bail!("{worker} never heard of the turn of {ticket}")
}

/// Waits until so many clients are in WORKER.WAIT.
pub(super) async fn until_waiting(c: &mut Connection, clients: i64) -> anyhow::Result<()> {
    wait::until_true("waiting clients", SOON, async || {
        let stats = c.run("SESSION.STATS")?;
        Ok(stats.field("workers_waiting").integer() == clients)
    })
    .await
}
