//! Runs a simulation with one seed after another.
//!
//! `MOORING_SIMULATION_RUNS` sets how many seeds are tried, `MOORING_SIMULATION_SEED` the first of them; a failure names
//! its seed, and one run with that seed repeats it exactly and prints every step.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How many seeds a test tries. So many have met everything that is expected.
pub(crate) const RUNS: u64 = 100;

/// What happened, by name, and how often.
pub(crate) type Events = BTreeMap<&'static str, u64>;

/// Runs the simulation once with a seed, and prints its steps if that is wanted.
pub(crate) type Simulation = fn(u64, bool) -> Events;

fn number_from(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable} must be a number")),
        Err(_) => default,
    }
}

/// Names the seed if it fails.
pub(crate) fn run_one(seed: u64, is_printed: bool, simulation: Simulation) -> Events {
    catch_unwind(AssertUnwindSafe(|| simulation(seed, is_printed))).unwrap_or_else(|_| {
        panic!(
            "seed {seed} broke a promise; MOORING_SIMULATION_SEED={seed} MOORING_SIMULATION_RUNS=1 repeats it"
        )
    })
}

/// Tries `runs` seeds, or as many as the environment says. `expected` is what they must have met, or they prove nothing.
pub(crate) fn run_seeds(runs: u64, expected: &[&str], simulation: Simulation) {
    let first = number_from("MOORING_SIMULATION_SEED", 1);
    let runs = number_from("MOORING_SIMULATION_RUNS", runs);
    let mut events = Events::new();
    for seed in first..first.saturating_add(runs) {
        for (event, count) in run_one(seed, runs == 1, simulation) {
            *events.entry(event).or_default() += count;
        }
    }
    println!("seeds {first} to {}: {events:?}", first + runs - 1);
    if runs >= RUNS {
        for event in expected {
            assert!(
                events.contains_key(event),
                "{event} never happened: {events:?}"
            );
        }
    }
}
