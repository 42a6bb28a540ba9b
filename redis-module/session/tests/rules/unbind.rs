//! UNBIND: drops exactly the binding that the caller knows, and never lets its epoch come again.

use crate::states::{EPOCH, NOW, State, a_bind, slot_in, unbind_as};
use crate::support::Command;
use crate::{check, describe, run, run_on};

#[test]
fn a_claim_needs_its_token_and_a_binding_only_its_epoch() {
    check(
        &unbind_as(None, EPOCH),
        &[
            (State::Absent, "NOSESSION"),
            (State::Active, "STALE"),
            (State::ExpiredBound, "NOSESSION"),
            (State::EndedBound, "ENDED"),
            (State::Claimed, "STALE"),
            (State::Lapsed, "STALE"),
            (State::Bound, "bound a -400 u1, record"),
            (State::Owned, "bound a -400 u1, record"),
        ],
    );
    check(
        &unbind_as(Some("held"), EPOCH),
        &[
            (State::Claimed, "claimed a -400 -, record"),
            (State::Lapsed, "orphaned a -400 -, record"),
            (State::Bound, "bound a -400 u1, record"),
        ],
    );
}

#[test]
fn another_token_or_epoch_is_late() {
    for late in [
        unbind_as(Some("mine"), EPOCH),
        unbind_as(Some("held"), EPOCH - 1),
        unbind_as(None, EPOCH + 1),
    ] {
        check(
            &late,
            &[
                (State::Claimed, "STALE"),
                (State::Lapsed, "STALE"),
                (State::Bound, "STALE"),
            ],
        );
    }
}

#[test]
fn the_next_binding_has_a_higher_epoch_in_the_same_millisecond() {
    let mut slot = slot_in(State::Active);
    for expected in [
        "won 1 claimed a +0 -, record",
        "won 1 claimed a +0.001 -, record",
    ] {
        let outcome = run_on(&mut slot, &Command::Bind(a_bind()), NOW);
        assert_eq!(describe(&outcome), expected);
        let epoch = slot.as_ref().unwrap().highest_epoch;
        run_on(&mut slot, &unbind_as(Some("mine"), epoch), NOW).unwrap();
    }
    let (slot, _) = run(&unbind_as(None, EPOCH), State::Bound);
    assert!(slot.unwrap().bindings.is_empty());
}
