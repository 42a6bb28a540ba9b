//! REBIND: of many who see one loss, exactly one moves the binding.

use mooring_session::limits::INSTANCES_MAX;
use mooring_session::record::Record;
use mooring_session::rules::{LossReport, Ownership, RebindRequest, ReportedLoss, TouchRequest};

use crate::states::{
    EPOCH, NOW, State, a_rebind, a_touch, confirm_as, number_at, route_by, slot_in,
};
use crate::support::{Command, Reply, instance, reason, server, token, upstream, worker};
use crate::{check, describe, run, run_on, run_while_turn_held};

fn rebind(change: impl Fn(&mut RebindRequest)) -> Command {
    let mut request = a_rebind();
    change(&mut request);
    Command::Rebind(request)
}

#[test]
fn the_epoch_seen_moves_it_and_keeps_a_healthy_instance() {
    check(
        &rebind(|_| {}),
        &[
            (State::Absent, "NOSESSION"),
            (State::Active, "STALE"),
            (State::Expired, "NOSESSION"),
            (State::ExpiredBound, "NOSESSION"),
            (State::EndedBound, "ENDED"),
            (State::Claimed, "won 0 claimed a -400 - left -, nothing"),
            (State::Lapsed, "won 1 claimed a +0 - left -, record"),
            (State::Bound, "won 1 claimed a +0 - left u1, record"),
            (
                State::BoundByTheDead,
                "won 1 claimed a +0 - left u1, record",
            ),
            (State::Owned, "OWNED"),
            (
                State::OwnedByTheDead,
                "won 1 claimed a +0 - left u1, record",
            ),
            (
                State::OwnedByTheDraining,
                "won 1 claimed a +0 - left u1, record",
            ),
            (State::OwnedLapsed, "OWNED"),
        ],
    );
}

#[test]
fn another_epoch_adopts_what_holds() {
    for epoch in [EPOCH - 1, EPOCH + 1, 0] {
        check(
            &rebind(|request| request.epoch = epoch),
            &[
                (State::Claimed, "won 0 claimed a -400 - left -, nothing"),
                (State::Lapsed, "won 0 orphaned a -400 - left -, nothing"),
                (State::Bound, "won 0 bound a -400 u1 left -, nothing"),
                (State::Owned, "won 0 bound a -400 u1 left -, nothing"),
            ],
        );
    }
}

#[test]
fn the_owner_moves_its_own() {
    check(
        &rebind(|request| request.worker = worker("holder:1")),
        &[(State::Owned, "won 1 claimed a +0 - left u1, record")],
    );
}

#[test]
fn a_holder_moves_its_own_live_claim_on() {
    check(
        &rebind(|request| request.token = token("held")),
        &[(State::Claimed, "won 1 claimed a +0 - left -, record")],
    );
}

#[test]
fn a_draining_worker_owns_nothing_new() {
    check(
        &rebind(|request| {
            request.worker = worker("draining:1");
            request.ownership = Ownership::Owned;
        }),
        &[
            (State::OwnedByTheDead, "BUSY"),
            (State::OwnedByTheDraining, "BUSY"),
            (State::Claimed, "won 0 claimed a -400 - left -, nothing"),
        ],
    );
}

/// Its owner finishes the call, and only then lets the binding go.
#[test]
fn a_draining_owner_keeps_its_binding_for_a_call() {
    for (server, state, expected) in [
        ("tools", State::OwnedByTheDraining, "OWNED"),
        (
            "other",
            State::OwnedByTheDraining,
            "won 1 claimed a +0 - left u1, record",
        ),
        (
            "tools",
            State::OwnedByTheDead,
            "won 1 claimed a +0 - left u1, record",
        ),
        (
            "tools",
            State::Bound,
            "won 1 claimed a +0 - left u1, record",
        ),
    ] {
        let (_, outcome) = run_while_turn_held(server, &rebind(|_| {}), state);
        assert_eq!(describe(&outcome), expected, "turn at {server}, {state:?}");
    }
}

#[test]
fn an_instance_that_is_avoided_or_not_named_is_left() {
    let avoiding = rebind(|request| request.avoid = Some(instance("a")));
    let without = rebind(|request| request.instances = vec![instance("b")]);
    let alone = rebind(|request| {
        request.instances = vec![instance("a")];
        request.avoid = Some(instance("a"));
    });
    for (command, expected) in [
        (avoiding, "won 1 claimed b +0 - left u1, record"),
        (without, "won 1 claimed b +0 - left u1, record"),
        (alone, "won 1 claimed a +0 - left u1, record"),
    ] {
        check(&command, &[(State::Bound, expected)]);
    }
}

