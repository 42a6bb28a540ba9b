//! What keeping sessions costs against a plain nginx hop, for each store, with turns and without, with delegated turns and
//! without.
//!
//! Invariant: as in [`crate::through`], a ratio is of two figures of the same round.

use std::time::Instant;

use anyhow::Context;
use tempfile::TempDir;

use crate::arrangement::{Arrangement, Concurrency, Delegation, Keeping};
use crate::cost::StoreCost;
use crate::figures::median;
use crate::load::Call;
use crate::through::{self, Load, Plan, Sample};
use crate::upstream::Upstream;

/// Sessions at once.
const SESSIONS: [usize; 2] = [16, 1];

/// A way to keep sessions, with its names with and without delegations.
const WAYS: [(bool, Concurrency, [&str; 2]); 4] = [
    (
        true,
        Concurrency::Serial,
        ["Redis, serial", "Redis, serial, without delegations"],
    ),
    (
        true,
        Concurrency::Parallel,
        ["Redis, parallel", "Redis, parallel, without delegations"],
    ),
    (
        false,
        Concurrency::Serial,
        ["embedded, serial", "embedded, serial, without delegations"],
    ),
    (
        false,
        Concurrency::Parallel,
        [
            "embedded, parallel",
            "embedded, parallel, without delegations",
        ],
    ),
];

/// A table for each number of sessions.
pub(crate) async fn measure(logs: &TempDir, plan: Plan) -> anyhow::Result<String> {
    let upstream = Upstream::start(logs.path()).await?;
    let ports = [upstream.port()];
    let mut arrangements = vec![
        Arrangement::nginx(upstream.port()).await?,
        Arrangement::off(&ports).await?,
    ];
    for (is_in_redis, concurrency, names) in WAYS {
        for (delegation, name) in Delegation::of_this_build()?.into_iter().zip(names) {
            let keeping = Keeping {
                is_in_redis,
                concurrency,
                delegation,
            };
            arrangements.push(Arrangement::keeping(name, keeping, &ports).await?);
        }
    }
    let mut tables = Vec::new();
    for sessions in SESSIONS {
        let load = Load {
            sessions,
            call: Call::default(),
        };
        let samples = through::measure(&mut arrangements, load, plan).await?;
        tables.push(table(&arrangements, &samples, sessions)?);
    }
    tables.push(idle(&arrangements, plan).await?);
    Ok(tables.join("\n\n"))
}

/// What Redis does without calls, which is in its CPU time of each call above.
async fn idle(arrangements: &[Arrangement], plan: Plan) -> anyhow::Result<String> {
    let costs = || -> anyhow::Result<Vec<StoreCost>> {
        arrangements.iter().map(Arrangement::store_cost).collect()
    };
    let (before, began) = (costs()?, Instant::now());
    tokio::time::sleep(plan.slice).await;
    let after = costs()?;
    let seconds = began.elapsed().as_secs_f64();
    let idle = after.into_iter().zip(before).zip(arrangements);
    let in_redis = idle.filter(|(_, arrangement)| arrangement.redis_url().is_some());
    let us = in_redis.map(|((after, before), _)| after.since(before).cpu_seconds * 1e6 / seconds);
    let us = median(us.collect());
    Ok(format!(
        "Without calls Redis takes {us:.0} us of CPU a second."
    ))
}

fn table(
    arrangements: &[Arrangement],
    samples: &[Vec<Sample>],
    sessions: usize,
) -> anyhow::Result<String> {
    let nginx = samples.first().context("nginx")?;
    let mut lines = vec![
        format!("### {sessions} session{} that stay{} at one gateway", if sessions == 1 { "" } else { "s" }, if sessions == 1 { "s" } else { "" }),
        String::new(),
        "| through | calls x nginx | CPU x nginx | calls/s | p50 ms | p99 ms | CPU us/call | Redis CPU us/call | store commands a second and session |".to_owned(),
        "|---|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    for (arrangement, samples) in arrangements.iter().zip(samples) {
        let of = |figure: fn(&Sample) -> f64| median(samples.iter().map(figure).collect());
        let against = |figure: fn(&Sample) -> f64| {
            let pairs = samples.iter().zip(nginx);
            median(
                pairs
                    .map(|(sample, nginx)| figure(sample) / figure(nginx))
                    .collect(),
            )
        };
        lines.push(format!(
            "| {} | {:.2} | {:.2} | {:.0} | {:.3} | {:.3} | {:.1} | {:.2} | {:.1} |",
            arrangement.name,
            against(|sample| sample.calls_per_second),
            against(|sample| sample.hop_cpu_us),
            of(|sample| sample.calls_per_second),
            of(|sample| sample.p50_ms),
            of(|sample| sample.p99_ms),
            of(|sample| sample.hop_cpu_us),
            of(|sample| sample.redis_cpu_us),
            of(|sample| sample.store_commands),
        ));
    }
    Ok(lines.join("\n"))
}
