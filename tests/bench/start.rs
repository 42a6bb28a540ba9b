//! From nothing to a child process that has shaken hands: through the gateway, and without it.
//!
//! Invariant: the two ways take turns, so that a machine that slows down hits both alike.

use std::time::{Duration, Instant};

use anyhow::Context;
use mooring_tests::fixture::stdio_command;
use mooring_tests::stdio::StdioSession;
use tempfile::TempDir;

use crate::figures::percentile;
use crate::load::{Counting, Session};
use crate::pair::{FIXTURE, Pair};

/// Timed starts of each way.
const STARTS: usize = 200;
/// Starts before them.
const WARM_UP: usize = 10;

/// Starts the fixture over and over.
pub(crate) async fn measure(logs: &TempDir) -> anyhow::Result<String> {
    let pair = Pair::start(logs).await?;
    let (command, target) = (stdio_command("bench", None, &[])?, pair.owner(FIXTURE)?);
    let (mut bare, mut through) = (Vec::new(), Vec::new());
    for _ in 0..WARM_UP + STARTS {
        let started = Instant::now();
        let mut session = StdioSession::start(&command).await.context("bare")?;
        bare.push(started.elapsed());
        session.connection().close();
        session.connection().ended().await?;

        let started = Instant::now();
        let session = Session::open(&target, Counting::Own)
            .await
            .context("through the gateway")?;
        through.push(started.elapsed());
        session.close().await?;
    }
    let ms = |taken: &[Duration], part| {
        let mut sorted = taken.get(WARM_UP..).unwrap_or_default().to_vec();
        sorted.sort_unstable();
        percentile(&sorted, part).as_secs_f64() * 1e3
    };
    let [bare_p50, bare_p99] = [0.50, 0.99].map(|part| ms(&bare, part));
    let [p50, p99] = [0.50, 0.99].map(|part| ms(&through, part));
    Ok([
        format!("### The start of a child process, {STARTS} of each"),
        String::new(),
        "| | p50 ms | p99 ms | ratio of p50 | added p50 ms | added p99 ms |".to_owned(),
        "|---|---|---|---|---|---|".to_owned(),
        format!("| bare | {bare_p50:.2} | {bare_p99:.2} | 1.00 | 0.00 | 0.00 |"),
        format!(
            "| through the gateway | {p50:.2} | {p99:.2} | {:.2} | {:.2} | {:.2} |",
            p50 / bare_p50,
            p50 - bare_p50,
            p99 - bare_p99
        ),
    ]
    .join("\n"))
}
