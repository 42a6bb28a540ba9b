//! The next reply after the instance of a session was killed with SIGKILL: how long it takes until the gateway
//! has told a dead instance from a slow one, moved the session and answered.

use std::time::Instant;

use anyhow::{Context, ensure};
use tempfile::TempDir;

use crate::arrangement::Arrangement;
use crate::figures::percentile;
use crate::load::Session;
use crate::upstream::Upstream;

const TRIALS: usize = 20;

/// Kills the instance of a session, calls, and starts it again; once per trial.
pub(crate) async fn measure(logs: &TempDir) -> anyhow::Result<String> {
    let mut upstreams = [
        Upstream::start(logs.path()).await?,
        Upstream::start(logs.path()).await?,
    ];
    let ports = upstreams.each_ref().map(Upstream::port);
    let mut lines = vec![
        format!("### The next reply after the instance is killed, {TRIALS} trials"),
        String::new(),
        "| | least ms | p50 ms | most ms |".to_owned(),
        "|---|---|---|---|".to_owned(),
    ];
    for arrangement in [
        Arrangement::redis(&ports).await?,
        Arrangement::embedded(&ports).await?,
    ] {
        let mut latencies_ms = Vec::with_capacity(TRIALS);
        for trial in 0..TRIALS {
            let latency_ms = once(&arrangement, &mut upstreams)
                .await
                .with_context(|| format!("trial {trial} of {}", arrangement.name))?;
            latencies_ms.push(latency_ms);
        }
        latencies_ms.sort_unstable_by(f64::total_cmp);
        lines.push(format!(
            "| {} | {:.0} | {:.0} | {:.0} |",
            arrangement.name,
            percentile(&latencies_ms, 0.0),
            percentile(&latencies_ms, 0.5),
            percentile(&latencies_ms, 1.0)
        ));
    }
    Ok(lines.join("\n"))
}

async fn once(arrangement: &Arrangement, upstreams: &mut [Upstream]) -> anyhow::Result<f64> {
    let mut session = Session::open(&arrangement.target, arrangement.counting).await?;
    let before = session.call().await?.instance;
    let upstream = upstreams
        .iter_mut()
        .find(|upstream| upstream.port() == before)
        .context("the reply names an instance")?;
    upstream.kill_now()?;
    let killed = Instant::now();
    let after = session.exchange().await?;
    let latency_ms = killed.elapsed().as_secs_f64() * 1e3;
    ensure!(after.instance != before, "the dead instance has answered");
    ensure!(after.count == 1, "a moved session begins to count again");
    upstream.restart().await?;
    session.close().await?;
    Ok(latency_ms)
}
