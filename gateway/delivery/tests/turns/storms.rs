//! Seeded runs of the [`World`].

use crate::seeds::{Events, RUNS, run_seeds};
use crate::world::World;

const SOAK_RUNS: u64 = 10_000;

/// What the runs must have met, or they prove nothing.
const EXPECTED_EVENTS: [&str; 24] = [
    "started",
    // At gateways.
    "delegated",
    "used",
    "renewed",
    "not renewed",
    "validated",
    "kept",
    "kept without wake-ups",
    "recalled while idle",
    "recalled in use",
    "left after a recall",
    "left unused",
    "turn lost before it was used",
    "lost while it ran",
    "cancelled while it ran",
    "withdrawn",
    "command failed",
    "waited too long",
    // At the store.
    "ended with its connection",
    "killed with a delegation",
    // Calls that ran while another one was written.
    "outlived its lease",
    "outlived its gateway's life",
    "outlived its connection",
    "outlived its cancellation",
];

fn run(seed: u64, is_printed: bool) -> Events {
    let mut world = World::new(seed, is_printed);
    world.run();
    std::mem::take(&mut world.events)
}

#[test]
fn turns_exclude_each_other_and_pass_on_in_a_storm() {
    run_seeds(RUNS, &EXPECTED_EVENTS, run);
}

#[test]
#[ignore = "takes a quarter of an hour"]
fn soak_many_storms_of_turns() {
    run_seeds(SOAK_RUNS, &EXPECTED_EVENTS, run);
}

/// Without this, the seed that a failure names would be worth nothing.
#[test]
fn one_seed_is_one_run() {
    assert_eq!(run(7, false), run(7, false));
    assert_ne!(run(7, false), run(8, false));
}
