//! What 100,000 sessions cost Redis and three gateways, from what a call more costs on this machine: the slope between two
//! loads of sessions that call once in two seconds, and of the same calls made ten in a row.
//!
//! Invariant: sessions begin spread evenly over the period, and the two loads are measured one after the other, so that
//! what is there without calls, such as heartbeats, is in neither slope.

use std::time::{Duration, Instant};

use anyhow::Context;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::figures::median;
use crate::load::{Counting, Session};
use crate::through::Plan;
use crate::trio::Trio;
use crate::upstream::Upstream;

/// The sessions that are measured, and those that are sized for.
const SESSIONS: [usize; 2] = [200, 800];
const SIZED_SESSIONS: f64 = 100_000.0;
const GATEWAYS: f64 = 3.0;
/// How many slices of the plan one measurement takes.
const SLICES: u32 = 5;

/// How a session calls.
#[derive(Clone, Copy, Debug)]
struct Pattern {
    name: &'static str,
    calls_in_a_row: usize,
    period: Duration,
}

const PATTERNS: [Pattern; 2] = [
    Pattern {
        name: "one call each 2 s",
        calls_in_a_row: 1,
        period: Duration::from_secs(2),
    },
    Pattern {
        name: "ten calls in a row each 20 s",
        calls_in_a_row: 10,
        period: Duration::from_secs(20),
    },
];

impl Pattern {
    /// Calls a second of all sized sessions.
    fn sized_rate(self) -> f64 {
        SIZED_SESSIONS * self.calls_in_a_row as f64 / self.period.as_secs_f64()
    }
}

/// What a call more costs.
#[derive(Clone, Copy, Debug)]
struct Slope {
    redis_cpu_us: f64,
    commands: f64,
    gateway_cpu_us: f64,
}

/// What one load has cost.
#[derive(Clone, Copy, Debug)]
struct Cost {
    calls: f64,
    redis_cpu_us: f64,
    commands: f64,
    gateway_cpu_us: f64,
}

/// The table.
pub(crate) async fn measure(logs: &TempDir, plan: Plan) -> anyhow::Result<String> {
    let upstream = Upstream::start(logs.path()).await?;
    let mut trios = Trio::start_all(upstream.port()).await?;
    let mut open = Vec::with_capacity(trios.len());
    for trio in &trios {
        open.push(open_sessions(trio).await?);
    }
    let mut lines = vec![
        "### 100,000 sessions over three gateways, from what a call more costs here".to_owned(),
        String::new(),
        "| sessions make | turns | Redis CPU us/call | commands/call | gateway CPU us/call | commands/s | cores of Redis | cores of each gateway |".to_owned(),
        "|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    for pattern in PATTERNS {
        let mut slopes = vec![Vec::with_capacity(plan.rounds); trios.len()];
        for _ in 0..plan.rounds {
            for ((trio, sessions), slopes) in trios.iter_mut().zip(&mut open).zip(&mut slopes) {
                slopes.push(slope(trio, sessions, pattern, plan.slice * SLICES).await?);
            }
        }
        for (trio, slopes) in trios.iter().zip(&slopes) {
            lines.push(row(pattern, trio, slopes));
        }
    }
    Ok(lines.join("\n"))
}

/// Opens all sessions, spread over the gateways.
async fn open_sessions(trio: &Trio) -> anyhow::Result<Vec<Session>> {
    let targets = trio.targets();
    let count = SESSIONS.into_iter().max().unwrap_or_default();
    let mut sessions = Vec::with_capacity(count);
    for target in targets.iter().cycle().take(count) {
        sessions.push(Session::open(target, Counting::Own).await?);
    }
    Ok(sessions)
}

async fn slope(
    trio: &mut Trio,
    sessions: &mut Vec<Session>,
    pattern: Pattern,
    length: Duration,
) -> anyhow::Result<Slope> {
    let [few, many] = SESSIONS;
    let few = cost(trio, sessions, few, pattern, length).await?;
    let many = cost(trio, sessions, many, pattern, length).await?;
    let per_call =
        |figure: fn(&Cost) -> f64| (figure(&many) - figure(&few)) / (many.calls - few.calls);
    Ok(Slope {
        redis_cpu_us: per_call(|cost| cost.redis_cpu_us),
        commands: per_call(|cost| cost.commands),
        gateway_cpu_us: per_call(|cost| cost.gateway_cpu_us),
    })
}

/// Has the first `count` sessions call for `length`.
async fn cost(
    trio: &mut Trio,
    sessions: &mut Vec<Session>,
    count: usize,
    pattern: Pattern,
    length: Duration,
) -> anyhow::Result<Cost> {
    let store_before = trio.store_cost()?;
    let gateways_before = trio.gateway_cpu_seconds()?;
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for (number, session) in sessions.drain(..count).enumerate() {
        let part = number as f64 / count as f64;
        tasks.spawn(call_in_pattern(
            session,
            pattern,
            began + pattern.period.mul_f64(part),
            began + length,
        ));
    }
    let mut calls = 0;
    while let Some(joined) = tasks.join_next().await {
        let (session, made) = joined.context("a session's task")??;
        calls += made;
        sessions.push(session);
    }
    let store = trio.store_cost()?.since(store_before);
    Ok(Cost {
        calls: calls as f64,
        redis_cpu_us: store.cpu_seconds * 1e6,
        commands: store.commands as f64,
        gateway_cpu_us: (trio.gateway_cpu_seconds()? - gateways_before) * 1e6,
    })
}

/// Returns the session and how many calls it made.
async fn call_in_pattern(
    mut session: Session,
    pattern: Pattern,
    mut next: Instant,
    end: Instant,
) -> anyhow::Result<(Session, usize)> {
    let mut calls = 0;
    while next < end {
        sleep_until(next.into()).await;
        for _ in 0..pattern.calls_in_a_row {
            session.call().await?;
            calls += 1;
        }
        next += pattern.period;
    }
    // All measurements have the same length.
    sleep_until(end.into()).await;
    Ok((session, calls))
}

fn row(pattern: Pattern, trio: &Trio, slopes: &[Slope]) -> String {
    let of = |figure: fn(&Slope) -> f64| median(slopes.iter().map(figure).collect());
    let (redis_cpu_us, commands, gateway_cpu_us) = (
        of(|slope| slope.redis_cpu_us),
        of(|slope| slope.commands),
        of(|slope| slope.gateway_cpu_us),
    );
    let rate = pattern.sized_rate();
    format!(
        "| {} | {} | {redis_cpu_us:.1} | {commands:.2} | {gateway_cpu_us:.0} | {:.0} | {:.2} | {:.2} |",
        pattern.name,
        trio.delegation.name(),
        commands * rate,
        redis_cpu_us * rate / 1e6,
        gateway_cpu_us * rate / 1e6 / GATEWAYS,
    )
}