#[test]
fn a_retry_gets_the_same_answer_until_it_is_confirmed() {
    let (mut slot, first) = run(&rebind(|_| {}), State::Bound);
    let again = run_on(&mut slot, &rebind(|_| {}), NOW);
    assert_eq!(again, first);
    run_on(
        &mut slot,
        &confirm_as("mine", number_at(NOW), Some("u2")),
        NOW,
    )
    .unwrap();
    let outcome = run_on(&mut slot, &rebind(|_| {}), NOW);
    assert_eq!(describe(&outcome), "won 1 bound a +0 u2 left -, nothing");
}

#[test]
fn the_losers_of_one_loss_adopt() {
    let (mut slot, _) = run(&rebind(|_| {}), State::Bound);
    for n in 0..12 {
        let loser = rebind(|request| request.token = token(&format!("loser-{n}")));
        let outcome = run_on(&mut slot, &loser, NOW);
        assert_eq!(describe(&outcome), "won 0 claimed a +0 - left -, nothing");
    }
}

#[test]
fn what_an_unconfirmed_claim_left_behind_is_handed_on() {
    let (mut slot, _) = run(&rebind(|_| {}), State::Bound);
    let next = rebind(|request| {
        request.epoch = number_at(NOW);
        request.token = token("next");
    });
    let outcome = run_on(&mut slot, &next, NOW + 5_000);
    assert_eq!(
        describe(&outcome),
        "won 1 claimed a +5000 - left u1, record"
    );
}

#[test]
fn an_upstream_session_that_is_there_already_is_bound_at_once() {
    let ready = rebind(|request| request.upstream_session = Some(upstream("u2")));
    check(
        &ready,
        &[
            (State::Absent, "NOSESSION"),
            (State::Active, "STALE"),
            (State::EndedBound, "ENDED"),
            (State::Claimed, "won 0 claimed a -400 - left -, nothing"),
            (State::Lapsed, "won 1 bound a +0 u2 left -, record"),
            (State::Bound, "won 1 bound a +0 u2 left u1, record"),
            (State::Owned, "OWNED"),
            (State::OwnedByTheDead, "won 1 bound a +0 u2 left u1, record"),
        ],
    );
    let late = rebind(|request| {
        request.epoch = EPOCH - 1;
        request.upstream_session = Some(upstream("u2"));
    });
    check(
        &late,
        &[(State::Bound, "won 0 bound a -400 u1 left -, nothing")],
    );
}

/// Of those who saw one epoch and come with a session each, one is kept, and the others learn which.
#[test]
fn a_retry_with_an_upstream_session_gets_the_same_answer() {
    let ready = |by: &str, session: &str| {
        rebind(|request| {
            request.token = token(by);
            request.upstream_session = Some(upstream(session));
        })
    };
    let (mut slot, first) = run(&ready("mine", "u2"), State::Bound);
    let again = run_on(&mut slot, &ready("mine", "u2"), NOW + 20_000 - 5_000);
    assert_eq!(describe(&again), "won 1 bound a +0 u2 left u1, lifetime");
    assert_eq!(again.unwrap().reply, first.unwrap().reply);
    let late = run_on(&mut slot, &ready("late", "u3"), NOW + 15_000);
    assert_eq!(describe(&late), "won 0 bound a +0 u2 left -, nothing");
    // A claim that was asked for without one is ended by it, and what it left behind is told still.
    let (mut slot, _) = run(&rebind(|_| {}), State::Bound);
    let ended = run_on(&mut slot, &ready("mine", "u2"), NOW + 1);
    assert_eq!(describe(&ended), "won 1 bound a +0 u2 left u1, record");
}

#[test]
fn a_session_that_goes_on_is_not_left_behind() {
    let same = rebind(|request| request.upstream_session = Some(upstream("u1")));
    check(
        &same,
        &[(State::Bound, "won 1 bound a +0 u1 left -, record")],
    );
    let (mut slot, _) = run(&rebind(|_| {}), State::Bound);
    let outcome = run_on(&mut slot, &same, NOW);
    assert_eq!(describe(&outcome), "won 1 bound a +0 u1 left -, record");
}

#[test]
fn moves_are_counted_and_say_why() {
    let moved = rebind(|request| request.reason = Some(reason("instance lost")));
    let (slot, _) = run(&moved, State::Bound);
    let record = slot.unwrap();
    let binding = record.bindings.values().next().unwrap();
    assert_eq!(binding.rebinds, 1);
    assert_eq!(binding.last_reason, Some(reason("instance lost")));
    assert_eq!(binding.driver, worker("caller:1"));
    assert_eq!(binding.owner, None);
}

