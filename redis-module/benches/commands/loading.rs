//! How long a server reads a million sessions from its files, with the module and without it: the CPU time of its main
//! thread from its start to its first reply.
//!
//! Invariant: both read copies of the same files, one after the other, in turns.

use anyhow::{Result, ensure};

use crate::population::{self, Driven};
use crate::processor::Processor;
use crate::server::{Persistence, Server};
use crate::talk::Talk;
use crate::{Presence, median};

const SESSIONS: usize = 1_000_000;
const ROUNDS: usize = 3;

/// Measures, and prints the results.
pub(crate) fn measure() -> Result<()> {
    let server = Server::start(Persistence::EverySecond)?;
    let mut talk = Talk::connect(&server)?;
    population::beat(&mut talk)?;
    population::make(&mut talk, 0..SESSIONS, 3_600_000, Driven::ByAnybody)?;
    talk.ask("SAVE")?;
    println!("\n{SESSIONS} sessions with one binding: CPU seconds to load them");
    println!(
        "{:<18} {:>12} {:>16} {:>8}",
        "", "with module", "without module", "ratio"
    );
    for (name, persistence) in [
        ("RDB", Persistence::None),
        ("append-only file", Persistence::EverySecond),
    ] {
        let rounds: Vec<[f64; 2]> = (0..ROUNDS)
            .map(|_| -> Result<[f64; 2]> {
                Ok([
                    load(&server, persistence, Presence::Loaded)?,
                    load(&server, persistence, Presence::Absent)?,
                ])
            })
            .collect::<Result<_>>()?;
        let column = |value: fn(&[f64; 2]) -> f64| median(rounds.iter().map(value).collect());
        println!(
            "{name:<18} {:>12.2} {:>16.2} {:>7.2}x",
            column(|[with, _]| *with),
            column(|[_, without]| *without),
            column(|[with, without]| with / without),
        );
    }
    Ok(())
}

fn load(server: &Server, persistence: Persistence, presence: Presence) -> Result<f64> {
    let loaded = server.start_from_files(persistence, presence)?;
    let seconds = Processor::of(loaded.id())?.so_far()?.as_secs_f64();
    let sessions = Talk::connect(&loaded)?.ask("DBSIZE")?.integer()?;
    ensure!(
        usize::try_from(sessions)? == SESSIONS,
        "only {sessions} were loaded"
    );
    Ok(seconds)
}
