//! Liveness: beats, boots, grace and leave-taking, as one node hears them.

use mooring_session::limits::{RETIRED_BOOTS_MAX, WORKERS_MAX};
use mooring_session::names::Address;
use mooring_session::refusal::Busy;
use mooring_session::time::{Millis, Monotonic};
use mooring_session::workers::{Beat, Drain, Workers};
use mooring_session::{Liveness, Refusal};

use crate::states::at;
use crate::support::worker;

const GRACE_MS: u64 = 15_000;

fn beat(workers: &mut Workers, id: &str, drain: Drain, mono: u64) -> Result<(), Refusal> {
    beat_from(workers, id, "10.0.0.1:4000", drain, mono)
}

fn beat_from(
    workers: &mut Workers,
    id: &str,
    address: &str,
    drain: Drain,
    mono: u64,
) -> Result<(), Refusal> {
    let beat = Beat {
        worker: worker(id),
        address: Address::parse(address.as_bytes()).unwrap(),
        ttl: Millis::new(1_000),
        drain,
    };
    workers.beat(beat, Monotonic::from_ms(mono), at(mono))
}

fn is_alive(workers: &Workers, id: &str, mono: u64) -> bool {
    workers.at(Monotonic::from_ms(mono)).is_alive(&worker(id))
}

fn node() -> Workers {
    Workers::new(Monotonic::from_ms(0), Millis::new(GRACE_MS))
}

#[test]
fn a_worker_that_takes_its_leave_is_dead_at_once() {
    for heard in [true, false] {
        let mut workers = node();
        if heard {
            beat(&mut workers, "w:1", Drain::Serving, 0).unwrap();
        }
        workers.gone(&worker("w:1"), Monotonic::from_ms(1));
        assert!(!is_alive(&workers, "w:1", 1), "heard before: {heard}");
        beat(&mut workers, "w:1", Drain::Serving, 2).unwrap();
        assert!(is_alive(&workers, "w:1", 2), "heard before: {heard}");
    }
}

#[test]
fn the_leave_of_another_boot_changes_nothing() {
    let mut workers = node();
    beat(&mut workers, "w:2", Drain::Serving, 0).unwrap();
    assert!(!workers.gone(&worker("w:1"), Monotonic::from_ms(1)));
    assert!(is_alive(&workers, "w:2", 1));
}

#[test]
fn draining_and_address_are_those_of_the_last_beat_of_that_boot() {
    let mut workers = node();
    beat(&mut workers, "w:1", Drain::Serving, 0).unwrap();
    beat(&mut workers, "w:1", Drain::Draining, 10).unwrap();
    let now = workers.at(Monotonic::from_ms(11));
    assert!(now.is_draining(&worker("w:1")));
    assert_eq!(now.address(&worker("w:1")), Some("10.0.0.1:4000"));
    assert!(!now.is_draining(&worker("w:2")));
    assert_eq!(now.address(&worker("w:2")), None);
}

#[test]
fn a_living_worker_keeps_its_address() {
    let mut workers = node();
    let mut beat = |id, address, drain, mono| {
        let result = beat_from(&mut workers, id, address, drain, mono);
        (result, workers.list(Monotonic::from_ms(mono)).remove(0))
    };
    let (result, first) = beat("w:1", "10.0.0.1:4000", Drain::Serving, 0);
    assert_eq!(result, Ok(()));
    let refused = Err(Refusal::Busy(Busy::Address));
    let expected = (refused, first);
    let moved = beat("w:1", "10.6.6.6:4000", Drain::Draining, 999);
    assert_eq!(moved, expected, "a refusal changes nothing");

    let (result, now) = beat("w:1", "10.0.0.2:4000", Drain::Serving, 1_000);
    assert_eq!(result, Ok(()), "its last beat has lapsed");
    assert_eq!(now.address.as_str(), "10.0.0.2:4000");
    let (result, now) = beat("w:2", "10.0.0.3:4000", Drain::Serving, 1_001);
    assert_eq!(result, Ok(()), "another boot");
    assert_eq!(now.address.as_str(), "10.0.0.3:4000");
}

#[test]
fn every_earlier_boot_within_the_bound_is_refused() {
    let mut workers = node();
    for boot in 0..=RETIRED_BOOTS_MAX {
        beat(&mut workers, &format!("w:{boot}"), Drain::Serving, 0).unwrap();
    }
    for boot in 0..RETIRED_BOOTS_MAX {
        let late = beat(&mut workers, &format!("w:{boot}"), Drain::Serving, 1);
        assert_eq!(late.unwrap_err().code(), "STALE", "boot {boot}");
        assert!(!is_alive(&workers, &format!("w:{boot}"), 1));
    }
    assert!(is_alive(&workers, &format!("w:{RETIRED_BOOTS_MAX}"), 1));
}

#[test]
fn the_living_are_never_forgotten_and_the_dead_make_room() {
    let mut workers = node();
    for n in 0..WORKERS_MAX {
        beat(
            &mut workers,
            &format!("w{n}:1"),
            Drain::Serving,
            n as u64 / 100,
        )
        .unwrap();
    }
    let full = beat(&mut workers, "late:1", Drain::Serving, 100);
    assert_eq!(full.unwrap_err().code(), "LIMIT");
    assert_eq!(workers.list(Monotonic::from_ms(100)).len(), WORKERS_MAX);
    beat(&mut workers, "late:1", Drain::Serving, 1_000).unwrap();
    let listed = workers.list(Monotonic::from_ms(1_000));
    assert_eq!(listed.len(), WORKERS_MAX);
    assert!(listed.iter().any(|view| view.worker == worker("late:1")));
    assert!(is_alive(&workers, "w4095:1", 1_000));
}
