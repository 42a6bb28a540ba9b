//! The next good reply at another gateway after the gateway that a session was busy at was killed with SIGKILL: with the
//! turn delegated to it and without, in the middle of a call and between two.
//!
//! Invariant: a trial of each kind follows the other, so that a machine that slows down hits both alike.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::figures::percentile;
use crate::load::{Call, Counting, Session};
use crate::through::Plan;
use crate::trio::Trio;
use crate::upstream::Upstream;

/// Trials of each kind for each round of the plan.
const TRIALS_PER_ROUND: usize = 20;
/// Calls in a row before the kill.
const CALLS_BEFORE: usize = 12;
/// How long a call lasts that is killed in the middle.
const CALL_LASTS: Duration = Duration::from_millis(40);
/// How long the last call is over before its gateway is killed: longer than it takes to end a turn that is not delegated.
const PAUSE_BEFORE: Duration = Duration::from_millis(50);
const AGAIN_AFTER: Duration = Duration::from_millis(5);
const GOOD_WITHIN: Duration = Duration::from_secs(30);

/// When the gateway is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Killed {
    InCall,
    BetweenCalls,
}

/// The table.
pub(crate) async fn measure(logs: &TempDir, plan: Plan) -> anyhow::Result<String> {
    let upstream = Upstream::start(logs.path()).await?;
    let mut trios = Trio::start_all(upstream.port()).await?;
    let trials = plan.rounds * TRIALS_PER_ROUND;
    let mut lines = vec![
        format!(
            "### The next good reply elsewhere after the gateway is killed, {trials} trials each"
        ),
        String::new(),
        "| killed | turns | p50 ms | p90 ms | p99 ms | most ms |".to_owned(),
        "|---|---|---|---|---|---|".to_owned(),
    ];
    for (killed, when) in [
        (Killed::InCall, "in a call"),
        (Killed::BetweenCalls, "between calls"),
    ] {
        let mut latencies_ms = vec![Vec::with_capacity(trials); trios.len()];
        for trial in 0..trials {
            for (trio, latencies_ms) in trios.iter_mut().zip(&mut latencies_ms) {
                let latency_ms = once(trio, killed)
                    .await
                    .with_context(|| format!("trial {trial}, {when}"))?;
                latencies_ms.push(latency_ms);
            }
        }
        for (trio, latencies_ms) in trios.iter().zip(&mut latencies_ms) {
            latencies_ms.sort_unstable_by(f64::total_cmp);
            let [p50, p90, p99, most] =
                [0.5, 0.9, 0.99, 1.0].map(|part| percentile(latencies_ms, part));
            lines.push(format!(
                "| {when} | {} | {p50:.0} | {p90:.0} | {p99:.0} | {most:.0} |",
                trio.delegation.name()
            ));
        }
    }
    Ok(lines.join("\n"))
}

async fn once(trio: &mut Trio, killed: Killed) -> anyhow::Result<f64> {
    let targets = trio.targets();
    let (home, others) = targets.split_first().context("a gateway")?;
    let mut session = Session::open(home, Counting::Own).await?;
    let mut elsewhere = session.also_at(others).await?;
    let elsewhere = elsewhere.first_mut().context("another gateway")?;
    for _ in 0..CALLS_BEFORE {
        session.call().await?;
    }
    let call = match killed {
        Killed::InCall => {
            let mut session = session.calling(Call {
                reply_after: CALL_LASTS,
                ..Call::default()
            });
            let call = tokio::spawn(async move { session.call().await });
            sleep(CALL_LASTS / 2).await;
            Some(call)
        }
        Killed::BetweenCalls => {
            sleep(PAUSE_BEFORE).await;
            None
        }
    };
    let began = Instant::now();
    trio.gateway(0)?.process().kill_now()?;
    while let Err(error) = elsewhere.exchange().await {
        if began.elapsed() >= GOOD_WITHIN {
            bail!("no good reply within {GOOD_WITHIN:?}: {error:#}");
        }
        sleep(AGAIN_AFTER).await;
    }
    let latency_ms = began.elapsed().as_secs_f64() * 1e3;
    if let Some(call) = call {
        // Its gateway is dead: an error, unless it was answered just before.
        let _ = call.await?;
    }
    trio.gateway(0)?.restart().await?;
    Ok(latency_ms)
}