/// The instance whose loss ROUTE wants reported.
#[track_caller]
fn unreported(slot: &mut Option<Record>) -> Option<String> {
    let Reply::Route(routed) = run_on(slot, &route_by("caller:1"), NOW).unwrap().reply else {
        panic!("the answer of ROUTE");
    };
    let loss = routed.unreported_loss?;
    assert_eq!(loss.reason, Some(reason("lost")));
    Some(loss.instance.to_string())
}

/// Moves the binding by an attempt that leaves the report to the next call, and confirms that.
#[track_caller]
fn moved_silently(slot: &mut Option<Record>, by: &str, epoch: u64, now: u64) {
    let silent = rebind(|request| {
        request.epoch = epoch;
        request.token = token(by);
        request.avoid = Some(instance("a"));
        request.reason = Some(reason("lost"));
        request.report = LossReport::ByNextCall;
    });
    run_on(slot, &silent, now).unwrap();
    assert_eq!(unreported(slot), None, "nothing is told of a claim");
    run_on(slot, &confirm_as(by, number_at(now), Some("u2")), now).unwrap();
}

fn reported(epoch: u64) -> Command {
    Command::Touch(TouchRequest {
        reported: Some(ReportedLoss {
            server: server("tools"),
            epoch,
        }),
        ..a_touch()
    })
}

#[test]
fn a_loss_that_the_caller_cannot_report_is_told_until_it_is_reported() {
    let mut slot = slot_in(State::Bound);
    moved_silently(&mut slot, "stream", EPOCH, NOW);
    for _ in 0..2 {
        assert_eq!(unreported(&mut slot).as_deref(), Some("a"));
    }
    let outcome = run_on(&mut slot, &reported(EPOCH), NOW);
    assert_eq!(
        describe(&outcome),
        "expires +16000, nothing",
        "another loss"
    );
    assert_eq!(unreported(&mut slot).as_deref(), Some("a"));
    let outcome = run_on(&mut slot, &reported(number_at(NOW)), NOW);
    assert_eq!(describe(&outcome), "expires +16000, record");
    assert_eq!(unreported(&mut slot), None);
    let outcome = run_on(&mut slot, &reported(number_at(NOW)), NOW);
    assert_eq!(
        describe(&outcome),
        "expires +16000, nothing",
        "once is enough"
    );
}

#[test]
fn losses_that_nobody_reported_are_one_and_whoever_moves_it_next_may_report_it() {
    let mut slot = slot_in(State::Bound);
    moved_silently(&mut slot, "first", EPOCH, NOW);
    moved_silently(&mut slot, "second", number_at(NOW), NOW + 1);
    assert_eq!(
        unreported(&mut slot).as_deref(),
        Some("a"),
        "where it was first"
    );
    let told = rebind(|request| {
        request.epoch = number_at(NOW + 1);
        request.token = token("third");
    });
    run_on(&mut slot, &told, NOW + 2).unwrap();
    run_on(
        &mut slot,
        &confirm_as("third", number_at(NOW + 2), Some("u3")),
        NOW + 2,
    )
    .unwrap();
    assert_eq!(unreported(&mut slot), None);
}

#[test]
fn an_attempt_that_moves_its_own_claim_leaves_the_loss_to_be_reported() {
    let mut slot = slot_in(State::Bound);
    let silent = rebind(|request| {
        request.reason = Some(reason("lost"));
        request.report = LossReport::ByNextCall;
    });
    run_on(&mut slot, &silent, NOW).unwrap();
    let elsewhere = rebind(|request| {
        request.epoch = number_at(NOW);
        request.reason = Some(reason("lost"));
    });
    run_on(&mut slot, &elsewhere, NOW + 1).unwrap();
    run_on(
        &mut slot,
        &confirm_as("mine", number_at(NOW + 1), Some("u2")),
        NOW + 1,
    )
    .unwrap();
    assert_eq!(unreported(&mut slot).as_deref(), Some("a"));
}

#[test]
fn a_claim_that_was_never_bound_has_nothing_to_report() {
    let mut slot = slot_in(State::Lapsed);
    moved_silently(&mut slot, "stream", EPOCH, NOW);
    assert_eq!(unreported(&mut slot), None);
}

#[test]
fn instances_have_a_limit() {
    for count in [0, INSTANCES_MAX + 1] {
        let (slot, outcome) = run(
            &rebind(|request| request.instances = vec![instance("a"); count]),
            State::Bound,
        );
        assert_eq!(describe(&outcome), "ERR");
        assert_eq!(slot, slot_in(State::Bound));
    }
}
