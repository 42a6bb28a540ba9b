//! One worker of 72 dies: how soon the others can use everything that it owned.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::population::{self, Driven, WORKERS, key, principal, worker};
use crate::scale::{forget_times, print_times, watch_times};
use crate::server::Server;
use crate::talk::{Reply, Talk};

const SESSIONS: usize = 100_000;

/// Measures, and prints the results.
pub(crate) fn measure(server: &Server) -> Result<()> {
    let mut talk = Talk::connect(server)?;
    talk.ask("FLUSHALL SYNC")?;
    population::beat(&mut talk)?;
    population::make(&mut talk, 0..SESSIONS, 3_600_000, Driven::ByOwner)?;
    watch_times(&mut talk)?;
    forget_times(&mut talk)?;

    let dead = worker(0);
    let orphans: Vec<usize> = (0..SESSIONS).step_by(WORKERS).collect();
    let died = Instant::now();
    talk.ask(&format!("WORKER.GONE {dead}"))?;
    let mut epochs = Vec::with_capacity(orphans.len());
    let mut first = Duration::ZERO;
    for (place, session) in orphans.iter().enumerate() {
        let route = route(&mut talk, *session)?;
        if place == 0 {
            first = died.elapsed();
        }
        ensure!(route.field("state")?.text() == "orphaned", "{route:?}");
        epochs.push(route.field("epoch")?.integer()?);
    }
    let known = died.elapsed();
    let started = Instant::now();
    for (session, epoch) in orphans.iter().zip(epochs) {
        let successor = worker(1 + session % (WORKERS - 1));
        let moved = talk.ask(&format!(
            "SESSION.REBIND {} {} tools {epoch} {successor} t-{session} LEASE 60000 INSTANCES 2 \
             http://10.0.0.1:9001/mcp http://10.0.0.2:9001/mcp OWNED REASON worker-lost",
            key(*session),
            principal(*session)
        ))?;
        ensure!(moved.field("won")?.integer()? == 1, "{moved:?}");
    }
    let rebound = started.elapsed();
    println!(
        "\n{SESSIONS} sessions owned by {WORKERS} workers, one dies with {}",
        orphans.len()
    );
    println!(
        "orphaned in the first ROUTE, {} us after its death",
        first.as_micros()
    );
    println!(
        "orphaned in every ROUTE, asked one by one: {:.1} ms",
        known.as_secs_f64() * 1e3
    );
    println!("rebound one by one: {:.1} ms", rebound.as_secs_f64() * 1e3);
    print_times("from its death on", &mut talk)
}

fn route(talk: &mut Talk, session: usize) -> Result<Reply> {
    talk.ask(&format!(
        "SESSION.ROUTE {} {} tools {}",
        key(session),
        principal(session),
        worker(1)
    ))
}
