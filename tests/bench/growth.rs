//! What a call costs as its surroundings grow: sessions at once, sessions that are idle, bytes of a message, events of a
//! reply. `scripts/growth-plot.py` draws docs/growth.svg from what it prints.
//!
//! Invariant: each figure is a median over rounds that measure every arrangement in turns, and a ratio is one of the same
//! round.

use anyhow::Context;
use tempfile::TempDir;

use crate::arrangement::Arrangement;
use crate::figures::median;
use crate::load::{self, Call};
use crate::through::{self, Load, Plan, Sample};
use crate::upstream::Upstream;

/// Sessions at once, with the smallest calls.
const SESSIONS: [usize; 5] = [1, 16, 64, 256, 1024];
/// Bound sessions that nobody uses, beside the [`SESSIONS_BESIDE_IDLE`] that are.
const IDLE: [usize; 3] = [1, 100, 10_000];
const SESSIONS_BESIDE_IDLE: usize = 16;
/// Text in the request and in the reply, in KiB.
const TEXT_KIB: [usize; 3] = [1, 64, 1024];
const SESSIONS_WITH_TEXT: usize = 4;
/// Events of a reply before the result.
const EVENTS: [usize; 4] = [1, 10, 100, 1000];
const SESSIONS_WITH_EVENTS: usize = 4;

const BYTES_PER_KIB: usize = 1024;

/// Measures direct calls, those through nginx and those through the gateway; a table for each kind of growth.
pub(crate) async fn measure(logs: &TempDir, plan: Plan) -> anyhow::Result<String> {
    let upstream = Upstream::start(logs.path()).await?;
    let port = upstream.port();
    let mut arrangements = [
        Arrangement::direct(port),
        Arrangement::nginx(port).await?,
        Arrangement::redis(&[port]).await?,
    ];
    let load = |sessions, call| Load { sessions, call };
    let mut table = Table::new("sessions");
    for sessions in SESSIONS {
        let load = load(sessions, Call::default());
        table.add(sessions, &mut arrangements, load, plan).await?;
    }
    let mut tables = vec![table];
    let mut table = Table::new("KiB of text");
    for kib in TEXT_KIB {
        let call = Call {
            text_bytes: kib * BYTES_PER_KIB,
            ..Call::default()
        };
        let load = load(SESSIONS_WITH_TEXT, call);
        table.add(kib, &mut arrangements, load, plan).await?;
    }
    tables.push(table);
    let mut table = Table::new("events");
    for events in EVENTS {
        let call = Call {
            events,
            ..Call::default()
        };
        let load = load(SESSIONS_WITH_EVENTS, call);
        table.add(events, &mut arrangements, load, plan).await?;
    }
    tables.push(table);
    // Last: they stay.
    let mut table = Table::new("idle sessions");
    let mut idle = 0;
    for more in IDLE {
        for arrangement in &arrangements {
            load::open_idle(&arrangement.target, more - idle)
                .await
                .context(arrangement.name)?;
        }
        idle = more;
        let load = load(SESSIONS_BESIDE_IDLE, Call::default());
        table.add(idle, &mut arrangements, load, plan).await?;
    }
    tables.push(table);
    let texts: Vec<String> = tables.into_iter().map(|table| table.0.join("\n")).collect();
    Ok(texts.join("\n\n"))
}

/// The lines of a table.
struct Table(Vec<String>);

impl Table {
    fn new(growing: &str) -> Self {
        Self(vec![
            format!("### {growing}"),
            String::new(),
            format!(
                "| {growing} | through | calls/s | x direct | CPU us/call | CPU x nginx | Redis CPU us/call |"
            ),
            "|---|---|---|---|---|---|---|".to_owned(),
        ])
    }

    async fn add(
        &mut self,
        value: usize,
        arrangements: &mut [Arrangement],
        load: Load,
        plan: Plan,
    ) -> anyhow::Result<()> {
        let samples = through::measure(arrangements, load, plan).await?;
        let [direct, nginx, ..] = &*samples else {
            anyhow::bail!("direct calls and nginx come first");
        };
        for (arrangement, samples) in arrangements.iter().zip(&samples).skip(1) {
            let of = |figure: fn(&Sample) -> f64| median(samples.iter().map(figure).collect());
            let against = |others: &[Sample], figure: fn(&Sample) -> f64| {
                let pairs = samples.iter().zip(others);
                median(
                    pairs
                        .map(|(sample, other)| figure(sample) / figure(other))
                        .collect(),
                )
            };
            self.0.push(format!(
                "| {value} | {} | {:.0} | {:.2} | {:.0} | {:.1} | {:.0} |",
                arrangement.name,
                of(|sample| sample.calls_per_second),
                against(direct, |sample| sample.calls_per_second),
                of(|sample| sample.hop_cpu_us),
                against(nginx, |sample| sample.hop_cpu_us),
                of(|sample| sample.redis_cpu_us),
            ));
        }
        Ok(())
    }
}
