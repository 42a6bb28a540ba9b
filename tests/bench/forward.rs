//! What the hop from one worker to another costs: the same session's calls at the worker that holds its child process,
//! and at another, which passes them on.
//!
//! And what a turn costs: calls of a server that has them against calls of the same one that has not. Invariant: a round
//! measures both ways, one after the other, and what is told is the median over the rounds of two figures of one round.

use anyhow::Context;
use tempfile::TempDir;

use crate::figures::{median, percentile};
use crate::load::{self, Counting, Session, Slice};
use crate::pair::{CHILD, PARALLEL, Pair, SERIAL};
use crate::through::Plan;

/// Both ways of one round.
struct Round {
    base: Slice,
    way: Slice,
}

/// The calls of one session at its owner, and at another worker.
pub(crate) async fn measure(logs: &TempDir, plan: Plan) -> anyhow::Result<String> {
    let pair = Pair::start(logs).await?;
    let (owner, other) = (pair.owner(CHILD)?, pair.other(CHILD)?);
    let mut session = Session::open(&owner, Counting::Own).await?;
    let mut rounds = Vec::with_capacity(plan.rounds);
    // The first round warms up.
    for _ in 0..=plan.rounds {
        let (back, base) = slice(session, plan).await.context("at the owner")?;
        let (back, way) = slice(back.at(&other).await?, plan)
            .await
            .context("at another worker")?;
        session = back.at(&owner).await?;
        rounds.push(Round { base, way });
    }
    session.close().await?;
    let names = ["its owner", "another worker"];
    Ok(table(
        "One session's calls of a child process",
        names,
        rounds.get(1..).unwrap_or_default(),
    ))
}

/// The calls of one session without turns, and with them.
pub(crate) async fn turns(logs: &TempDir, plan: Plan) -> anyhow::Result<String> {
    let pair = Pair::start(logs).await?;
    let mut parallel = Session::open(&pair.owner(PARALLEL)?, Counting::Own).await?;
    let mut serial = Session::open(&pair.owner(SERIAL)?, Counting::Own).await?;
    let mut rounds = Vec::with_capacity(plan.rounds);
    for _ in 0..=plan.rounds {
        let (base, way);
        (parallel, base) = slice(parallel, plan).await.context("without turns")?;
        (serial, way) = slice(serial, plan).await.context("with turns")?;
        rounds.push(Round { base, way });
    }
    load::close(vec![parallel, serial]).await?;
    let names = ["concurrency = \"parallel\"", "concurrency = \"serial\""];
    Ok(table(
        "One session's calls of an HTTP server",
        names,
        rounds.get(1..).unwrap_or_default(),
    ))
}

async fn slice(session: Session, plan: Plan) -> anyhow::Result<(Session, Slice)> {
    let (mut sessions, slice) = load::drive(vec![session], plan.slice).await?;
    Ok((sessions.pop().context("the session")?, slice))
}

fn table(title: &str, [base, way]: [&str; 2], rounds: &[Round]) -> String {
    let ms = |slice: &Slice, part| f64::from(percentile(&slice.latencies_ns, part)) / 1e6;
    let of = |figure: &dyn Fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
    let mut lines = vec![
        format!("### {title}"),
        String::new(),
        "| | calls/s | ratio | p50 ms | p99 ms | added p50 ms | added p99 ms |".to_owned(),
        "|---|---|---|---|---|---|---|".to_owned(),
    ];
    lines.push(format!(
        "| {base} | {:.0} | 1.00 | {:.3} | {:.3} | 0.000 | 0.000 |",
        of(&|round| round.base.calls_per_second),
        of(&|round| ms(&round.base, 0.50)),
        of(&|round| ms(&round.base, 0.99)),
    ));
    lines.push(format!(
        "| {way} | {:.0} | {:.2} | {:.3} | {:.3} | {:.3} | {:.3} |",
        of(&|round| round.way.calls_per_second),
        of(&|round| round.way.calls_per_second / round.base.calls_per_second),
        of(&|round| ms(&round.way, 0.50)),
        of(&|round| ms(&round.way, 0.99)),
        of(&|round| ms(&round.way, 0.50) - ms(&round.base, 0.50)),
        of(&|round| ms(&round.way, 0.99) - ms(&round.base, 0.99)),
    ));
    lines.join("\n")
}
