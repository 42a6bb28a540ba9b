//! CLAIM and FORGET: one worker cleans a tombstone, and only what it cleaned is dropped.

use mooring_session::rules::ForgetRequest;

use crate::states::{EXPIRED_GENERATION, GENERATION, NOW, State, claim_by, create, slot_in};
use crate::support::{Command, worker};
use crate::{check, describe, run, run_on, run_while_turn_held};

fn forget(generation: u64, by: &str) -> Command {
    Command::Forget(ForgetRequest {
        generation,
        worker: worker(by),
    })
}

#[test]
fn a_tombstone_is_taken_by_one() {
    check(
        &claim_by("caller:1"),
        &[
            (State::Absent, "NOSESSION"),
            (State::Active, "BUSY"),
            (State::Bound, "BUSY"),
            (State::Claimed, "BUSY"),
            (State::Expired, "bindings 0, record"),
            (State::ExpiredBound, "bindings 1, record"),
            (State::EndedBound, "BUSY"),
            (State::Cleaned, "BUSY"),
        ],
    );
    check(
        &claim_by("holder:1"),
        &[(State::Cleaned, "bindings 1, record")],
    );
}

#[test]
fn a_lapsed_cleaning_is_taken_over() {
    let mut slot = slot_in(State::Cleaned);
    let outcome = run_on(&mut slot, &claim_by("caller:1"), NOW + 4_899);
    assert_eq!(describe(&outcome), "BUSY");
    let outcome = run_on(&mut slot, &claim_by("caller:1"), NOW + 4_900);
    assert_eq!(describe(&outcome), "bindings 1, record");
    let outcome = run_on(&mut slot, &forget(GENERATION, "holder:1"), NOW + 4_900);
    assert_eq!(describe(&outcome), "STALE");
}

#[test]
fn an_ended_session_with_a_live_claim_waits_for_it() {
    let (mut slot, _) = run(&crate::states::end(), State::Claimed);
    slot.as_mut().unwrap().cleaning = None;
    let outcome = run_on(&mut slot, &claim_by("caller:1"), NOW);
    assert_eq!(describe(&outcome), "BUSY");
    let outcome = run_on(&mut slot, &claim_by("caller:1"), NOW + 4_600);
    assert_eq!(describe(&outcome), "bindings 1, record");
}

#[test]
fn only_the_cleaner_forgets_and_only_that_incarnation() {
    check(
        &forget(GENERATION, "holder:1"),
        &[
            (State::Absent, "NOSESSION"),
            (State::Active, "STALE"),
            (State::Bound, "STALE"),
            (State::ExpiredBound, "STALE"),
            (State::Cleaned, "floor -400, removed"),
        ],
    );
    check(
        &forget(GENERATION, "caller:1"),
        &[(State::Cleaned, "STALE")],
    );
    for other in [GENERATION - 1, GENERATION + 1, 0] {
        check(&forget(other, "holder:1"), &[(State::Cleaned, "STALE")]);
    }
    check(
        &forget(EXPIRED_GENERATION, "holder:1"),
        &[(State::ExpiredBound, "STALE")],
    );
}

/// The caller of END names no worker, but has the lease: it may say who it is when it is done.
#[test]
fn whoever_ended_it_forgets_it() {
    check(
        &forget(GENERATION, "caller:1"),
        &[(State::EndedBound, "floor -400, removed")],
    );
    for other in [GENERATION - 1, GENERATION + 1, 0] {
        check(&forget(other, "caller:1"), &[(State::EndedBound, "STALE")]);
    }
    let (mut slot, _) = run(&crate::states::end(), State::Bound);
    let reaper = run_on(&mut slot, &claim_by("reaper:1"), NOW + 30_000);
    assert_eq!(describe(&reaper), "bindings 1, record");
    let late = run_on(&mut slot, &forget(GENERATION, "caller:1"), NOW + 30_000);
    assert_eq!(describe(&late), "STALE");
}

#[test]
fn what_has_a_turn_is_not_cleaned() {
    for state in [State::ExpiredBound, State::Cleaned] {
        let command = claim_by("holder:1");
        let (slot, outcome) = run_while_turn_held("other", &command, state);
        assert_eq!(describe(&outcome), "BUSY", "{state:?}");
        assert_eq!(slot, slot_in(state));
    }
}

#[test]
fn a_new_incarnation_is_not_forgotten_by_a_late_cleaner() {
    let (mut slot, _) = run(&create(), State::Cleaned);
    for generation in [GENERATION, GENERATION + 1] {
        let outcome = run_on(&mut slot, &forget(generation, "holder:1"), NOW);
        assert_eq!(describe(&outcome), "STALE");
    }
}
