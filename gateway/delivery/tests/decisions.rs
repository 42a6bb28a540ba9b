//! Single decisions of the machines, each with the shortest way to it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::time::{Duration, Instant};

use mooring_delivery::{
    Action, Delivery, Errors, Event, Facts, Failure, InitializeFailure, Instances, Loss,
    LostBinding, MessageRules, OnLoss, Probed, Repetition, Resolution, ResolveFailure, Resolved,
    SendFault, StateLoss, Task, TaskOutcome,
};
use mooring_session::Refusal;
use mooring_session::names::{
    InstanceName, Principal, Reason, ServerName, Token, UpstreamSession, WorkerId,
};
use mooring_session::refusal::Stale;
use mooring_session::rules::{BindReply, Ownership, RebindReply, RouteReply, UnreportedLoss};
use mooring_session::time::{Millis, Timestamp};
use mooring_session::view::{BindingState, BindingView, OwnerView};

#[derive(Debug)]
struct Plain;

impl Errors for Plain {
    type Store = Option<Refusal>;
    type Handshake = ();
    type Send = ();
    type Answer = ();

    fn refusal(error: &Option<Refusal>) -> Option<&Refusal> {
        error.as_ref()
    }
}

struct TwoInstances;

impl Instances for TwoInstances {
    fn contains(&self, name: &InstanceName) -> bool {
        self.all().contains(name)
    }

    fn all(&self) -> Vec<InstanceName> {
        vec![instance("a"), instance("b")]
    }

    fn candidates(&self) -> Vec<InstanceName> {
        self.all()
    }

    fn count(&self) -> usize {
        2
    }
}

fn instance(name: &str) -> InstanceName {
    InstanceName::parse(name.as_bytes()).unwrap()
}

fn upstream(name: &str) -> UpstreamSession {
    UpstreamSession::parse(name.as_bytes()).unwrap()
}

fn token() -> Token {
    Token::parse(b"token").unwrap()
}

fn worker(name: &str) -> WorkerId {
    WorkerId::parse(name.as_bytes()).unwrap()
}

/// The names that facts borrow.
struct Names {
    principal: Principal,
    server: ServerName,
    worker: WorkerId,
    ownership: Ownership,
    ends_on_loss: bool,
}

impl Names {
    fn new() -> Self {
        Self {
            principal: Principal::local(),
            server: ServerName::parse(b"tools").unwrap(),
            worker: worker("here:1"),
            ownership: Ownership::Shared,
            ends_on_loss: false,
        }
    }

    fn owned() -> Self {
        Self {
            ownership: Ownership::Owned,
            ..Self::new()
        }
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            principal: &self.principal,
            server: &self.server,
            instances: &TwoInstances,
            ownership: self.ownership,
            ends_on_loss: self.ends_on_loss,
            worker: &self.worker,
            claim_lease: Millis::new(5_000),
            answer_timeout: Duration::from_secs(1),
        }
    }
}

fn bound(epoch: u64, at: &str) -> BindingView {
    BindingView {
        server: ServerName::parse(b"tools").unwrap(),
        state: BindingState::Bound,
        instance: instance(at),
        upstream_session: Some(upstream("s")),
        owner: None,
        driver: worker("here:1"),
        epoch,
        bound_at: Timestamp::from_unix_ms(1),
        lease_until: None,
        rebinds: 0,
        last_reason: None,
    }
}

fn in_state(state: BindingState, binding: BindingView) -> BindingView {
    BindingView { state, ..binding }
}

fn owned_by(owner: &str, binding: BindingView) -> BindingView {
    let owner = OwnerView {
        worker: worker(owner),
        alive: true,
        address: None,
    };
    BindingView {
        owner: Some(owner),
        ..binding
    }
}

fn route(binding: Option<BindingView>) -> TaskOutcome<Plain> {
    TaskOutcome::Routed(Ok(RouteReply {
        binding,
        worker_lost: None,
        unreported_loss: None,
    }))
}

fn rebound(
    epoch: u64,
    at: &str,
    rebinds: u64,
    previous: Option<UpstreamSession>,
) -> TaskOutcome<Plain> {
    let binding = in_state(BindingState::Claimed, bound(epoch, at));
    TaskOutcome::Rebound(Ok(RebindReply {
        won: true,
        previous,
        binding: BindingView { rebinds, ..binding },
    }))
}

