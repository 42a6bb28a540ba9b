//! Delivering one message: over the binding of its session, which is resolved first, and after a failure again if that is
//! safe.
//!
//! Invariants: a message that may have run is sent again only if that is harmless; once it may have run, every failure says
//! so; a failure counts as not run only if the instance certainly has not begun the message.

use std::mem;
use std::time::{Duration, Instant};

use mooring_session::rules::RouteReply;
use mooring_session::view::BindingView;

use crate::facts::{Errors, Facts, OnLoss};
use crate::lookup::{BindingLookup, look_up};
use crate::loss::{Loss, LostBinding, StateLoss};
use crate::message::{
    Action, DeliveryOutcome, Event, Failure, MessageRules, ProbeOutcome, Repetition, SendFault,
    ToolReading,
};
use crate::resolution::Resolution;
use crate::task::{ResolveFailure, ResolvedBinding, Task, TaskOutcome};

/// Most attempts to send one message, losses included.
pub const ATTEMPTS_MAX: u32 = 3;
/// How long a message waits for a binding whose owner does not serve it: longer than `worker.beat_ttl_ms`, after which
/// the store counts the owner as dead.
const OWNER_WITHIN: Duration = Duration::from_secs(15);
/// Pause between two checks of such a binding.
const OWNER_PAUSE: Duration = Duration::from_millis(50);
/// How long a message waits for an unreachable instance that does not count as lost, because other requests reach it.
pub const UNREACHED_WITHIN: Duration = Duration::from_secs(10);
/// Pause between two attempts to connect to it.
const UNREACHED_PAUSE: Duration = Duration::from_millis(100);

/// Whether an attempt may have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExecutionStatus {
    NotRun,
    MaybeRun,
}

/// Why the binding is resolved.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// For the first attempt.
    First,
    /// The binding did not serve an attempt, and the store may know another.
    Again(SendFault),
    /// It is lost.
    Recover(ExecutionStatus),
}

#[derive(Debug)]
enum State<E: Errors> {
    Resolving(Purpose),
    Sending,
    Reading,
    /// With whether the attempt has run, which it has not if it was answered.
    Probing(ExecutionStatus),
    ProbingOthers(E::Send),
    Waiting(SendFault),
    ReadingTool,
    Answered,
    Failed(Failure<E>),
}

/// The state of one delivery.
#[derive(Debug)]
pub struct Delivery<E: Errors> {
    rules: MessageRules,
    state: State<E>,
    resolved: Option<ResolvedBinding>,
    /// Only for what takes more than one ROUTE, so that a call that succeeds carries and allocates nothing for it.
    resolution: Option<Box<Resolution<E>>>,
    /// Attempts that count towards [`ATTEMPTS_MAX`].
    attempts: u32,
    /// Whether any attempt may have run.
    ran: ExecutionStatus,
    not_served_since: Option<Instant>,
    /// The epoch at which the owner has said that it does not have the connection.
    not_here_at: Option<u64>,
    /// Whether the owner was asked to renew a connection that it does not have.
    was_renewed: bool,
    unreached_since: Option<Instant>,
}

impl<E: Errors> Delivery<E> {
    /// A message to deliver. A route that the store has just returned may be [handled](Self::handle) at once, which saves
    /// the first ROUTE.
    #[must_use]
    pub const fn new(rules: MessageRules) -> Self {
        Self {
            rules,
            state: State::Resolving(Purpose::First),
            resolved: None,
            resolution: None,
            attempts: 0,
            ran: ExecutionStatus::NotRun,
            not_served_since: None,
            not_here_at: None,
            was_renewed: false,
            unreached_since: None,
        }
    }

