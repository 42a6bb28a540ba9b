//! Decisions on the way to a binding.

use super::*;

#[test]
fn a_claim_is_initialized_confirmed_and_restored() {
    let names = Names::new();
    let mut run = Resolving::begin(Resolution::resolve(OnLoss::Recover), &names);
    run.bind();
    assert!(matches!(run.task(), Task::Initialize(claim) if claim.binding.epoch == 1));
    run.hear(initialized());
    assert!(matches!(run.task(), Task::Confirm(request) if request.epoch == 1));
    run.hear(TaskOutcome::Confirmed(Ok(bound(1, "a"))));
    assert!(matches!(run.task(), Task::Restore { lost: None, .. }));
    run.hear(TaskOutcome::Done);
    let resolved = run.result().unwrap();
    assert_eq!((resolved.binding.epoch, resolved.state_loss), (1, None));
}

#[test]
fn a_claim_moves_on_until_every_instance_was_tried() {
    let names = Names::new();
    let mut run = Resolving::begin(Resolution::resolve(OnLoss::Recover), &names);
    run.bind().hear(unanswered());
    match run.task() {
        Task::Rebind(request) => assert_eq!(request.instances, [instance("b")]),
        other => panic!("{other:?}"),
    }
    run.hear(rebound(2, "b", 1, None)).hear(unanswered());
    // It is the first of its session: no later attempt must take it for a binding that was lost.
    assert!(matches!(run.task(), Task::Unbind(request) if request.epoch == 2));
    run.hear(TaskOutcome::Done);
    assert!(matches!(run.result(), Err(ResolveFailure::NoInstance(()))));
}

#[test]
fn the_claim_of_a_lost_binding_lapses_if_it_is_given_up() {
    let names = Names::new();
    let lost = LostBinding::new(&bound(1, "a"), Loss::InstanceRefuses);
    let mut run = Resolving::begin(
        Resolution::recover(lost, OnLoss::Recover, &names.facts()),
        &names,
    );
    run.hear(TaskOutcome::Drawn(token()));
    assert!(matches!(run.task(), Task::Rebind(request) if request.avoid == Some(instance("a"))));
    run.hear(rebound(2, "b", 1, None));
    let refused = InitializeFailure::Refused(());
    run.hear(TaskOutcome::Initialized(Err(refused)));
    assert!(matches!(run.task(), Task::LetLapse(_)));
    run.hear(TaskOutcome::Done);
    assert!(matches!(run.result(), Err(ResolveFailure::Handshake(()))));
}

#[test]
fn an_earlier_claim_of_the_same_attempt_is_not_initialized_again() {
    let names = Names::new();
    let mut run = Resolving::begin(Resolution::resolve(OnLoss::Recover), &names);
    run.bind().hear(unanswered());
    // The store has lost the writes after the claim, and takes the request for a repetition of an earlier one.
    run.hear(rebound(1, "a", 0, None));
    assert!(matches!(run.task(), Task::Route(_)));
}

#[test]
fn an_upstream_session_that_was_not_recorded_is_deleted() {
    let names = Names::new();
    let stale = Some(Refusal::Stale(Stale::Binding));
    for error in [stale.clone(), None] {
        let mut run = Resolving::begin(Resolution::resolve(OnLoss::Recover), &names);
        run.bind().hear(initialized());
        run.hear(TaskOutcome::Confirmed(Err(error.clone())));
        assert!(matches!(run.task(), Task::DiscardNew(_)));
        run.hear(TaskOutcome::Done);
        match error {
            Some(_) => assert!(matches!(run.task(), Task::Route(_)), "another attempt won"),
            None => assert!(matches!(run.result(), Err(ResolveFailure::Store(None)))),
        }
    }
}

#[test]
fn a_connection_that_may_have_been_recorded_stays() {
    let names = Names::owned();
    let mut run = Resolving::begin(Resolution::resolve(OnLoss::Recover), &names);
    run.bind().hear(initialized());
    run.hear(TaskOutcome::Confirmed(Err(None)));
    assert!(matches!(run.result(), Err(ResolveFailure::Store(None))));
}

#[test]
fn a_lapsed_claim_has_lost_state_only_if_it_was_confirmed_in_the_last_moment() {
    let names = Names::new();
    for previous in [None, Some(upstream("late"))] {
        let orphaned = in_state(BindingState::Orphaned, bound(1, "a"));
        let mut run = Resolving::begin(Resolution::resolve(OnLoss::Recover), &names);
        run.hear(route(Some(orphaned)))
            .hear(TaskOutcome::Drawn(token()));
        run.hear(rebound(2, "a", 1, previous.clone()));
        if previous.is_some() {
            assert!(matches!(run.task(), Task::DiscardPrevious { .. }));
            run.hear(TaskOutcome::Done);
        }
        run.hear(unanswered())
            .hear(rebound(3, "b", 2, None))
            .hear(initialized());
        let confirmed = BindingView {
            rebinds: 2,
            ..bound(3, "b")
        };
        run.hear(TaskOutcome::Confirmed(Ok(confirmed)))
            .hear(TaskOutcome::Done);
        let told = run.result().unwrap().state_loss;
        assert_eq!(told.is_some(), previous.is_some());
    }
}

