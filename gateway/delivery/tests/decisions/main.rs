//! Single decisions of the machines, each with the shortest way to it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod delegations;
mod delivery;
mod resolution;

use std::time::{Duration, Instant};

use mooring_delivery::{
    Action, Delivery, Errors, Event, Facts, Failure, InitializeFailure, Instances, Loss,
    LostBinding, MessageRules, OnLoss, ProbeOutcome, Repetition, Resolution, ResolveFailure,
    ResolvedBinding, SendFault, StateLoss, Task, TaskOutcome, ToolReading,
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
        self.move_targets().contains(name)
    }

    fn move_targets(&self) -> Vec<InstanceName> {
        vec![instance("a"), instance("b")]
    }

    fn candidates(&self) -> Vec<InstanceName> {
        self.move_targets()
    }

    fn has_target_beside(&self, name: &InstanceName) -> bool {
        self.move_targets().iter().any(|other| other != name)
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

    fn result(&mut self) -> Result<ResolvedBinding, ResolveFailure<Plain>> {
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
