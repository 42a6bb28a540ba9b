//! Seeded runs of the [`Fleet`]: a storm of faults, then a calm in which every request must get through.
//!
//! `MOORING_SIMULATION_RUNS` sets how many seeds are tried, `MOORING_SIMULATION_SEED` the first of them; a failure
//! names its seed, and one run with that seed repeats it exactly.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::fleet::Fleet;

const RUNS: u64 = 150;
const STORM_MS: u64 = 40_000;
/// Long enough for a claim's longest lease here, a worker's grace and every late packet to pass.
const CALM_MS: u64 = 60_000;

/// What the runs must have met, or they prove nothing.
const EXPECTED_EVENTS: [&str; 22] = [
    "created",
    "revived",
    "bound",
    "bind lost",
    "confirmed",
    "late confirm",
    "rebound",
    "rebind lost",
    "owned",
    "unbound",
    "late unbind",
    "ended",
    "ended before",
    "cleaned",
    "forgotten",
    "late forget",
    "worker lost",
    "denied",
    "key dropped",
    "clock stepped",
    "promoted",
    "call",
];

fn number_from(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable} must be a number")),
        Err(_) => default,
    }
}

#[test]
fn a_fleet_in_a_storm_keeps_every_promise_and_recovers() {
    let first = number_from("MOORING_SIMULATION_SEED", 1);
    let runs = number_from("MOORING_SIMULATION_RUNS", RUNS);
    let mut events: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in first..first.saturating_add(runs) {
        let run = catch_unwind(AssertUnwindSafe(|| {
            let mut fleet = Fleet::new(seed);
            fleet.storm(STORM_MS);
            fleet.calm(CALM_MS);
            fleet.events()
        }));
        match run {
            Ok(seen) => {
                for (event, count) in seen {
                    *events.entry(event).or_default() += count;
                }
            }
            Err(_) => panic!(
                "seed {seed} broke a promise; MOORING_SIMULATION_SEED={seed} MOORING_SIMULATION_RUNS=1 repeats it"
            ),
        }
    }
    if runs >= RUNS {
        for event in EXPECTED_EVENTS {
            assert!(
                events.contains_key(event),
                "{event} never happened: {events:?}"
            );
        }
    }
}

/// Without this, the seed that a failure names would be worth nothing.
#[test]
fn one_seed_is_one_run() {
    let events = |seed| {
        let mut fleet = Fleet::new(seed);
        fleet.storm(STORM_MS);
        fleet.events()
    };
    assert_eq!(events(7), events(7));
    assert_ne!(events(7), events(8));
}