    /// What to do next. An answer or a failure ends the delivery, and is returned once.
    pub fn action(&mut self, facts: &Facts<'_>) -> Action<'_, E> {
        if matches!(self.state, State::Answered | State::Failed(_)) {
            return self.end();
        }
        if let State::Resolving(_) = self.state {
            return match self.resolution.as_ref().and_then(|one| one.task(facts)) {
                Some(task) => Action::Resolve(task),
                None => Action::Resolve(Task::Route(facts.route())),
            };
        }
        let Some(ResolvedBinding { binding, .. }) = &self.resolved else {
            return Action::Fail(Failure::Lost);
        };
        match &self.state {
            State::Reading => Action::Read(binding),
            State::Probing(_) => Action::Probe(binding),
            State::ProbingOthers(_) => Action::ProbeOthers(binding),
            State::Waiting(SendFault::NotConnected) => Action::Wait(UNREACHED_PAUSE),
            State::Waiting(_) => Action::Wait(OWNER_PAUSE),
            State::ReadingTool => Action::ReadTool(binding),
            _ => Action::Send {
                binding,
                has_session: binding.upstream_session.is_some(),
            },
        }
    }

    fn end(&mut self) -> Action<'_, E> {
        let resolved = self.resolved.take();
        match (mem::replace(&mut self.state, State::Answered), resolved) {
            (State::Failed(failure), _) => Action::Fail(failure),
            (_, Some(resolved)) => Action::Answer(DeliveryOutcome {
                resolved,
                reports_loss: self.rules.on_loss == OnLoss::RecoverAndReport,
            }),
            (_, None) => Action::Fail(Failure::Lost),
        }
    }

    /// Continues after the action. An event that is not the outcome of the current action changes nothing.
    pub fn handle(&mut self, event: Event<E>, facts: &Facts<'_>, now: Instant) {
        match (mem::replace(&mut self.state, State::Sending), event) {
            (State::Resolving(purpose), Event::Resolving(outcome)) => {
                self.resolving(purpose, outcome, facts, now);
            }
            (State::Sending, Event::Answered { may_be_unknown }) => {
                self.state = match may_be_unknown {
                    true => State::Reading,
                    false => State::Answered,
                };
            }
            (State::Sending, Event::NotAnswered(fault, error)) => {
                self.not_answered(fault, error, facts, now);
            }
            (State::Reading, Event::Read(Ok(true))) => {
                self.state = State::Probing(ExecutionStatus::NotRun)
            }
            (State::Reading, Event::Read(Ok(false))) => self.state = State::Answered,
            (State::Reading, Event::Read(Err(error))) => self.fail(Failure::Answer(error)),
            (State::Probing(ran), Event::Probed(probed)) => self.probed(probed, ran, facts),
            (State::ProbingOthers(_), Event::OthersAnswer(true)) => {
                self.lost(Loss::InstanceUnreachable, ExecutionStatus::NotRun, facts);
            }
            (State::ProbingOthers(error), Event::OthersAnswer(false)) => {
                self.fail(Failure::Unreachable(error));
            }
            (State::Waiting(fault), Event::Waited) => {
                self.state = State::Resolving(Purpose::Again(fault));
            }
            (State::ReadingTool, Event::ToolRead(reading)) => match reading {
                ToolReading::Repeatable => self.attempt(facts),
                ToolReading::NotRepeatable => self.fail_after_attempts(),
                ToolReading::Refused => {
                    self.lost(Loss::InstanceRefuses, ExecutionStatus::MaybeRun, facts);
                }
            },
            (state, _) => self.state = state,
        }
    }

    fn resolving(
        &mut self,
        purpose: Purpose,
        outcome: TaskOutcome<E>,
        facts: &Facts<'_>,
        now: Instant,
    ) {
        let Some(resolution) = &mut self.resolution else {
            return match outcome {
                TaskOutcome::Routed(Ok(routed)) => self.routed(routed, purpose, facts, now),
                TaskOutcome::Routed(Err(error)) => {
                    self.fail(Failure::Resolve(ResolveFailure::Store(error)));
                }
                _ => self.state = State::Resolving(purpose),
            };
        };
        resolution.handle(outcome, facts, now);
        self.continue_resolving(purpose, facts);
    }

    /// The first route of a resolution, which mostly finds a ready binding.
    fn routed(&mut self, routed: RouteReply, purpose: Purpose, facts: &Facts<'_>, now: Instant) {
        match look_up(routed, self.rules.on_loss, facts) {
            BindingLookup::Ready(resolved) => self.resolved(resolved, purpose, facts),
            found => {
                let resolution = Resolution::found(found, self.rules.on_loss, facts, now);
                self.resolution = Some(Box::new(resolution));
                self.continue_resolving(purpose, facts);
            }
        }
    }

    fn continue_resolving(&mut self, purpose: Purpose, facts: &Facts<'_>) {
        let result = self.resolution.as_mut().and_then(|one| one.take_result());
        let Some(result) = result else {
            self.state = State::Resolving(purpose);
            return;
        };
        self.resolution = None;
        match result {
            Ok(resolved) => self.resolved(resolved, purpose, facts),
            Err(ResolveFailure::Lost) => self.fail(Failure::Lost),
            Err(failure) => self.fail(Failure::Resolve(failure)),
        }
    }

