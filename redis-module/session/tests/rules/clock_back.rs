//! A wall clock that stepped back: what was stamped by the later time freezes nobody.

use mooring_session::limits::LEASE_MAX;
use mooring_session::rules::BindRequest;

use crate::states::{NOW, State, a_bind, a_rebind, claim_by, end, route_by, slot_in};
use crate::support::{Command, token};
use crate::{describe, run, run_on};

const HOUR_MS: u64 = 3_600_000;

/// One that only begins a little in the future was stamped by a clock that is being set right.
#[test]
fn a_claim_from_the_future_is_not_believed() {
    let made_at = NOW - 400;
    for (back, expected) in [
        (0, "claimed a -400 -, nothing"),
        (1_000, "claimed a -400 -, nothing"),
        (1_001, "orphaned a -400 -, nothing"),
        (500_000, "orphaned a -400 -, nothing"),
    ] {
        let mut slot = slot_in(State::Claimed);
        let outcome = run_on(&mut slot, &route_by("caller:1"), made_at - back);
        assert_eq!(describe(&outcome), expected, "{back} ms back");
    }
}

#[test]
fn a_claim_from_the_future_is_taken_over_and_confirmed_by_its_taker() {
    let mut slot = slot_in(State::Claimed);
    let outcome = run_on(&mut slot, &Command::Rebind(a_rebind()), NOW - 500_000);
    assert_eq!(
        describe(&outcome),
        "won 1 claimed a -399.999 - left -, record"
    );
    let outcome = run_on(&mut slot, &route_by("caller:1"), NOW - 500_000);
    assert_eq!(describe(&outcome), "claimed a -399.999 -, nothing");
}

/// The holder of a claim says that it is at work: that is news of now, whatever the clock said before.
#[test]
fn a_renewed_claim_begins_now() {
    let (mut slot, _) = run(&Command::Bind(a_bind()), State::Active);
    let back = NOW - 500_000;
    let outcome = run_on(&mut slot, &Command::Bind(a_bind()), back);
    assert_eq!(describe(&outcome), "won 1 claimed a +0 -, record");
    let outcome = run_on(&mut slot, &route_by("other:1"), back);
    assert_eq!(describe(&outcome), "claimed a +0 -, nothing");
}

/// A claim that was begun before the clock stepped forward, and renewed before it stepped back again.
#[test]
fn a_lease_longer_than_any_is_not_believed() {
    let renew = Command::Bind(BindRequest {
        token: token("held"),
        lease: LEASE_MAX,
        ..a_bind()
    });
    let mut slot = slot_in(State::Claimed);
    let ahead = NOW + 700;
    run_on(&mut slot, &renew, ahead).unwrap();
    for (back, expected) in [
        (0, "claimed a -400 -, nothing"),
        (1_000, "claimed a -400 -, nothing"),
        (1_001, "orphaned a -400 -, nothing"),
    ] {
        let outcome = run_on(&mut slot.clone(), &route_by("caller:1"), ahead - back);
        assert_eq!(describe(&outcome), expected, "{back} ms back");
    }
}

#[test]
fn a_cleaning_from_the_future_is_taken_over() {
    let mut slot = slot_in(State::ExpiredBound);
    run_on(&mut slot, &claim_by("holder:1"), NOW + HOUR_MS).unwrap();
    let outcome = run_on(&mut slot, &claim_by("caller:1"), NOW);
    assert_eq!(describe(&outcome), "bindings 1, record");

    let mut slot = slot_in(State::Bound);
    run_on(&mut slot, &end(), NOW).unwrap();
    let outcome = run_on(&mut slot, &claim_by("caller:1"), NOW - HOUR_MS.min(NOW - 1));
    assert_eq!(describe(&outcome), "bindings 1, record");
}
