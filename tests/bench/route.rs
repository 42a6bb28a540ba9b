//! One SESSION.ROUTE as a gateway sees it: a round trip of the same client library over loopback.

use std::time::Instant;

use anyhow::{Context, ensure};
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;

use crate::arrangement::Arrangement;
use crate::figures::percentile;
use crate::load::Session;
use crate::upstream::Upstream;

const ROUND_TRIPS: usize = 50_000;
const WARM_UP: usize = 1_000;

/// Binds a session through a gateway, then asks for its route over and over.
pub(crate) async fn measure(logs: &TempDir) -> anyhow::Result<String> {
    let upstream = Upstream::start(logs.path()).await?;
    let arrangement = Arrangement::redis(&[upstream.port()]).await?;
    let _session = Session::open(&arrangement.target, arrangement.counting).await?;
    let url = arrangement.redis_url().context("a Redis")?;
    let client = redis::Client::open(url).context("read the URL")?;
    let mut connection = client
        .get_multiplexed_async_connection()
        .await
        .context("connect to Redis")?;
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg("mcpgw:session_affinity:*")
        .query_async(&mut connection)
        .await?;
    let key = keys.first().context("the session's record")?;
    for _ in 0..WARM_UP {
        route(&mut connection, key).await?;
    }
    let mut latencies_ns = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        let before = Instant::now();
        route(&mut connection, key).await?;
        latencies_ns.push(u32::try_from(before.elapsed().as_nanos())?);
    }
    latencies_ns.sort_unstable();
    let ms = |part| f64::from(percentile(&latencies_ns, part)) / 1e6;
    Ok(format!(
        "### One ROUTE, loopback\n\n| round trips | p50 ms | p99 ms | p99.9 ms |\n|---|---|---|---|\n\
         | {ROUND_TRIPS} | {:.3} | {:.3} | {:.3} |",
        ms(0.50),
        ms(0.99),
        ms(0.999)
    ))
}

async fn route(connection: &mut MultiplexedConnection, key: &str) -> anyhow::Result<()> {
    let reply: redis::Value = redis::cmd("SESSION.ROUTE")
        .arg(key)
        .arg("local")
        .arg("tools")
        .arg("bench:0000000000000000")
        .query_async(connection)
        .await?;
    ensure!(!matches!(reply, redis::Value::Nil), "ROUTE answers nothing");
    Ok(())
}