    /// Takes a binding, and continues with the attempt that it was resolved for.
    fn resolved(&mut self, later: ResolvedBinding, purpose: Purpose, facts: &Facts<'_>) {
        let later = match (purpose, &self.resolved) {
            (Purpose::Again(fault), Some(earlier)) => follow(&earlier.binding, later, fault),
            _ => later,
        };
        let earlier_loss = (self.resolved.take()).and_then(|earlier| earlier.state_loss);
        self.resolved = Some(ResolvedBinding {
            binding: later.binding,
            state_loss: StateLoss::merge(earlier_loss, later.state_loss),
        });
        match purpose {
            Purpose::Again(SendFault::OwnerBroken) => {
                self.attempt_again(ExecutionStatus::MaybeRun, facts)
            }
            Purpose::First | Purpose::Again(_) => self.attempt(facts),
            Purpose::Recover(ran) => self.attempt_again(ran, facts),
        }
    }

    /// The next attempt to send the message.
    fn attempt(&mut self, facts: &Facts<'_>) {
        let Some(ResolvedBinding { binding, .. }) = &self.resolved else {
            return self.fail(Failure::Lost);
        };
        if (self.rules.epoch).is_some_and(|epoch| epoch != binding.epoch) {
            self.fail(Failure::Lost);
        } else if !facts.instances.contains(&binding.instance) {
            self.lost(Loss::InstanceRemoved, ExecutionStatus::NotRun, facts);
        } else {
            self.state = State::Sending;
        }
    }

    fn not_answered(&mut self, fault: SendFault, error: E::Send, facts: &Facts<'_>, now: Instant) {
        let may_move = self.rules.on_loss != OnLoss::GiveUp
            && (self.resolved.as_ref()).is_some_and(|resolved| {
                (facts.instances).has_target_beside(&resolved.binding.instance)
            });
        match fault {
            SendFault::Refused => self.lost(Loss::InstanceRefuses, ExecutionStatus::NotRun, facts),
            SendFault::Ended => self.lost(Loss::ConnectionEnded, ExecutionStatus::NotRun, facts),
            SendFault::Broken => {
                self.ran = ExecutionStatus::MaybeRun;
                self.state = State::Probing(ExecutionStatus::MaybeRun);
            }
            SendFault::OwnerBroken => {
                self.ran = ExecutionStatus::MaybeRun;
                self.not_served_since.get_or_insert(now);
                self.state = State::Waiting(fault);
            }
            SendFault::NotHere if self.has_to_be_renewed() => {
                self.was_renewed = true;
                self.lost(Loss::ConnectionEnded, ExecutionStatus::NotRun, facts);
            }
            SendFault::NotHere | SendFault::NotServed | SendFault::OwnerDraining => {
                if fault == SendFault::NotHere {
                    self.not_here_at = self.epoch();
                }
                let since = *self.not_served_since.get_or_insert(now);
                self.wait_since(since, OWNER_WITHIN, fault, error, now);
            }
            SendFault::NotConnected if may_move => {
                let since = *self.unreached_since.get_or_insert(now);
                self.wait_since(since, UNREACHED_WITHIN, fault, error, now);
            }
            SendFault::Unreachable if may_move => self.state = State::ProbingOthers(error),
            SendFault::NotConnected | SendFault::Unreachable | SendFault::Undeliverable => {
                self.fail(Failure::Unreachable(error));
            }
        }
    }

    /// Whether the connection is gone that the record names, rather than about to move: its owner, which may be this gateway,
    /// has said so at the same epoch before. A store that lost writes may name one that was replaced. Only once, because
    /// the owner may have restarted without the store knowing.
    fn has_to_be_renewed(&self) -> bool {
        let is_repeated = self.not_here_at.is_some() && self.not_here_at == self.epoch();
        self.rules.on_loss != OnLoss::GiveUp && !self.was_renewed && is_repeated
    }

    fn epoch(&self) -> Option<u64> {
        Some(self.resolved.as_ref()?.binding.epoch)
    }