fn initialized() -> TaskOutcome<Plain> {
    TaskOutcome::Initialized(Ok(Some(upstream("new"))))
}

fn unanswered() -> TaskOutcome<Plain> {
    TaskOutcome::Initialized(Err(InitializeFailure::Unanswered(())))
}

/// A machine under test.
struct Run<'a, M> {
    machine: M,
    facts: Facts<'a>,
    now: Instant,
}

impl<M> Run<'_, M> {
    fn later(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

type Resolving<'a> = Run<'a, Resolution<Plain>>;

impl<'a> Resolving<'a> {
    fn begin(machine: Resolution<Plain>, names: &'a Names) -> Self {
        let (facts, now) = (names.facts(), Instant::now());
        Self {
            machine,
            facts,
            now,
        }
    }

    fn task(&self) -> Task<'_> {
        self.machine.task(&self.facts).unwrap()
    }

    fn hear(&mut self, outcome: TaskOutcome<Plain>) -> &mut Self {
        self.machine.handle(outcome, &self.facts, self.now);
        self
    }

    fn result(&mut self) -> Result<Resolved, ResolveFailure<Plain>> {
        self.machine.take_result().unwrap()
    }

    /// Binds an unbound server.
    fn bind(&mut self) -> &mut Self {
        let claim = in_state(BindingState::Claimed, bound(1, "a"));
        self.hear(route(None)).hear(TaskOutcome::Drawn(token()));
        self.hear(TaskOutcome::Bound(Ok(BindReply {
            won: true,
            binding: claim,
        })))
    }
}

type Delivering<'a> = Run<'a, Delivery<Plain>>;

impl<'a> Delivering<'a> {
    /// A message whose route is known.
    fn begin(
        on_loss: OnLoss,
        repetition: Repetition,
        binding: BindingView,
        names: &'a Names,
    ) -> Self {
        let machine = Delivery::new(MessageRules {
            on_loss,
            repetition,
            epoch: None,
        });
        let (facts, now) = (names.facts(), Instant::now());
        let mut run = Self {
            machine,
            facts,
            now,
        };
        run.hear(Event::Resolving(route(Some(binding))));
        run
    }

    fn action(&mut self) -> Action<'_, Plain> {
        self.machine.action(&self.facts)
    }

    fn hear(&mut self, event: Event<Plain>) -> &mut Self {
        self.machine.handle(event, &self.facts, self.now);
        self
    }

    fn not_answered(&mut self, fault: SendFault) -> &mut Self {
        self.hear(Event::NotAnswered(fault, ()))
    }

    /// Moves the binding that is lost to this epoch.
    fn recover(&mut self, epoch: u64) -> &mut Self {
        let confirmed = BindingView {
            rebinds: 2,
            ..bound(epoch, "b")
        };
        for outcome in [
            TaskOutcome::Drawn(token()),
            rebound(epoch, "b", 2, None),
            initialized(),
            TaskOutcome::Confirmed(Ok(confirmed)),
            TaskOutcome::Done,
        ] {
            self.hear(Event::Resolving(outcome));
        }
        self
    }

    fn is_sending(&mut self, epoch: u64) -> bool {
        matches!(self.action(), Action::Send { binding, .. } if binding.epoch == epoch)
    }
}

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
        run.hear(Event::Probed(Probed::Alive));
        if repetition == Repetition::ByTool {
            assert!(matches!(run.action(), Action::ReadTool(_)));
            let is_repeatable = false;
            run.hear(Event::ToolRead { is_repeatable });
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
    run.hear(Event::Probed(Probed::Unclear));
    run.hear(Event::ToolRead {
        is_repeatable: true,
    });
    assert!(run.is_sending(1));
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
    run.hear(Event::Probed(Probed::SessionLost));
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
    run.hear(Event::Probed(Probed::SessionLost));
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
        (Probed::Alive, false),
        (Probed::Unclear, false),
        (Probed::SessionLost, true),
        (Probed::InstanceLost, true),
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
    run.hear(Event::Probed(Probed::SessionLost))
        .hear(Event::Waited);
    run.hear(Event::Resolving(route(Some(bound(9, "a")))));
    assert!(run.is_sending(1));
    let mut run = Resolving::begin(Resolution::resolve(OnLoss::Recover), &names);
    run.hear(initialized()).hear(TaskOutcome::Done);
    assert!(matches!(run.task(), Task::Route(_)));
}

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
