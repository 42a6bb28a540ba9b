//! Calls through each arrangement against the same calls made directly.
//!
//! Invariant: a round measures every arrangement once, one after another, and a ratio is the median over the
//! rounds of two figures of the same round, so that a machine that slows down hits both alike.

use std::time::Duration;

use anyhow::Context;

use crate::arrangement::Arrangement;
use crate::figures::{median, percentile};
use crate::load::{self, Call};

/// How long and how often to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    pub(crate) slice: Duration,
}

/// How long the load runs before the first round counts.
const WARM_UP: Duration = Duration::from_millis(500);

/// What is sent through an arrangement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) sessions: usize,
    pub(crate) call: Call,
}

/// One slice of one arrangement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) calls_per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) hop_cpu_us: f64,
    pub(crate) redis_cpu_us: f64,
    /// Commands about sessions, a second and session.
    pub(crate) store_commands: f64,
    resident_mib: f64,
}

/// Measures all arrangements, the first of which is the direct way, and says so as a table.
pub(crate) async fn table(
    arrangements: &mut [Arrangement],
    sessions: usize,
    plan: Plan,
) -> anyhow::Result<String> {
    let load = Load {
        sessions,
        call: Call::default(),
    };
    let samples = measure(arrangements, load, plan).await?;
    let direct = samples.first().context("the direct way")?;
    let mut lines = vec![
        format!("### {sessions} session{}", if sessions == 1 { "" } else { "s" }),
        String::new(),
        "| through | x direct | calls/s | p50 ms | p99 ms | added p50 ms | added p99 ms | CPU us/call | Redis CPU us/call | RSS MiB |".to_owned(),
        "|---|---|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    for (arrangement, samples) in arrangements.iter().zip(&samples) {
        lines.push(row(arrangement.name, samples, direct));
    }
    Ok(lines.join("\n"))
}

/// Measures all arrangements in turns; the samples of each, one for each round.
pub(crate) async fn measure(
    arrangements: &mut [Arrangement],
    load: Load,
    plan: Plan,
) -> anyhow::Result<Vec<Vec<Sample>>> {
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); arrangements.len()];
    for arrangement in arrangements.iter_mut() {
        measure_once(arrangement, load, WARM_UP).await?;
    }
    for _ in 0..plan.rounds {
        for (arrangement, samples) in arrangements.iter_mut().zip(&mut samples) {
            samples.push(measure_once(arrangement, load, plan.slice).await?);
        }
    }
    Ok(samples)
}

async fn measure_once(
    arrangement: &mut Arrangement,
    load: Load,
    length: Duration,
) -> anyhow::Result<Sample> {
    let what = arrangement.name;
    let open = load::open(&arrangement.target, arrangement.counting, load.sessions)
        .await
        .context(what)?;
    let open = open.into_iter().map(|session| session.calling(load.call));
    let open = open.collect();
    let store_before = arrangement.store_cost()?;
    let (hop_before, _) = arrangement.cost()?;
    let (open, slice) = load::drive(open, length).await.context(what)?;
    let (hop, _) = arrangement.cost()?;
    let store = arrangement.store_cost()?.since(store_before);
    let seconds = slice.latencies_ns.len() as f64 / slice.calls_per_second;
    load::close(open).await.context(what)?;
    let cpu_us = |seconds: f64| seconds * 1e6 / slice.latencies_ns.len() as f64;
    let percentile_ms = |part| f64::from(percentile(&slice.latencies_ns, part)) / 1e6;
    Ok(Sample {
        calls_per_second: slice.calls_per_second,
        p50_ms: percentile_ms(0.50),
        p99_ms: percentile_ms(0.99),
        hop_cpu_us: cpu_us(hop.cpu_seconds - hop_before.cpu_seconds),
        redis_cpu_us: cpu_us(store.cpu_seconds),
        store_commands: store.commands as f64 / seconds / load.sessions as f64,
        resident_mib: hop.resident_mib,
    })
}

fn row(name: &str, samples: &[Sample], direct: &[Sample]) -> String {
    let of = |figure: fn(&Sample) -> f64| median(samples.iter().map(figure).collect());
    let against = |figure: fn(&Sample, &Sample) -> f64| {
        let pairs = samples.iter().zip(direct);
        median(
            pairs
                .map(|(sample, direct)| figure(sample, direct))
                .collect(),
        )
    };
    format!(
        "| {name} | {:.2} | {:.0} | {:.3} | {:.3} | {:.3} | {:.3} | {:.0} | {:.1} | {:.0} |",
        against(|sample, direct| sample.calls_per_second / direct.calls_per_second),
        of(|sample| sample.calls_per_second),
        of(|sample| sample.p50_ms),
        of(|sample| sample.p99_ms),
        against(|sample, direct| sample.p50_ms - direct.p50_ms),
        against(|sample, direct| sample.p99_ms - direct.p99_ms),
        of(|sample| sample.hop_cpu_us),
        of(|sample| sample.redis_cpu_us),
        of(|sample| sample.resident_mib),
    )
}
