//! BIND: first bind wins, a retry of the winner still wins, and everybody else is told what holds.

use mooring_session::limits::{BINDINGS_MAX, INSTANCES_MAX};
use mooring_session::rules::{BindRequest, Ownership};
use mooring_session::time::Millis;

use crate::states::{NOW, State, a_bind, confirm_as, number_at, slot_in};
use crate::support::{Command, instance, server, token, upstream, worker};
use crate::{check, describe, run, run_on};

fn bind(change: impl Fn(&mut BindRequest)) -> Command {
    let mut request = a_bind();
    change(&mut request);
    Command::Bind(request)
}

#[test]
fn the_first_wins_and_the_others_are_told() {
    check(
        &bind(|_| {}),
        &[
            (State::Absent, "NOSESSION"),
            (State::Active, "won 1 claimed a +0 -, record"),
            (State::Expired, "NOSESSION"),
            (State::EndedBound, "ENDED"),
            (State::Claimed, "won 0 claimed a -400 -, nothing"),
            (State::Lapsed, "won 0 orphaned a -400 -, nothing"),
            (State::Bound, "won 0 bound a -400 u1, nothing"),
            (State::Owned, "won 0 bound a -400 u1, nothing"),
            (State::OwnedByTheDead, "won 0 orphaned a -400 u1, nothing"),
        ],
    );
}

#[test]
fn the_same_token_still_holds() {
    check(
        &bind(|request| request.token = token("held")),
        &[
            (State::Claimed, "won 1 claimed a -400 -, record"),
            (State::Lapsed, "won 1 claimed a -400 -, record"),
            (State::Bound, "won 1 bound a -400 u1, nothing"),
        ],
    );
}

#[test]
fn a_renewed_lease_counts_from_the_renewal() {
    let renew = bind(|request| {
        request.token = token("held");
        request.lease = Millis::new(70);
    });
    let (mut slot, _) = run(&renew, State::Lapsed);
    let other = bind(|_| {});
    let outcome = run_on(&mut slot, &other, NOW + 69);
    assert_eq!(describe(&outcome), "won 0 claimed a -400 -, nothing");
    let outcome = run_on(&mut slot, &other, NOW + 70);
    assert_eq!(describe(&outcome), "won 0 orphaned a -400 -, nothing");
}

#[test]
fn with_the_upstream_session_it_is_bound_at_once() {
    let ready = bind(|request| request.upstream_session = Some(upstream("u9")));
    check(
        &ready,
        &[
            (State::Active, "won 1 bound a +0 u9, record"),
            (State::Claimed, "won 0 claimed a -400 -, nothing"),
            (State::Bound, "won 0 bound a -400 u1, nothing"),
        ],
    );
    let retry = bind(|request| {
        request.upstream_session = Some(upstream("u9"));
        request.token = token("held");
    });
    check(
        &retry,
        &[
            (State::Claimed, "won 1 bound a -400 u9, record"),
            (State::Bound, "won 1 bound a -400 u1, nothing"),
        ],
    );
}

#[test]
fn epochs_only_grow_within_a_millisecond_and_when_the_clock_steps_back() {
    let bind_to = |name: &'static str| bind(move |request| request.server = server(name));
    let (mut slot, _) = run(&bind_to("one"), State::Active);
    let outcome = run_on(&mut slot, &bind_to("two"), NOW);
    assert_eq!(describe(&outcome), "won 1 claimed a +0.001 -, record");
    let outcome = run_on(&mut slot, &bind_to("three"), NOW - 400_000);
    assert_eq!(describe(&outcome), "won 1 claimed a +0.002 -, record");
}

#[test]
fn a_draining_worker_owns_nothing_new() {
    let owned = bind(|request| {
        request.worker = worker("draining:1");
        request.ownership = Ownership::Owned;
    });
    check(
        &owned,
        &[
            (State::Active, "BUSY"),
            (State::Bound, "won 0 bound a -400 u1, nothing"),
        ],
    );
    let shared = bind(|request| request.worker = worker("draining:1"));
    check(&shared, &[(State::Active, "won 1 claimed a +0 -, record")]);
}

#[test]
fn an_owned_binding_is_its_callers() {
    let owned = bind(|request| request.ownership = Ownership::Owned);
    let (slot, _) = run(&owned, State::Active);
    let record = slot.unwrap();
    let binding = record.bindings.values().next().unwrap();
    assert_eq!(binding.owner, Some(worker("caller:1")));
}

#[test]
fn instances_and_bindings_have_limits() {
    for (count, expected) in [
        (0, "ERR"),
        (INSTANCES_MAX, "won 1 claimed a +0 -, record"),
        (INSTANCES_MAX + 1, "ERR"),
    ] {
        let (_, outcome) = run(
            &bind(|request| request.instances = vec![instance("a"); count]),
            State::Active,
        );
        assert_eq!(describe(&outcome), expected, "{count} instances");
    }
    let mut slot = slot_in(State::Active);
    let to = |n: usize| bind(|request| request.server = server(&format!("server-{n}")));
    for n in 0..BINDINGS_MAX {
        run_on(&mut slot, &to(n), NOW).unwrap();
    }
    let outcome = run_on(&mut slot, &to(BINDINGS_MAX), NOW);
    assert_eq!(describe(&outcome), "LIMIT");
    let outcome = run_on(&mut slot, &to(0), NOW);
    assert_eq!(describe(&outcome), "won 1 claimed a +0 -, record");
}

#[test]
fn a_retry_after_the_confirmation_is_told_that_it_is_bound() {
    let (mut slot, _) = run(&bind(|_| {}), State::Active);
    run_on(
        &mut slot,
        &confirm_as("mine", number_at(NOW), Some("u2")),
        NOW,
    )
    .unwrap();
    let outcome = run_on(&mut slot, &bind(|_| {}), NOW);
    assert_eq!(describe(&outcome), "won 1 bound a +0 u2, nothing");
}
