//! TOUCH: slides the TTL and sets what is given, on a session in use.

use std::collections::BTreeMap;

use mooring_session::limits::LABELS_MAX;
use mooring_session::names::{ContentHash, LabelName, LabelValue};
use mooring_session::rules::TouchRequest;
use mooring_session::time::Millis;

use crate::states::{NOW, State, a_touch, slot_in};
use crate::support::Command;
use crate::{check, describe, run, run_on};

fn labels(count: usize, value: &str) -> BTreeMap<LabelName, LabelValue> {
    (0..count)
        .map(|n| {
            let name = LabelName::parse(format!("l{n}").as_bytes()).unwrap();
            (name, LabelValue::parse(value.as_bytes()).unwrap())
        })
        .collect()
}

#[test]
fn a_use_within_the_step_is_not_written() {
    check(
        &Command::Touch(a_touch()),
        &[
            (State::Absent, "NOSESSION"),
            (State::Active, "expires +16000, nothing"),
            (State::Bound, "expires +16000, nothing"),
            (State::Expired, "NOSESSION"),
            (State::Ended, "ENDED"),
            (State::Cleaned, "ENDED"),
        ],
    );
}

#[test]
fn a_use_after_the_step_is_written() {
    let mut slot = slot_in(State::Active);
    let touch = Command::Touch(a_touch());
    let outcome = run_on(&mut slot, &touch, NOW + 499);
    assert_eq!(describe(&outcome), "expires +16499, nothing");
    let outcome = run_on(&mut slot, &touch, NOW + 500);
    assert_eq!(describe(&outcome), "expires +16500, lifetime");
}

#[test]
fn a_new_ttl_counts_from_now() {
    let command = Command::Touch(TouchRequest {
        ttl: Some(Millis::new(1_600)),
        ..a_touch()
    });
    check(&command, &[(State::Active, "expires +1600, lifetime")]);
}

#[test]
fn what_is_given_is_set_and_what_is_equal_is_not_written() {
    let touch = Command::Touch(TouchRequest {
        content_hash: Some(ContentHash::parse(b"h1").unwrap()),
        labels: labels(2, "v"),
        ..a_touch()
    });
    let (mut slot, outcome) = run(&touch, State::Active);
    assert_eq!(describe(&outcome), "expires +16000, record");
    let record = slot.clone().unwrap();
    assert_eq!(record.labels, labels(2, "v"));
    assert_eq!(
        record.content_hash,
        Some(ContentHash::parse(b"h1").unwrap())
    );
    let outcome = run_on(&mut slot, &touch, NOW);
    assert_eq!(describe(&outcome), "expires +16000, nothing");
}

#[test]
fn labels_have_a_limit_that_replacing_does_not_reach() {
    let set = |count, value| {
        Command::Touch(TouchRequest {
            labels: labels(count, value),
            ..a_touch()
        })
    };
    let (mut slot, _) = run(&set(LABELS_MAX, "v"), State::Active);
    let outcome = run_on(&mut slot, &set(LABELS_MAX, "w"), NOW);
    assert_eq!(describe(&outcome), "expires +16000, record");
    let outcome = run_on(&mut slot, &set(LABELS_MAX + 1, "x"), NOW);
    assert_eq!(describe(&outcome), "LIMIT");
}
