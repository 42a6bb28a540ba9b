//! Decisions about one message.

use super::*;

#[test]
fn a_call_that_may_have_run_is_sent_again_only_if_that_is_harmless() {
    for (repetition, is_sent) in [
        (Repetition::Harmless, true),
        (Repetition::Never, false),
        (Repetition::ByTool, false),
    ] {
        let names = Names::new();
        let mut run = Delivering::begin(OnLoss::Recover, repetition, bound(1, "a"), &names);
        assert!(run.is_sending(1));
        run.not_answered(SendFault::Broken);
        assert!(matches!(run.action(), Action::Probe(_)));
        run.hear(Event::Probed(ProbeOutcome::Alive));
        if repetition == Repetition::ByTool {
            assert!(matches!(run.action(), Action::ReadTool(_)));
            run.hear(Event::ToolRead(ToolReading::NotRepeatable));
        }
        match run.action() {
            Action::Send { .. } => assert!(is_sent, "{repetition:?}"),
            Action::Fail(Failure::OutcomeUnknown { .. }) => assert!(!is_sent, "{repetition:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_repeatable_tool_runs_again() {
    let names = Names::new();
    let mut run = Delivering::begin(
        OnLoss::RecoverAndReport,
        Repetition::ByTool,
        bound(1, "a"),
        &names,
    );
    run.not_answered(SendFault::Broken);
    run.hear(Event::Probed(ProbeOutcome::Unclear));
    run.hear(Event::ToolRead(ToolReading::Repeatable));
    assert!(run.is_sending(1));
}

/// The instance has answered the probe, and is gone when it is asked about the tool.
#[test]
fn an_instance_that_dies_before_it_tells_of_the_tool_is_lost() {
    for (reading, is_sent) in [
        (ToolReading::Repeatable, true),
        (ToolReading::NotRepeatable, false),
    ] {
        let names = Names::new();
        let mut run = Delivering::begin(
            OnLoss::RecoverAndReport,
            Repetition::ByTool,
            bound(1, "a"),
            &names,
        );
        run.not_answered(SendFault::Broken);
        run.hear(Event::Probed(ProbeOutcome::Alive));
        run.hear(Event::ToolRead(ToolReading::Refused)).recover(2);
        assert!(matches!(run.action(), Action::ReadTool(_)));
        run.hear(Event::ToolRead(reading));
        match run.action() {
            Action::Send { .. } => assert!(is_sent, "{reading:?}"),
            Action::Fail(Failure::OutcomeUnknown { .. }) => assert!(!is_sent, "{reading:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn whatever_fails_after_a_call_that_may_have_run_says_so() {
    let names = Names::new();
    let mut run = Delivering::begin(
        OnLoss::RecoverAndReport,
        Repetition::ByTool,
        bound(1, "a"),
        &names,
    );
    run.not_answered(SendFault::Broken);
    run.hear(Event::Probed(ProbeOutcome::SessionLost));
    run.hear(Event::Resolving(TaskOutcome::Drawn(token())));
    run.hear(Event::Resolving(TaskOutcome::Rebound(Err(None))));
    match run.action() {
        Action::Fail(Failure::OutcomeUnknown { cause, .. }) => {
            assert!(matches!(
                cause.as_deref(),
                Some(Failure::Resolve(ResolveFailure::Store(None)))
            ));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_call_that_did_not_run_is_sent_over_the_moved_binding_and_tells_of_the_loss() {
    let names = Names::new();
    let mut run = Delivering::begin(
        OnLoss::RecoverAndReport,
        Repetition::ByTool,
        bound(1, "a"),
        &names,
    );
    run.not_answered(SendFault::Refused).recover(2);
    assert!(run.is_sending(2));
    run.hear(Event::Answered {
        may_be_unknown: false,
    });
    match run.action() {
        Action::Answer(delivered) => {
            assert!(delivered.reports_loss);
            let expected = StateLoss {
                from: instance("a"),
                to: instance("b"),
                epoch: 2,
                reason: Loss::InstanceRefuses.as_str().into(),
            };
            assert_eq!(delivered.resolved.state_loss, Some(expected));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_call_is_given_up_after_three_lost_bindings() {
    let names = Names::new();
    let mut run = Delivering::begin(OnLoss::Recover, Repetition::Never, bound(1, "a"), &names);
    run.not_answered(SendFault::Refused).recover(2);
    run.not_answered(SendFault::Refused).recover(3);
    assert!(run.is_sending(3));
    run.not_answered(SendFault::Refused).recover(4);
    match run.action() {
        Action::Fail(Failure::LostAgain { state_loss }) => {
            let loss = state_loss.unwrap();
            assert_eq!(
                (loss.from, loss.epoch),
                (instance("a"), 4),
                "the moves are one"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_without_a_reply_moves_nothing() {
    let names = Names::new();
    let faults = [SendFault::Refused, SendFault::Ended];
    for fault in faults {
        let mut run = Delivering::begin(OnLoss::GiveUp, Repetition::Never, bound(1, "a"), &names);
        run.not_answered(fault);
        assert!(
            matches!(run.action(), Action::Fail(Failure::Lost)),
            "{fault:?}"
        );
    }
    let mut run = Delivering::begin(OnLoss::GiveUp, Repetition::Never, bound(1, "a"), &names);
    run.not_answered(SendFault::Broken);
    run.hear(Event::Probed(ProbeOutcome::SessionLost));
    assert!(matches!(run.action(), Action::Fail(Failure::Lost)));
    let orphaned = in_state(BindingState::Orphaned, bound(1, "a"));
    let mut run = Delivering::begin(OnLoss::GiveUp, Repetition::Never, orphaned, &names);
    assert!(matches!(run.action(), Action::Fail(Failure::Lost)));
    let mut run = Delivering::begin(OnLoss::GiveUp, Repetition::Never, bound(1, "a"), &names);
    run.not_answered(SendFault::Unreachable);
    assert!(matches!(
        run.action(),
        Action::Fail(Failure::Unreachable(()))
    ));
}

#[test]
fn a_message_of_one_epoch_reaches_no_other() {
    let names = Names::new();
    for (epoch, is_sent) in [(1, true), (2, false)] {
        let mut machine = Delivery::<Plain>::new(MessageRules {
            on_loss: OnLoss::GiveUp,
            repetition: Repetition::Never,
            epoch: Some(epoch),
        });
        let routed = Event::Resolving(route(Some(bound(1, "a"))));
        machine.handle(routed, &names.facts(), Instant::now());
        match machine.action(&names.facts()) {
            Action::Send { .. } => assert!(is_sent),
            Action::Fail(Failure::Lost) => assert!(!is_sent),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_reply_like_that_to_an_unknown_session_is_returned_unless_a_ping_confirms_it() {
    let names = Names::new();
    for (probed, is_lost) in [
        (ProbeOutcome::Alive, false),
        (ProbeOutcome::Unclear, false),
        (ProbeOutcome::SessionLost, true),
        (ProbeOutcome::InstanceLost, true),
    ] {
        let mut run = Delivering::begin(OnLoss::Recover, Repetition::Never, bound(1, "a"), &names);
        run.hear(Event::Answered {
            may_be_unknown: true,
        });
        assert!(matches!(run.action(), Action::Read(_)));
        run.hear(Event::Read(Ok(true))).hear(Event::Probed(probed));
        match run.action() {
            Action::Answer(_) => assert!(!is_lost, "{probed:?}"),
            Action::Resolve(Task::DrawToken) => assert!(is_lost, "{probed:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_instance_without_connection_is_waited_for_and_then_the_call_fails() {
    let names = Names::new();
    let mut run = Delivering::begin(OnLoss::Recover, Repetition::Never, bound(1, "a"), &names);
    for _ in 0..5 {
        run.not_answered(SendFault::NotConnected);
        assert!(matches!(run.action(), Action::Wait(_)));
        run.hear(Event::Waited);
        assert!(matches!(run.action(), Action::Resolve(Task::Route(_))));
        run.hear(Event::Resolving(route(Some(bound(1, "a")))));
        assert!(
            run.is_sending(1),
            "it may be sent as often as it was not delivered"
        );
        run.later(1);
    }
    run.later(5);
    run.not_answered(SendFault::NotConnected);
    assert!(matches!(
        run.action(),
        Action::Fail(Failure::Unreachable(()))
    ));
}

#[test]
fn an_unreachable_instance_is_lost_only_if_another_one_answers() {
    let names = Names::new();
    for does_answer in [true, false] {
        let mut run = Delivering::begin(OnLoss::Recover, Repetition::Never, bound(1, "a"), &names);
        run.not_answered(SendFault::Unreachable);
        assert!(matches!(run.action(), Action::ProbeOthers(_)));
        run.hear(Event::OthersAnswer(does_answer));
        match run.action() {
            Action::Resolve(Task::DrawToken) => assert!(does_answer),
            Action::Fail(Failure::Unreachable(())) => assert!(!does_answer),
            other => panic!("{other:?}"),
        }
        if does_answer {
            run.recover(2);
            assert!(run.is_sending(2), "nothing was delivered");
        }
    }
}

#[test]
fn a_binding_that_moved_while_its_owner_was_waited_for_has_lost_its_state() {
    let names = Names::owned();
    let binding = owned_by("there:1", bound(1, "a"));
    let mut run = Delivering::begin(OnLoss::Recover, Repetition::Never, binding, &names);
    run.not_answered(SendFault::OwnerDraining)
        .hear(Event::Waited);
    let moved = owned_by("other:1", bound(2, "a"));
    run.hear(Event::Resolving(route(Some(moved))));
    assert!(run.is_sending(2));
    run.hear(Event::Answered {
        may_be_unknown: false,
    });
    match run.action() {
        Action::Answer(delivered) => {
            let loss = delivered.resolved.state_loss.unwrap();
            assert_eq!(loss.reason, Loss::OwnerStopped.as_str());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_call_that_its_owner_may_have_run_is_not_sent_to_the_next_one() {
    let names = Names::owned();
    let binding = owned_by("there:1", bound(1, "a"));
    let mut run = Delivering::begin(OnLoss::Recover, Repetition::Never, binding, &names);
    run.not_answered(SendFault::OwnerBroken).hear(Event::Waited);
    run.hear(Event::Resolving(route(Some(owned_by(
        "other:1",
        bound(2, "a"),
    )))));
    match run.action() {
        Action::Fail(Failure::OutcomeUnknown { state_loss, .. }) => assert!(state_loss.is_some()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_owner_that_does_not_have_the_connection_renews_it_once() {
    let names = Names::owned();
    let binding = || owned_by("there:1", bound(1, "a"));
    let mut run = Delivering::begin(OnLoss::Recover, Repetition::Never, binding(), &names);
    run.not_answered(SendFault::NotHere);
    assert!(
        matches!(run.action(), Action::Wait(_)),
        "it may be about to move"
    );
    run.hear(Event::Waited)
        .hear(Event::Resolving(route(Some(binding()))));
    run.not_answered(SendFault::NotHere);
    assert!(matches!(
        run.action(),
        Action::Resolve(Task::RenewAtOwner(_))
    ));
    run.hear(Event::Resolving(TaskOutcome::Done));
    run.hear(Event::Resolving(route(Some(binding()))));
    assert!(run.is_sending(1));
    run.not_answered(SendFault::NotHere);
    assert!(
        matches!(run.action(), Action::Wait(_)),
        "its owner may be dead"
    );
    run.later(15);
    run.hear(Event::Waited)
        .hear(Event::Resolving(route(Some(binding()))));
    run.not_answered(SendFault::NotHere);
    assert!(matches!(
        run.action(),
        Action::Fail(Failure::Unreachable(()))
    ));
}

#[test]
fn a_gateway_that_does_not_have_its_own_connection_makes_a_new_one_if_the_record_still_names_it() {
    let names = Names::owned();
    let binding = |epoch| owned_by("here:1", bound(epoch, "a"));
    let mut run = Delivering::begin(OnLoss::Recover, Repetition::Never, binding(1), &names);
    for (epoch, is_lost) in [(2, false), (2, true)] {
        run.not_answered(SendFault::NotHere);
        assert!(
            matches!(run.action(), Action::Wait(_)),
            "the route may be stale"
        );
        run.hear(Event::Waited)
            .hear(Event::Resolving(route(Some(binding(epoch)))));
        if is_lost {
            run.not_answered(SendFault::NotHere);
        }
    }
    assert!(matches!(run.action(), Action::Resolve(Task::DrawToken)));
}

#[test]
fn only_the_result_of_a_tool_reports_a_recorded_loss() {
    let names = Names::new();
    for (on_loss, is_told) in [(OnLoss::RecoverAndReport, true), (OnLoss::Recover, false)] {
        let mut machine = Delivery::<Plain>::new(MessageRules {
            on_loss,
            repetition: Repetition::Never,
            epoch: None,
        });
        let unreported_loss = Some(UnreportedLoss {
            instance: instance("b"),
            reason: Reason::parse(b"gone").ok(),
        });
        let routed = RouteReply {
            binding: Some(bound(7, "a")),
            worker_lost: None,
            unreported_loss,
        };
        let (facts, now) = (names.facts(), Instant::now());
        machine.handle(
            Event::Resolving(TaskOutcome::Routed(Ok(routed))),
            &facts,
            now,
        );
        let answered = Event::Answered {
            may_be_unknown: false,
        };
        machine.handle(answered, &facts, now);
        match machine.action(&facts) {
            Action::Answer(delivered) => {
                let told = delivered
                    .resolved
                    .state_loss
                    .map(|loss| (loss.from, loss.reason));
                let expected = is_told.then(|| (instance("b"), "gone".into()));
                assert_eq!(told, expected);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_outcome_of_another_task_changes_nothing() {
    let names = Names::new();
    let mut run = Delivering::begin(OnLoss::Recover, Repetition::Never, bound(1, "a"), &names);
    run.hear(Event::Probed(ProbeOutcome::SessionLost))
        .hear(Event::Waited);
    run.hear(Event::Resolving(route(Some(bound(9, "a")))));
    assert!(run.is_sending(1));
    let mut run = Resolving::begin(Resolution::resolve(OnLoss::Recover), &names);
    run.hear(initialized()).hear(TaskOutcome::Done);
    assert!(matches!(run.task(), Task::Route(_)));
}