    /// Waits before the record is read again: another gateway may have moved the session, or be about to.
    fn wait_since(
        &mut self,
        since: Instant,
        longest: Duration,
        fault: SendFault,
        error: E::Send,
        now: Instant,
    ) {
        if now.saturating_duration_since(since) >= longest {
            self.fail(Failure::Unreachable(error));
        } else {
            self.state = State::Waiting(fault);
        }
    }

    /// The ping after a broken connection, or after a reply that may mean an unknown upstream session. A call with such a
    /// reply has not run.
    fn probed(&mut self, probed: ProbeOutcome, ran: ExecutionStatus, facts: &Facts<'_>) {
        match (probed, ran) {
            (ProbeOutcome::InstanceLost, ran) => self.lost(Loss::InstanceRefuses, ran, facts),
            (ProbeOutcome::SessionLost, ran) => self.lost(Loss::SessionUnknown, ran, facts),
            (ProbeOutcome::Alive | ProbeOutcome::Unclear, ExecutionStatus::NotRun) => {
                self.state = State::Answered
            }
            (ProbeOutcome::Alive | ProbeOutcome::Unclear, ExecutionStatus::MaybeRun) => {
                self.attempt_again(ran, facts)
            }
        }
    }

    fn lost(&mut self, loss: Loss, ran: ExecutionStatus, facts: &Facts<'_>) {
        match &self.resolved {
            Some(ResolvedBinding { binding, .. }) if self.rules.on_loss != OnLoss::GiveUp => {
                let lost = LostBinding::new(binding, loss);
                self.resolution = Some(Box::new(Resolution::recover(
                    lost,
                    self.rules.on_loss,
                    facts,
                )));
                self.continue_resolving(Purpose::Recover(ran), facts);
            }
            _ => self.fail(Failure::Lost),
        }
    }

    /// Counts an attempt, and sends the message again if that is safe.
    fn attempt_again(&mut self, ran: ExecutionStatus, facts: &Facts<'_>) {
        self.attempts = self.attempts.saturating_add(1);
        if self.attempts >= ATTEMPTS_MAX {
            return self.fail_after_attempts();
        }
        match (ran, self.rules.repetition) {
            (ExecutionStatus::NotRun, _) | (ExecutionStatus::MaybeRun, Repetition::Harmless) => {
                self.attempt(facts)
            }
            (ExecutionStatus::MaybeRun, Repetition::ByTool) => self.state = State::ReadingTool,
            (ExecutionStatus::MaybeRun, Repetition::Never) => self.fail_after_attempts(),
        }
    }

    fn fail_after_attempts(&mut self) {
        let state_loss = self.take_state_loss();
        self.state = State::Failed(match self.ran {
            ExecutionStatus::NotRun => Failure::LostAgain { state_loss },
            ExecutionStatus::MaybeRun => Failure::OutcomeUnknown {
                state_loss,
                cause: None,
            },
        });
    }

    /// Whatever fails after an attempt that may have run, the failure says that it may have, because clients repeat a call
    /// after other errors. A message that is harmless to repeat keeps its failure, and so does one that only concerned
    /// the lost upstream session.
    fn fail(&mut self, failure: Failure<E>) {
        let is_kept = self.ran == ExecutionStatus::NotRun
            || self.rules.repetition == Repetition::Harmless
            || matches!(failure, Failure::Lost);
        self.state = State::Failed(match is_kept {
            true => failure,
            false => Failure::OutcomeUnknown {
                state_loss: self.take_state_loss(),
                cause: Some(Box::new(failure)),
            },
        });
    }

    fn take_state_loss(&mut self) -> Option<StateLoss> {
        (self.resolved.as_mut()).and_then(|resolved| resolved.state_loss.take())
    }
}

/// The current binding if the earlier one did not serve the call. If it was moved, this call has lost its upstream state
/// too.
fn follow(earlier: &BindingView, later: ResolvedBinding, fault: SendFault) -> ResolvedBinding {
    let loss = match fault {
        SendFault::OwnerDraining => Loss::OwnerStopped,
        SendFault::NotConnected => Loss::InstanceUnreachable,
        _ => Loss::OwnerDead,
    };
    let seen = LostBinding::new(earlier, loss).replaced_by(&later.binding);
    let state_loss = match fault {
        SendFault::OwnerDraining => seen,
        _ => later.state_loss.or(seen),
    };
    ResolvedBinding {
        binding: later.binding,
        state_loss,
    }
}
