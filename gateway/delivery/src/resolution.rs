//! Resolving: from a session and a server to the binding for its calls. An unbound server is bound, another gateway's
//! claim is waited for, and a lost binding is moved by one of the gateways that notice, whose result the others adopt.
//!
//! Invariants: a claim is initialized at most once at each epoch; an upstream session that the store refused to record is
//! deleted; a claim that fails at its instances is dropped or expires at once. The state alone determines the task.

use std::mem;
use std::time::{Duration, Instant};

use mooring_session::Refusal;
use mooring_session::limits::LEASE_MIN;
use mooring_session::names::{InstanceName, Token, UpstreamSession};
use mooring_session::refusal::Stale;
use mooring_session::rules::{BindReply, Ownership, RebindReply};
use mooring_session::view::BindingView;

use crate::facts::{Errors, Facts, OnLoss};
use crate::lookup::{BindingLookup, look_up};
use crate::loss::{Loss, LostBinding, StateLoss};
use crate::task::{Claim, InitializeFailure, ResolveFailure, ResolvedBinding, Task, TaskOutcome};

/// First and longest interval of checks of another attempt's claim, if the store reports no events.
const POLL_FIRST: Duration = Duration::from_millis(2);
/// See [`POLL_FIRST`].
const POLL_MAX: Duration = Duration::from_millis(100);
/// The interval if the store reports events: for lost events, and for claims whose lease expires.
const BACKSTOP: Duration = Duration::from_secs(1);

/// Which claim a token is for.
#[derive(Clone, Copy, Debug)]
enum ClaimKind {
    /// BIND: the session has not used the server.
    First,
    /// REBIND of the lost binding.
    Lost,
}

#[derive(Debug)]
enum State<E: Errors> {
    Routing,
    Watching,
    Waiting,
    DrawingToken(ClaimKind),
    Binding(Token),
    RenewingAtOwner,
    Rebinding(Token),
    DiscardingPrevious(UpstreamSession),
    Initializing,
    Confirming(Option<UpstreamSession>),
    DiscardingNew(E::Store),
    MovingClaim,
    GivingUp(ResolveFailure<E>),
    Restoring(BindingView),
    EndingSession,
    Ended(Result<ResolvedBinding, ResolveFailure<E>>),
}

/// The state of one resolution.
#[derive(Debug)]
pub struct Resolution<E: Errors> {
    on_loss: OnLoss,
    /// The session is being opened: the claim is its first, and is not shared with other attempts.
    is_opening: bool,
    state: State<E>,
    claim: Option<Claim>,
    /// Whether the claim comes from BIND: no state was ever behind it.
    is_first_claim: bool,
    untried: Vec<InstanceName>,
    /// The loss that is being recovered.
    lost: Option<LostBinding>,
    /// The first loss of this resolution, which is the one that is reported to the client.
    first_lost: Option<LostBinding>,
    /// Whether a live owner was asked to renew its connection.
    has_asked_owner: bool,
    /// Whether the claim is the first to follow one that never had state: the record has no loss to report either.
    had_no_state: bool,
    gives_up_at: Option<Instant>,
    is_watching: bool,
    receives_events: bool,
    pause: Duration,
}

impl<E: Errors> Resolution<E> {
    fn new(on_loss: OnLoss, state: State<E>) -> Self {
        Self {
            on_loss,
            is_opening: false,
            state,
            claim: None,
            is_first_claim: false,
            untried: Vec::new(),
            lost: None,
            first_lost: None,
            has_asked_owner: false,
            had_no_state: false,
            gives_up_at: None,
            is_watching: false,
            receives_events: false,
            pause: POLL_FIRST,
        }
    }

    /// The binding for a session's calls; creates, adopts or moves it if needed.
    #[must_use]
    pub fn resolve(on_loss: OnLoss) -> Self {
        Self::new(on_loss, State::Routing)
    }

    /// The same, from what a route has found.
    pub(crate) fn found(
        found: BindingLookup,
        on_loss: OnLoss,
        facts: &Facts<'_>,
        now: Instant,
    ) -> Self {
        let mut resolution = Self::resolve(on_loss);
        resolution.continue_from(found, facts, now);
        resolution
    }

    /// The first binding of a session at a server. Fails with `ClaimPending` if another attempt has the claim, or takes it.
    #[must_use]
    pub fn open() -> Self {
        Self {
            is_opening: true,
            ..Self::new(OnLoss::Recover, State::DrawingToken(ClaimKind::First))
        }
    }

