//! ROUTE: says where calls go, and tells the death of a driver once, to the first who comes after it.

use mooring_session::codec::{self, BindingHead};
use mooring_session::context::{Decision, RecordChange};
use mooring_session::rules::{ReplacedDriver, RouteState, UsedBinding, route_binding};
use mooring_session::{Refusal, Tuning};

use crate::states::{NOW, State, route_by, slot_in};
use crate::support::{server, worker};
use crate::{check, context, describe, run, run_on};

#[test]
fn says_where_calls_go() {
    check(
        &route_by("caller:1"),
        &[
            (State::Absent, "NOSESSION"),
            (State::Active, "unbound, nothing"),
            (State::Expired, "NOSESSION"),
            (State::ExpiredBound, "NOSESSION"),
            (State::Ended, "ENDED"),
            (State::EndedBound, "ENDED"),
            (State::Claimed, "claimed a -400 -, nothing"),
            (State::Lapsed, "orphaned a -400 -, nothing"),
            (State::Bound, "bound a -400 u1, nothing"),
            (State::BoundByTheDead, "bound a -400 u1 lost dead:1, record"),
            (State::Owned, "bound a -400 u1, nothing"),
            (State::OwnedByTheDead, "orphaned a -400 u1, nothing"),
            (State::OwnedByTheDraining, "bound a -400 u1, nothing"),
            (State::OwnedLapsed, "orphaned a -400 -, nothing"),
        ],
    );
}

#[test]
fn a_death_is_told_once() {
    let (mut slot, _) = run(&route_by("caller:1"), State::BoundByTheDead);
    for caller in ["caller:1", "caller:2", "caller:1"] {
        let outcome = run_on(&mut slot, &route_by(caller), NOW);
        assert_eq!(describe(&outcome), "bound a -400 u1, nothing");
    }
}

#[test]
fn the_driver_itself_is_told_nothing() {
    check(
        &route_by("dead:1"),
        &[(State::BoundByTheDead, "bound a -400 u1, nothing")],
    );
}

#[test]
fn a_late_route_of_a_dead_worker_neither_hears_the_news_nor_becomes_it() {
    check(
        &route_by("dead:2"),
        &[
            (State::BoundByTheDead, "bound a -400 u1, nothing"),
            (State::Bound, "bound a -400 u1, nothing"),
        ],
    );
    let mut slot = slot_in(State::Bound);
    let outcome = run_on(&mut slot, &route_by("dead:2"), NOW + 500);
    assert_eq!(describe(&outcome), "bound a -400 u1, lifetime");
}

#[test]
fn a_live_driver_is_replaced_only_when_the_use_is_written_anyway() {
    let mut slot = slot_in(State::Bound);
    let driver = |slot: &Option<_>| {
        let record: &mooring_session::record::Record = slot.as_ref().unwrap();
        record.bindings.values().next().unwrap().driver.clone()
    };
    run_on(&mut slot, &route_by("caller:1"), NOW + 499).unwrap();
    assert_eq!(driver(&slot), worker("holder:1"));
    let outcome = run_on(&mut slot, &route_by("holder:1"), NOW + 500);
    assert_eq!(describe(&outcome), "bound a -400 u1, lifetime");
    let outcome = run_on(&mut slot, &route_by("caller:1"), NOW + 1_500);
    assert_eq!(describe(&outcome), "bound a -400 u1, record");
    assert_eq!(driver(&slot), worker("caller:1"));
}

/// What a caller that names an epoch is not told again must not have changed.
#[test]
fn only_the_driver_of_a_binding_in_use_knows_it_by_its_epoch() {
    let tuning = Tuning::default();
    let context = context(NOW, &tuning);
    let is_known = |state, caller: &str, ahead: Option<u64>, has_loss: bool| {
        let mut record = slot_in(state).unwrap();
        let binding = record.bindings.get_mut(&server("tools")).unwrap();
        binding.unreported_loss = has_loss.then(|| binding.instance.clone());
        let fields = codec::encode(&record);
        let (_, head) = fields.iter().find(|(field, _)| field == "b:tools").unwrap();
        let head = BindingHead::decode("tools", head.as_bytes()).unwrap();
        let epoch = ahead.map(|ahead| head.epoch + ahead);
        let used = route_binding(&mut record.lifetime, Some(&head), caller, &context);
        used.unwrap().reply.is_known_at(epoch, &head, caller)
    };
    assert!(is_known(State::Bound, "holder:1", Some(0), false));
    for (state, caller, ahead, has_loss, why) in [
        (State::Bound, "holder:1", None, false, "no epoch is named"),
        (State::Bound, "holder:1", Some(1), false, "another epoch"),
        (
            State::Bound,
            "holder:1",
            Some(0),
            true,
            "a loss is to be told",
        ),
        (
            State::Bound,
            "caller:1",
            Some(0),
            false,
            "another drives it",
        ),
        (
            State::BoundByTheDead,
            "caller:1",
            Some(0),
            false,
            "its driver died",
        ),
        (
            State::Claimed,
            "holder:1",
            Some(0),
            false,
            "it is not in use yet",
        ),
        (
            State::Owned,
            "holder:1",
            Some(0),
            false,
            "the owner's address may change",
        ),
        (
            State::OwnedByTheDead,
            "dead:1",
            Some(0),
            false,
            "its owner died",
        ),
    ] {
        assert!(!is_known(state, caller, ahead, has_loss), "{why}");
    }
}

/// The form over parts, which the module uses, comes to the same as the form over the record.
#[test]
fn both_forms_agree() {
    let tuning = Tuning::default();
    let context = context(NOW, &tuning);
    for (state, expected) in [
        (State::Ended, Err(Refusal::Ended)),
        (State::Expired, Err(Refusal::NoSession)),
        (
            State::BoundByTheDead,
            Ok(Decision::new(
                UsedBinding {
                    state: RouteState::Binding(mooring_session::view::BindingState::Bound),
                    replaced: Some(ReplacedDriver::Dead),
                },
                RecordChange::Record,
            )),
        ),
        (
            State::Active,
            Ok(Decision::new(
                UsedBinding {
                    state: RouteState::Unbound,
                    replaced: None,
                },
                RecordChange::Nothing,
            )),
        ),
    ] {
        let mut record = slot_in(state).unwrap();
        let fields = codec::encode(&record);
        let head = fields.iter().find(|(field, _)| field == "b:tools");
        let head = head.map(|(_, value)| BindingHead::decode("tools", value.as_bytes()).unwrap());
        let used = route_binding(&mut record.lifetime, head.as_ref(), "caller:1", &context);
        assert_eq!(used, expected, "{state:?}");
        let (whole, _) = run(&route_by("caller:1"), state);
        if used.is_ok_and(|used| used.reply.replaced.is_some()) {
            let binding = record.bindings.get_mut(&server("tools")).unwrap();
            binding.driver = worker("caller:1");
        }
        assert_eq!(whole, Some(record), "{state:?}");
    }
}