#[test]
fn the_loss_that_another_gateway_handled_is_told_once_by_each() {
    let names = Names::new();
    let lost = LostBinding::new(&bound(1, "a"), Loss::SessionUnknown);
    let mut run = Resolving::begin(
        Resolution::recover(lost, OnLoss::Recover, &names.facts()),
        &names,
    );
    run.hear(TaskOutcome::Drawn(token()));
    let owned = Some(Refusal::Owned(worker("there:1")));
    run.hear(TaskOutcome::Rebound(Err(owned)));
    run.hear(route(Some(in_state(BindingState::Claimed, bound(2, "b")))));
    assert!(matches!(run.task(), Task::WatchClaim));
    run.hear(TaskOutcome::Woken {
        receives_events: true,
    });
    assert!(
        matches!(run.task(), Task::Route(_)),
        "an event may have come before"
    );
    run.hear(route(Some(bound(2, "b"))));
    let loss = run.result().unwrap().state_loss.unwrap();
    assert_eq!(
        (loss.from, loss.to, loss.epoch),
        (instance("a"), instance("b"), 2)
    );
}

#[test]
fn a_recorded_loss_is_told_although_the_binding_turns_out_not_to_be_lost() {
    let names = Names::owned();
    let mut binding = owned_by("there:1", in_state(BindingState::Orphaned, bound(2, "a")));
    if let Some(owner) = &mut binding.owner {
        owner.alive = false;
    }
    let mut run = Resolving::begin(Resolution::resolve(OnLoss::RecoverAndReport), &names);
    run.hear(route(Some(binding)));
    run.hear(TaskOutcome::Drawn(token()));
    let owned = Some(Refusal::Owned(worker("there:1")));
    run.hear(TaskOutcome::Rebound(Err(owned)));
    run.hear(TaskOutcome::Routed(Ok(RouteReply {
        binding: Some(owned_by("there:1", bound(2, "a"))),
        worker_lost: None,
        unreported_loss: Some(UnreportedLoss {
            instance: instance("b"),
            reason: None,
        }),
    })));
    let loss = run.result().unwrap().state_loss.unwrap();
    assert_eq!((loss.from, loss.epoch), (instance("b"), 2));
}

#[test]
fn the_claim_of_another_attempt_is_waited_for_as_long_as_an_attempt_takes() {
    let names = Names::new();
    let claimed = || route(Some(in_state(BindingState::Claimed, bound(1, "a"))));
    for receives_events in [true, false] {
        let mut run = Resolving::begin(Resolution::resolve(OnLoss::Recover), &names);
        let woken = || TaskOutcome::Woken { receives_events };
        run.hear(claimed()).hear(woken()).hear(claimed());
        let mut pauses = Vec::new();
        for _ in 0..3 {
            match run.task() {
                Task::AwaitClaim(pause) => pauses.push(pause.as_millis()),
                other => panic!("{other:?}"),
            }
            run.hear(woken()).hear(claimed());
        }
        let expected = if receives_events {
            [1_000; 3]
        } else {
            [2, 4, 8]
        };
        assert_eq!(pauses, expected);
        run.later(6);
        run.hear(woken()).hear(claimed());
        assert!(matches!(run.result(), Err(ResolveFailure::ClaimPending)));
    }
}

#[test]
fn a_session_that_is_opened_shares_its_claim_with_nobody() {
    let names = Names::new();
    let mut run = Resolving::begin(Resolution::open(), &names);
    run.hear(TaskOutcome::Drawn(token()));
    run.hear(TaskOutcome::Bound(Ok(BindReply {
        won: false,
        binding: bound(1, "a"),
    })));
    assert!(matches!(run.result(), Err(ResolveFailure::ClaimPending)));
}

#[test]
fn by_policy_a_loss_ends_the_session_but_a_lapsed_claim_does_not() {
    let names = Names {
        ends_on_loss: true,
        ..Names::new()
    };
    for (loss, ends) in [(Loss::SessionUnknown, true), (Loss::ClaimLapsed, false)] {
        let lost = LostBinding::new(&bound(1, "a"), loss);
        let mut run = Resolving::begin(
            Resolution::recover(lost, OnLoss::Recover, &names.facts()),
            &names,
        );
        match run.task() {
            Task::EndSession => assert!(ends),
            Task::DrawToken => assert!(!ends),
            other => panic!("{other:?}"),
        }
        if ends {
            run.hear(TaskOutcome::Done);
            assert!(matches!(run.result(), Err(ResolveFailure::LostByPolicy)));
        }
    }
}

