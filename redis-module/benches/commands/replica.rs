//! What one replicated write costs the primary, a replica with the module, and a replica without it: the CPU time of each
//! server's main thread, over the same writes.
//!
//! Invariant: every write changes the record, so that each of them is replicated.

use anyhow::{Result, ensure};

use crate::Presence;
use crate::population::{self, Driven, bind, create, key, principal};
use crate::processor::Processor;
use crate::server::Server;
use crate::talk::Talk;

const SESSIONS: usize = 200_000;
const BATCH: usize = 500;
const TTL_MS: u64 = 3_600_000;

/// Measures, and prints what it found.
pub(crate) fn measure(primary: &Server) -> Result<()> {
    let mut talk = Talk::connect(primary)?;
    talk.ask("FLUSHALL SYNC")?;
    population::beat(&mut talk)?;
    let with = primary.start_replica(Presence::Loaded)?;
    let without = primary.start_replica(Presence::Absent)?;
    let processors = [
        Processor::of(primary.id())?,
        Processor::of(with.id())?,
        Processor::of(without.id())?,
    ];
    println!("\n{SESSIONS} replicated writes of each kind: CPU us of each server for one");
    println!(
        "{:<20} {:>8} {:>20} {:>23} {:>16}",
        "", "primary", "replica with module", "replica without module", "with / primary"
    );
    let mut write = |name: &str, command: &dyn Fn(usize) -> String| -> Result<()> {
        let before = so_far(&processors)?;
        for first in (0..SESSIONS).step_by(BATCH) {
            let batch: Vec<String> = (first..first + BATCH).map(command).collect();
            talk.ask_many(&batch)?;
        }
        let behind = talk.ask("WAIT 2 60000")?.integer()?;
        ensure!(behind == 2, "only {behind} replicas have the writes");
        let each: Vec<f64> = so_far(&processors)?
            .iter()
            .zip(before)
            .map(|(after, before)| (after - before) * 1e6 / SESSIONS as f64)
            .collect();
        println!(
            "{name:<20} {:>8.2} {:>20.2} {:>23.2} {:>15.2}x",
            each[0],
            each[1],
            each[2],
            each[1] / each[0]
        );
        Ok(())
    };
    write("CREATE", &|session| create(session, TTL_MS))?;
    write("BIND", &|session| bind(session, Driven::ByAnybody))?;
    // Another TTL is always written.
    write("TOUCH, written", &|session| {
        let (key, principal) = (key(session), principal(session));
        format!("SESSION.TOUCH {key} {principal} TTL {}", 2 * TTL_MS)
    })?;
    write("KILL", &|session| format!("SESSION.KILL {}", key(session)))
}

fn so_far(processors: &[Processor; 3]) -> Result<[f64; 3]> {
    let mut seconds = [0.0; 3];
    for (seconds, processor) in seconds.iter_mut().zip(processors) {
        *seconds = processor.so_far()?.as_secs_f64();
    }
    Ok(seconds)
}