    /// Moves a lost binding, or adopts it if another gateway has moved it.
    #[must_use]
    pub fn recover(lost: LostBinding, on_loss: OnLoss, facts: &Facts<'_>) -> Self {
        let mut resolution = Self::resolve(on_loss);
        resolution.recover_from(lost, facts);
        resolution
    }

    /// The result, once there is one. The machine must not be used after that.
    pub fn take_result(&mut self) -> Option<Result<ResolvedBinding, ResolveFailure<E>>> {
        match &self.state {
            State::Ended(_) => match mem::replace(&mut self.state, State::Routing) {
                State::Ended(result) => Some(result),
                _ => None,
            },
            _ => None,
        }
    }

    /// What to do next. `None` once there is a [result](Self::take_result).
    #[must_use]
    pub fn task(&self, facts: &Facts<'_>) -> Option<Task<'_>> {
        Some(match &self.state {
            State::Routing => Task::Route(facts.route()),
            State::Watching => Task::WatchClaim,
            State::Waiting => Task::AwaitClaim(match self.receives_events {
                true => BACKSTOP,
                false => self.pause,
            }),
            State::DrawingToken(_) => Task::DrawToken,
            State::Binding(token) => Task::Bind(Box::new(facts.bind(token))),
            State::RenewingAtOwner => Task::RenewAtOwner(self.lost.as_ref()?),
            State::Rebinding(token) => {
                Task::Rebind(Box::new(facts.rebind(self.lost.as_ref()?, token)))
            }
            State::DiscardingPrevious(upstream_session) => Task::DiscardPrevious {
                instance: &self.lost.as_ref()?.instance,
                upstream_session,
            },
            State::Initializing => Task::Initialize(self.claim.as_ref()?),
            State::Confirming(upstream_session) => Task::Confirm(Box::new(
                facts.confirm(self.claim.as_ref()?, upstream_session.clone()),
            )),
            State::DiscardingNew(_) => Task::DiscardNew(self.claim.as_ref()?),
            State::MovingClaim => {
                let moved = facts.move_claim(self.claim.as_ref()?, &self.untried);
                Task::Rebind(Box::new(moved))
            }
            State::GivingUp(_) => {
                let claim = self.claim.as_ref()?;
                // A moved binding's claim expires at once: the next attempt must see that there was an earlier binding,
                // and tell the client that its state is lost. BIND by the holder renews the lease, to the minimum.
                match self.is_first_claim {
                    true => Task::Unbind(Box::new(facts.unbind(claim))),
                    false => Task::LetLapse(Box::new(facts.renew_claim(&claim.token, LEASE_MIN))),
                }
            }
            State::Restoring(binding) => Task::Restore {
                binding,
                lost: self.lost.as_ref(),
            },
            State::EndingSession => Task::EndSession,
            State::Ended(_) => return None,
        })
    }

    /// Continues after the task. An outcome of another task changes nothing.
    pub fn handle(&mut self, outcome: TaskOutcome<E>, facts: &Facts<'_>, now: Instant) {
        let state = mem::replace(&mut self.state, State::Routing);
        match (state, outcome) {
            (State::Routing, TaskOutcome::Routed(Ok(routed))) => {
                self.continue_from(look_up(routed, self.on_loss, facts), facts, now);
            }
            (State::Watching, TaskOutcome::Woken { receives_events }) => {
                self.receives_events = receives_events;
            }
            (State::Waiting, TaskOutcome::Woken { receives_events }) => {
                self.receives_events = receives_events;
                self.pause = self.pause.saturating_mul(2).min(POLL_MAX);
            }
            (State::DrawingToken(ClaimKind::First), TaskOutcome::Drawn(_))
                if facts.instances.candidates().is_empty() =>
            {
                self.fail(ResolveFailure::Parked);
            }
            (State::DrawingToken(kind), TaskOutcome::Drawn(token)) => {
                self.state = match kind {
                    ClaimKind::First => State::Binding(token),
                    ClaimKind::Lost => State::Rebinding(token),
                };
            }
            (State::Binding(token), TaskOutcome::Bound(Ok(bound))) => {
                self.bound(bound, token, facts)
            }
            (State::RenewingAtOwner, TaskOutcome::Done) => self.adopt(),
            (State::Rebinding(token), TaskOutcome::Rebound(Ok(rebound))) => {
                self.rebound(rebound, token, facts);
            }
            // A live peer has taken it over meanwhile, or it is not bound any more.
            (State::Rebinding(_), TaskOutcome::Rebound(Err(error)))
                if matches!(
                    E::refusal(&error),
                    Some(Refusal::Owned(_) | Refusal::Stale(Stale::Binding))
                ) =>
            {
                self.adopt();
            }
            (State::DiscardingPrevious(_), TaskOutcome::Done) => self.state = State::Initializing,
            (State::Initializing, TaskOutcome::Initialized(Ok(upstream_session))) => {
                self.state = State::Confirming(upstream_session);
            }
            (State::Initializing, TaskOutcome::Initialized(Err(failure))) => {
                self.not_initialized(failure);
            }
            (State::Confirming(_), TaskOutcome::Confirmed(Ok(binding))) => {
                self.state = State::Restoring(binding);
            }
            // The store may have confirmed it, and a connection that the record names must not be missing. Otherwise the
            // claim lapses, and the next connection replaces this one. The client of a session that is being opened never
            // learns its id.
            (State::Confirming(_), TaskOutcome::Confirmed(Err(error)))
                if facts.ownership == Ownership::Owned
                    && E::refusal(&error).is_none()
                    && !self.is_opening =>
            {
                self.fail(ResolveFailure::Store(error));
            }
            (State::Confirming(_), TaskOutcome::Confirmed(Err(error))) => {
                self.state = State::DiscardingNew(error);
            }
            (State::DiscardingNew(error), TaskOutcome::Done) => match E::refusal(&error) {
                Some(Refusal::Stale(_)) => self.claim_lost(),
                _ => self.fail(ResolveFailure::Store(error)),
            },
            (State::MovingClaim, TaskOutcome::Rebound(Ok(rebound))) => self.claim_moved(rebound),
            (State::GivingUp(failure), TaskOutcome::Done) => self.fail(failure),
            (State::Restoring(binding), TaskOutcome::Done) => self.end_with(binding, None),
            (State::EndingSession, TaskOutcome::Done) => self.fail(ResolveFailure::LostByPolicy),
            (
                State::Routing | State::Binding(_) | State::Rebinding(_) | State::MovingClaim,
                TaskOutcome::Routed(Err(error))
                | TaskOutcome::Bound(Err(error))
                | TaskOutcome::Rebound(Err(error)),
            ) => self.fail(ResolveFailure::Store(error)),
            (state, _) => self.state = state,
        }
    }

    fn fail(&mut self, failure: ResolveFailure<E>) {
        self.state = State::Ended(Err(failure));
    }

    fn continue_from(&mut self, found: BindingLookup, facts: &Facts<'_>, now: Instant) {
        match found {
            BindingLookup::Ready(ResolvedBinding {
                binding,
                state_loss,
            }) => self.end_with(binding, state_loss),
            BindingLookup::Lost(_) if self.on_loss == OnLoss::GiveUp => {
                self.fail(ResolveFailure::Lost)
            }
            // What it was asked for did not help. It gets as long as any claim, in which it may also be found to have died.
            BindingLookup::Lost(lost)
                if self.has_asked_owner && lost.is_renewed_by_owner(facts) =>
            {
                self.lost = Some(lost);
                self.wait_for_claim(facts, now);
            }
            BindingLookup::Lost(lost) => self.recover_from(lost, facts),
            BindingLookup::Unbound => {
                self.lost = None;
                self.state = State::DrawingToken(ClaimKind::First);
            }
            BindingLookup::Claimed => self.wait_for_claim(facts, now),
        }
    }

    /// Ends with a binding, which tells of the first loss, or else of one that was found in the record.
    fn end_with(&mut self, binding: BindingView, recorded: Option<StateLoss>) {
        let state_loss = match &self.first_lost {
            // A lapsed claim may have had no state to lose. This attempt knows if it has moved the claim, else the record.
            Some(lost)
                if lost.loss == Loss::ClaimLapsed && (self.had_no_state || self.lost.is_none()) =>
            {
                recorded
            }
            // The same binding may be of use after all: its owner was only late.
            Some(lost) => lost.replaced_by(&binding).or(recorded),
            None => recorded,
        };
        self.state = State::Ended(Ok(ResolvedBinding {
            binding,
            state_loss,
        }));
    }

    /// Waits for another attempt's claim, as long as an attempt and its answer may take. After joining the watchers, no
    /// event is missed; events since the last query are found by asking again at once.
    fn wait_for_claim(&mut self, facts: &Facts<'_>, now: Instant) {
        let longest = Duration::from_millis(facts.claim_lease.get()) + facts.answer_timeout;
        let gives_up_at = *self.gives_up_at.get_or_insert_with(|| now + longest);
        if now >= gives_up_at {
            self.fail(ResolveFailure::ClaimPending);
        } else if self.is_watching {
            self.state = State::Waiting;
        } else {
            self.is_watching = true;
            self.state = State::Watching;
        }
    }

    fn recover_from(&mut self, lost: LostBinding, facts: &Facts<'_>) {
        let is_claim = lost.loss == Loss::ClaimLapsed;
        self.state = if facts.ends_on_loss && !is_claim {
            State::EndingSession
        } else if lost.is_renewed_by_owner(facts) {
            self.has_asked_owner = true;
            State::RenewingAtOwner
        } else {
            State::DrawingToken(ClaimKind::Lost)
        };
        if self.first_lost.is_none() {
            self.first_lost = Some(lost.clone());
        }
        self.lost = Some(lost);
    }

    /// Takes the binding after another gateway has handled the loss.
    fn adopt(&mut self) {
        self.lost = None;
        self.had_no_state = false;
        self.gives_up_at = None;
        self.pause = POLL_FIRST;
        self.state = State::Routing;
    }

    fn bound(&mut self, bound: BindReply, token: Token, facts: &Facts<'_>) {
        if !bound.won {
            self.claim_lost();
            return;
        }
        self.is_first_claim = true;
        self.initialize(bound.binding, token, facts);
        self.state = State::Initializing;
    }

    fn rebound(&mut self, rebound: RebindReply, token: Token, facts: &Facts<'_>) {
        if !rebound.won {
            self.adopt();
            return;
        }
        // A lapsed claim that was never confirmed, not even since it was seen to have lapsed.
        let had_no_state = rebound.binding.rebinds <= 1 && rebound.previous.is_none();
        self.is_first_claim = false;
        if let (Some(lost), Some(first)) = (&self.lost, &self.first_lost) {
            self.had_no_state = had_no_state && lost.epoch == first.epoch;
        }
        let previous = rebound
            .previous
            .filter(|_| self.is_left_behind(&rebound.binding, facts));
        self.initialize(rebound.binding, token, facts);
        self.state = previous.map_or(State::Initializing, State::DiscardingPrevious);
    }

    /// Whether the previous upstream session is to be deleted at the lost instance: it answers, or a late CONFIRM has just
    /// made it there.
    fn is_left_behind(&self, moved: &BindingView, facts: &Facts<'_>) -> bool {
        (self.lost.as_ref()).is_some_and(|lost| {
            let is_there = match lost.loss {
                Loss::SessionUnknown | Loss::MovedByOperator => true,
                Loss::ClaimLapsed => moved.rebinds <= 1,
                _ => false,
            };
            is_there && facts.instances.contains(&lost.instance)
        })
    }

    /// Holds the claim, whose instance is the first to be tried.
    fn initialize(&mut self, binding: BindingView, token: Token, facts: &Facts<'_>) {
        self.untried = facts.instances.move_targets();
        self.untried.retain(|name| *name != binding.instance);
        self.claim = Some(Claim { binding, token });
    }

    fn not_initialized(&mut self, failure: InitializeFailure<E>) {
        self.state = match failure {
            InitializeFailure::Unprepared(failure) => State::GivingUp(failure),
            InitializeFailure::Refused(error) => State::GivingUp(ResolveFailure::Handshake(error)),
            InitializeFailure::Unanswered(error) if self.untried.is_empty() => {
                State::GivingUp(ResolveFailure::NoInstance(error))
            }
            InitializeFailure::Unanswered(_) => State::MovingClaim,
        };
    }

    fn claim_moved(&mut self, rebound: RebindReply) {
        match &mut self.claim {
            // A store that has lost writes may answer with an earlier claim of this attempt, which was initialized.
            Some(claim) if rebound.won && rebound.binding.epoch > claim.binding.epoch => {
                claim.binding = rebound.binding;
                let tried = &claim.binding.instance;
                self.untried.retain(|name| name != tried);
                self.state = State::Initializing;
            }
            _ => self.claim_lost(),
        }
    }

    /// Another attempt has the claim. Its result is adopted; a session that is being opened has no other attempt.
    fn claim_lost(&mut self) {
        self.claim = None;
        if self.is_opening {
            self.fail(ResolveFailure::ClaimPending);
        } else if self.lost.is_some() {
            self.adopt();
        } else {
            self.state = State::Routing;
        }
    }
}
