//! CONFIRM: only the holder of the present claim confirms it, and may say so twice.

use crate::states::{EPOCH, NOW, State, confirm_as};
use crate::{check, describe, run, run_on};

#[test]
fn the_holder_confirms_even_after_its_lease_as_long_as_nobody_took_over() {
    check(
        &confirm_as("held", EPOCH, Some("u7")),
        &[
            (State::Absent, "NOSESSION"),
            (State::Active, "STALE"),
            (State::Expired, "NOSESSION"),
            (State::ExpiredBound, "NOSESSION"),
            (State::EndedBound, "ENDED"),
            (State::Claimed, "bound a -400 u7, record"),
            (State::Lapsed, "bound a -400 u7, record"),
            (State::OwnedLapsed, "bound a -400 u7, record"),
            (State::Bound, "STALE"),
            (State::Owned, "STALE"),
        ],
    );
}

#[test]
fn an_upstream_may_give_no_session() {
    check(
        &confirm_as("held", EPOCH, None),
        &[(State::Claimed, "bound a -400 -, record")],
    );
}

#[test]
fn saying_it_twice_changes_nothing() {
    check(
        &confirm_as("held", EPOCH, Some("u1")),
        &[(State::Bound, "bound a -400 u1, nothing")],
    );
    let mut slot = run(&confirm_as("held", EPOCH, Some("u1")), State::Claimed).0;
    let outcome = run_on(&mut slot, &confirm_as("held", EPOCH, Some("u1")), NOW + 500);
    assert_eq!(describe(&outcome), "bound a -400 u1, lifetime");
}

#[test]
fn another_token_or_epoch_is_late() {
    for late in [
        confirm_as("mine", EPOCH, Some("u1")),
        confirm_as("held", EPOCH - 1, Some("u1")),
        confirm_as("held", EPOCH + 1, Some("u1")),
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
