//! What the gateway and Redis keep in memory: for 10,000 sessions bound to one upstream that nobody uses at the moment,
//! and for 1,000 calls that wait for their replies at the same time.

use std::time::Duration;

use anyhow::Context;
use tempfile::TempDir;

use crate::arrangement::Arrangement;
use crate::load::{self, Call};
use crate::upstream::Upstream;

const SESSIONS: usize = 10_000;
const CALLS: usize = 1_000;
/// How long the upstream waits before each reply, and when the memory is read meanwhile.
const REPLY_AFTER: Duration = Duration::from_secs(6);
const READ_AFTER: Duration = Duration::from_secs(3);
const KIB_PER_MIB: f64 = 1024.0;

/// The table of each.
pub(crate) async fn measure(logs: &TempDir) -> anyhow::Result<String> {
    let upstream = Upstream::start(logs.path()).await?;
    let idle = of_sessions(upstream.port()).await?;
    let in_flight = of_calls(upstream.port()).await?;
    Ok(format!("{idle}\n\n{in_flight}"))
}

/// A gateway with Redis and one with the embedded store, both new.
async fn gateways(upstream_port: u16) -> anyhow::Result<[Arrangement; 2]> {
    Ok([
        Arrangement::redis(&[upstream_port]).await?,
        Arrangement::embedded(&[upstream_port]).await?,
    ])
}

/// Opens the sessions one after another over one connection, and leaves them.
async fn of_sessions(upstream_port: u16) -> anyhow::Result<String> {
    let mut lines = vec![
        format!("### {SESSIONS} idle sessions, bound"),
        String::new(),
        "| | gateway RSS MiB before | after | Redis RSS MiB before | after |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    for mut arrangement in gateways(upstream_port).await? {
        let (gateway_before, redis_before) = arrangement.cost()?;
        load::open_idle(&arrangement.target, SESSIONS)
            .await
            .context(arrangement.name)?;
        let (gateway, redis) = arrangement.cost()?;
        lines.push(format!(
            "| {} | {:.0} | {:.0} | {:.0} | {:.0} |",
            arrangement.name,
            gateway_before.resident_mib,
            gateway.resident_mib,
            redis_before.resident_mib,
            redis.resident_mib
        ));
    }
    Ok(lines.join("\n"))
}

/// Opens the sessions, each over a connection that stays, and then sends a call in each.
async fn of_calls(upstream_port: u16) -> anyhow::Result<String> {
    let mut lines = vec![
        format!("### {CALLS} calls in flight"),
        String::new(),
        "| | gateway RSS MiB with the connections | with the calls | KiB per call |".to_owned(),
        "|---|---|---|---|".to_owned(),
    ];
    let call = Call {
        reply_after: REPLY_AFTER,
        ..Call::default()
    };
    for mut arrangement in gateways(upstream_port).await? {
        let opened = load::open(&arrangement.target, arrangement.counting, CALLS)
            .await
            .context(arrangement.name)?;
        let sessions = opened.into_iter().map(|session| session.calling(call));
        let (before, _) = arrangement.cost()?;
        // A slice without length is one call of each.
        let calls = load::drive(sessions.collect(), Duration::ZERO);
        let read = async {
            tokio::time::sleep(READ_AFTER).await;
            arrangement.cost()
        };
        let (calls, read) = tokio::join!(calls, read);
        let ((sessions, _), (with_calls, _)) = (calls.context(arrangement.name)?, read?);
        lines.push(format!(
            "| {} | {:.1} | {:.1} | {:.1} |",
            arrangement.name,
            before.resident_mib,
            with_calls.resident_mib,
            (with_calls.resident_mib - before.resident_mib) * KIB_PER_MIB / CALLS as f64
        ));
        load::close(sessions).await?;
    }
    Ok(lines.join("\n"))
}
