//! Sessions that change their gateway: with every call, or every few calls.
//!
//! Invariant: a round measures delegated turns and turns without delegation one after the other, and a ratio is of two
//! figures of the same round.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::figures::{median, percentile};
use crate::load::{Counting, Session};
use crate::through::Plan;
use crate::trio::Trio;
use crate::upstream::Upstream;
use crate::wire::Target;

/// Sessions at once.
const SESSIONS: [usize; 2] = [16, 1];
/// Calls at one gateway before the next one.
const CALLS_AT_ONE: [usize; 3] = [1, 10, usize::MAX];
const WARM_UP: Duration = Duration::from_millis(500);

/// One slice.
#[derive(Clone, Copy, Debug)]
struct Sample {
    calls_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// Of the first call after a change.
    first_p50_ms: f64,
    redis_cpu_us: f64,
}

/// The table.
pub(crate) async fn measure(logs: &TempDir, plan: Plan) -> anyhow::Result<String> {
    let upstream = Upstream::start(logs.path()).await?;
    let trios = Trio::start_all(upstream.port()).await?;
    let mut lines = vec![
        "### Three gateways, sessions that change between them".to_owned(),
        String::new(),
        "| sessions | changes | turns | calls/s | p50 ms | p99 ms | first call after a change, p50 ms | Redis CPU us/call |".to_owned(),
        "|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    let mut comparisons = Vec::new();
    for sessions in SESSIONS {
        for calls_at_one in CALLS_AT_ONE {
            let samples = measure_all(&trios, sessions, calls_at_one, plan).await?;
            let changes = match calls_at_one {
                1 => "with every call".to_owned(),
                usize::MAX => "never".to_owned(),
                calls => format!("every {calls} calls"),
            };
            for (trio, samples) in trios.iter().zip(&samples) {
                lines.push(row(
                    &format!("{sessions} | {changes} | {}", trio.delegation.name()),
                    samples,
                ));
            }
            if let [on, off] = &*samples {
                comparisons.push(compare(
                    &format!("{sessions} sessions, changes {changes}"),
                    on,
                    off,
                ));
            }
        }
    }
    if comparisons.is_empty() {
        comparisons.push("This build has no delegations: there is nothing to compare.".to_owned());
    }
    Ok([lines.join("\n"), comparisons.join("\n")].join("\n\n"))
}

async fn measure_all(
    trios: &[Trio],
    sessions: usize,
    calls_at_one: usize,
    plan: Plan,
) -> anyhow::Result<Vec<Vec<Sample>>> {
    let mut samples = vec![Vec::new(); trios.len()];
    for trio in trios {
        measure_once(trio, sessions, calls_at_one, WARM_UP).await?;
    }
    for _ in 0..plan.rounds {
        for (trio, samples) in trios.iter().zip(&mut samples) {
            samples.push(measure_once(trio, sessions, calls_at_one, plan.slice).await?);
        }
    }
    Ok(samples)
}

async fn measure_once(
    trio: &Trio,
    sessions: usize,
    calls_at_one: usize,
    length: Duration,
) -> anyhow::Result<Sample> {
    let targets = trio.targets();
    let mut roaming = Vec::with_capacity(sessions);
    for number in 0..sessions {
        roaming.push(RoamingSession::open(&targets, number).await?);
    }
    let store_before = trio.store_cost()?;
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for session in roaming {
        tasks.spawn(session.call_until(started + length, calls_at_one));
    }
    let (mut all, mut first) = (Vec::new(), Vec::new());
    let mut ended = Vec::with_capacity(sessions);
    while let Some(joined) = tasks.join_next().await {
        let (session, latencies) = joined.context("a session's task")??;
        for (is_first, latency_ns) in latencies {
            all.push(latency_ns);
            if is_first {
                first.push(latency_ns);
            }
        }
        ended.push(session);
    }
    let elapsed = started.elapsed();
    let store = trio.store_cost()?.since(store_before);
    for session in ended {
        session.close().await?;
    }
    all.sort_unstable();
    first.sort_unstable();
    let ms = |latencies: &[u32], part| f64::from(percentile(latencies, part)) / 1e6;
    Ok(Sample {
        calls_per_second: all.len() as f64 / elapsed.as_secs_f64(),
        p50_ms: ms(&all, 0.50),
        p99_ms: ms(&all, 0.99),
        first_p50_ms: ms(&first, 0.50),
        redis_cpu_us: store.cpu_seconds * 1e6 / all.len() as f64,
    })
}

/// One session with a connection to each gateway.
pub(crate) struct RoamingSession {
    at: Vec<Session>,
    next: usize,
    count: u64,
}

impl RoamingSession {
    /// Opens it at the gateway of this number, counted round.
    pub(crate) async fn open(targets: &[Target], number: usize) -> anyhow::Result<Self> {
        let first = number % targets.len().max(1);
        let opened = Session::open(targets.get(first).context("a gateway")?, Counting::Own).await?;
        Ok(Self {
            at: opened.also_at(targets).await?,
            next: first,
            count: 0,
        })
    }

    /// One call at the gateway where it is.
    pub(crate) async fn call(&mut self) -> anyhow::Result<()> {
        let session = self.at.get_mut(self.next).context("a gateway")?;
        let count = session.exchange().await?.count;
        ensure!(
            count == self.count + 1,
            "count {count} after {}",
            self.count
        );
        self.count = count;
        Ok(())
    }

    /// Ends it.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        let last = self.at.into_iter().next().context("a gateway")?;
        last.close().await
    }

    /// The latency of each call, in nanoseconds, and whether it was the first one after a change.
    async fn call_until(
        mut self,
        end: Instant,
        calls_at_one: usize,
    ) -> anyhow::Result<(Self, Vec<(bool, u32)>)> {
        let mut latencies = Vec::with_capacity(64 * 1024);
        let mut before = Instant::now();
        for number in 0_usize.. {
            let is_first = number > 0 && number % calls_at_one == 0;
            if is_first {
                self.next = (self.next + 1) % self.at.len();
            }
            self.call().await?;
            let after = Instant::now();
            let latency_ns = u32::try_from((after - before).as_nanos()).unwrap_or(u32::MAX);
            latencies.push((is_first, latency_ns));
            if after >= end {
                break;
            }
            before = after;
        }
        Ok((self, latencies))
    }
}

fn row(name: &str, samples: &[Sample]) -> String {
    let of = |figure: fn(&Sample) -> f64| median(samples.iter().map(figure).collect());
    format!(
        "| {name} | {:.0} | {:.3} | {:.3} | {:.3} | {:.2} |",
        of(|sample| sample.calls_per_second),
        of(|sample| sample.p50_ms),
        of(|sample| sample.p99_ms),
        of(|sample| sample.first_p50_ms),
        of(|sample| sample.redis_cpu_us),
    )
}

fn compare(name: &str, on: &[Sample], off: &[Sample]) -> String {
    let against = |figure: fn(&Sample, &Sample) -> f64| {
        let pairs = on.iter().zip(off);
        median(pairs.map(|(on, off)| figure(on, off)).collect())
    };
    format!(
        "{name}: {:.3} x the calls without delegations, p50 x {:.3}, p99 x {:.3}, first call after a change {:+.3} ms at p50.",
        against(|on, off| on.calls_per_second / off.calls_per_second),
        against(|on, off| on.p50_ms / off.p50_ms),
        against(|on, off| on.p99_ms / off.p99_ms),
        against(|on, off| on.first_p50_ms - off.first_p50_ms),
    )
}