#[test]
fn the_live_owner_of_a_lost_connection_renews_it() {
    let names = Names::owned();
    let lost = LostBinding::new(&owned_by("there:1", bound(1, "a")), Loss::ConnectionEnded);
    let mut run = Resolving::begin(
        Resolution::recover(lost, OnLoss::Recover, &names.facts()),
        &names,
    );
    assert!(matches!(run.task(), Task::RenewAtOwner(lost) if lost.epoch == 1));
    run.hear(TaskOutcome::Done);
    run.hear(route(Some(owned_by("there:1", bound(2, "a")))));
    assert!(run.result().unwrap().state_loss.is_some());
}

#[test]
fn an_owner_that_cannot_renew_the_connection_is_asked_once_and_waited_for_within_bounds() {
    let names = Names::owned();
    let orphan = |epoch| owned_by("there:1", bound(epoch, "gone"));
    let mut run = Resolving::begin(Resolution::resolve(OnLoss::Recover), &names);
    run.hear(route(Some(orphan(1))));
    assert!(matches!(run.task(), Task::RenewAtOwner(_)));
    run.hear(TaskOutcome::Done).hear(route(Some(orphan(2))));
    assert!(matches!(run.task(), Task::WatchClaim));
    let woken = || TaskOutcome::Woken {
        receives_events: false,
    };
    run.hear(woken()).hear(route(Some(orphan(2))));
    assert!(matches!(run.task(), Task::AwaitClaim(_)));
    run.later(60);
    run.hear(woken()).hear(route(Some(orphan(3))));
    assert!(matches!(run.result(), Err(ResolveFailure::ClaimPending)));
}

#[test]
fn a_binding_that_was_dropped_before_it_is_moved_is_bound_again() {
    let names = Names::new();
    let lost = LostBinding::new(&bound(1, "a"), Loss::InstanceRefuses);
    let mut run = Resolving::begin(
        Resolution::recover(lost, OnLoss::Recover, &names.facts()),
        &names,
    );
    run.hear(TaskOutcome::Drawn(token()));
    run.hear(TaskOutcome::Rebound(Err(Some(Refusal::Stale(
        Stale::Binding,
    )))));
    run.hear(route(None));
    assert!(matches!(run.task(), Task::DrawToken));
}

#[test]
fn an_instance_that_is_not_configured_any_more_is_lost() {
    let names = Names::new();
    let mut run = Resolving::begin(Resolution::resolve(OnLoss::Recover), &names);
    run.hear(route(Some(bound(1, "gone"))));
    run.hear(TaskOutcome::Drawn(token()));
    assert!(matches!(run.task(), Task::Rebind(request) if request.epoch == 1));
}

#[test]
fn a_binding_that_a_drained_owner_gave_up_is_lost_and_no_claim_that_lapsed() {
    for ends in [false, true] {
        let names = Names {
            ends_on_loss: ends,
            ..Names::owned()
        };
        let given_up = BindingView {
            last_reason: Loss::OwnerDrained.reason(),
            ..in_state(BindingState::Orphaned, bound(2, "a"))
        };
        let mut run = Resolving::begin(Resolution::resolve(OnLoss::Recover), &names);
        run.hear(route(Some(given_up)));
        match run.task() {
            Task::EndSession => assert!(ends),
            Task::DrawToken => assert!(!ends),
            other => panic!("{other:?}"),
        }
        if !ends {
            run.hear(TaskOutcome::Drawn(token()));
            assert!(
                matches!(run.task(), Task::Rebind(request) if request.reason == Loss::OwnerDrained.reason())
            );
        }
    }
}

/// All instances are parked.
struct ParkedInstances;

impl Instances for ParkedInstances {
    fn contains(&self, name: &InstanceName) -> bool {
        TwoInstances.contains(name)
    }

    fn move_targets(&self) -> Vec<InstanceName> {
        TwoInstances.move_targets()
    }

    fn candidates(&self) -> Vec<InstanceName> {
        Vec::new()
    }

    fn has_target_beside(&self, name: &InstanceName) -> bool {
        TwoInstances.has_target_beside(name)
    }
}

#[test]
fn a_parked_server_is_not_bound_and_its_lost_bindings_move() {
    let names = Names::new();
    let facts = Facts {
        instances: &ParkedInstances,
        ..names.facts()
    };
    let begin = |machine| Run {
        machine,
        facts,
        now: Instant::now(),
    };
    let mut run: Resolving<'_> = begin(Resolution::resolve(OnLoss::Recover));
    run.hear(route(None)).hear(TaskOutcome::Drawn(token()));
    assert!(matches!(run.result(), Err(ResolveFailure::Parked)));
    let lost = LostBinding::new(&bound(1, "a"), Loss::SessionUnknown);
    let mut run = begin(Resolution::recover(lost, OnLoss::Recover, &facts));
    run.hear(TaskOutcome::Drawn(token()));
    assert!(matches!(run.task(), Task::Rebind(request) if request.instances.len() == 2));
}
