//! The cost of the module for other commands: SETs of other keys on a server with and without it.
//!
//! The same server loads and unloads the module between two runs, so that nothing else differs. The keys have no prefix
//! of the module, or for comparison one of them, so that the module has to process every event.

use anyhow::Result;

use crate::median;
use crate::server::Server;
use crate::workload::{Variant, bystander_variants};
use crate::{CONNECTIONS, Pace, Presence, run_on};

const ROUNDS: usize = 15;
const DEPTH: usize = 16;
const COUNT: usize = 400_000;

/// Measures, and prints the results.
pub(crate) fn measure(server: &Server) -> Result<()> {
    println!(
        "\nSETs of other keys, {CONNECTIONS} connections, -P {DEPTH}: with the module against without it"
    );
    println!(
        "{:<38} {:>10} {:>7} {:>10} {:>9}",
        "", "median/s", "us/op", "rate", "CPU"
    );
    for variant in bystander_variants() {
        let rounds: Vec<[Pace; 2]> = (0..ROUNDS)
            .map(|round| round_of(server, &variant, round % 2 == 0))
            .collect::<Result<_>>()?;
        let column = |value: fn(&[Pace; 2]) -> f64| median(rounds.iter().map(value).collect());
        println!(
            "{:<38} {:>10.0} {:>7.2} {:>9.3}x {:>8.3}x",
            variant.name(),
            column(|[with, _]| with.per_second),
            column(|[with, _]| with.server_us),
            column(|[with, without]| with.per_second / without.per_second),
            column(|[with, without]| with.server_us / without.server_us),
        );
    }
    Ok(())
}

/// With the module, and without it.
fn round_of(server: &Server, variant: &Variant, with_first: bool) -> Result<[Pace; 2]> {
    let run = |presence| run_on(server, variant, presence, DEPTH, COUNT);
    if with_first {
        let with = run(Presence::Loaded)?;
        Ok([with, run(Presence::Absent)?])
    } else {
        let without = run(Presence::Absent)?;
        Ok([run(Presence::Loaded)?, without])
    }
}
