//! One step on a session: what it reads, and what the rules decide on that. [`attempts`](super::attempts) reads and writes.
//!
//! Invariant: a step that needs what was not read says so, and its decision is not used.

use std::cell::Cell;
use std::collections::BTreeMap;

use mooring_session::context::{Context, Liveness, Node, PrincipalSessions, RecordChange};
use mooring_session::events::EventMailboxes;
use mooring_session::index::Departures;
use mooring_session::names::{InstanceName, Principal, ServerName};
use mooring_session::record::Record;
use mooring_session::refusal::{Busy, Refusal};
use mooring_session::time::{Millis, Monotonic, Timestamp};
use mooring_session::turns::{TurnContext, TurnLimits, Turns};
use mooring_session::{SessionPlace, StepProgress, Tuning};

use crate::key::SessionKey;
use crate::transition::{SettledScope, Transition, movable_binding};

/// Most queues advanced at once.
const ADVANCED_MAX: usize = 256;
/// The module's defaults.
pub(super) const LIMITS: TurnLimits = TurnLimits {
    queue_max: 256,
    lease_max: Millis::new(5_000),
};

/// What a step reads besides the record.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads {
    /// The turns and the watches.
    pub(super) turns: bool,
    /// The floor of the numbers of new records.
    pub(super) floor: bool,
    /// The load of these instances.
    pub(super) instances: Option<(ServerName, Vec<InstanceName>)>,
    /// The sessions of this principal.
    pub(super) principal: Option<Principal>,
    /// The heartbeats, even if they were read a moment ago.
    pub(super) gateways: bool,
}

/// What was read, and what is decided on it.
pub(super) struct Step<'a> {
    pub(super) key: &'a SessionKey,
    pub(super) now: Timestamp,
    pub(super) mono: Monotonic,
    pub(super) slot: Option<Record>,
    pub(super) workers: &'a dyn Liveness,
    pub(super) floor: u64,
    pub(super) place: SessionPlace,
    pub(super) turns: Option<(Turns, EventMailboxes)>,
    /// What was decided needs the turns, which were not read.
    pub(super) needs_turns: Cell<bool>,
    /// What is written depends on the record, changed or not.
    pub(super) depends_on_record: bool,
    pub(super) written: RecordChange,
    pub(super) fullness: BTreeMap<InstanceName, u64>,
    pub(super) held: Option<PrincipalSessions>,
    pub(super) departures: &'a Departures,
    pub(super) departed: Option<(ServerName, InstanceName)>,
}

/// The facts of a step that a rule may ask for.
struct StepNode<'a, 'b>(&'a Step<'b>);

impl Node for StepNode<'_, '_> {
    fn fullness(&self, server: &ServerName, instance: &InstanceName) -> u64 {
        let bound = self.0.fullness.get(instance).copied().unwrap_or_default();
        bound.saturating_add(self.0.departures.fullness(server, instance, self.0.mono))
    }

    fn held_by(&self, _principal: &Principal) -> Option<PrincipalSessions> {
        self.0.held.clone()
    }

    fn holds_turn(&self, server: Option<&ServerName>) -> bool {
        match &self.0.turns {
            Some((turns, _)) => turns.holds(&self.0.place, server, self.0.mono),
            None => {
                self.0.needs_turns.set(true);
                true
            }
        }
    }
}

impl Step<'_> {
    /// Decides a transition, and notes what it settles.
    pub(super) fn decide<T: Transition>(&mut self, request: &T) -> Result<T::Reply, Refusal> {
        let before = movable_binding(request, self.slot.as_ref());
        let mut slot = self.slot.take();
        let tuning = Tuning::default();
        let context = Context {
            now: self.now,
            floor: self.floor,
            tuning: &tuning,
            workers: self.workers,
            node: &StepNode(self),
        };
        let decided = request.decide(&mut slot, self.key.secret().as_bytes(), &context);
        self.slot = slot;
        if matches!(decided, Err(Refusal::Busy(Busy::Turn))) {
            // It is soon idle, unless its calls run.
            let place = self.place.clone();
            self.with_turns(|turns, context| turns.recall_session(&place, context.events));
        }
        let decided = decided?;
        self.written = self.written.max(decided.written);
        let reply = decided.reply;
        let after = movable_binding(request, self.slot.as_ref());
        let mut settled = request.settled_scope(&reply);
        if let (Some(server), Some((epoch, instance))) = (request.moved_server(), before)
            && after.as_ref().is_none_or(|(now, _)| *now != epoch)
        {
            settled = SettledScope::Server(server);
            if after.is_none_or(|(_, now)| now != instance) {
                self.departed = Some((server.clone(), instance));
            }
        }
        let waiter = request.claim_waiter(&reply);
        if waiter.is_none() && settled == SettledScope::Nothing {
            return Ok(reply);
        }
        let place = self.place.clone();
        // If the claim is settled in between, no event would follow.
        self.depend_on_record();
        self.with_turns(|turns, context| {
            if let Some(waiter) = waiter {
                let until = Monotonic::from_ms(waiter.lapses_at.unix_ms());
                context
                    .events
                    .watch(waiter.worker, &place, waiter.server, until);
            }
            match settled {
                SettledScope::Nothing => {}
                SettledScope::Server(server) => context.events.settle(&place, server),
                SettledScope::Session => {
                    context.events.settle_session(&place);
                    turns.drop_session(&place);
                }
            }
        });
        Ok(reply)
    }

    /// Works on the turns of the session. None if they were not read; then the step is done again with them.
    pub(super) fn with_turns<R>(
        &mut self,
        work: impl FnOnce(&mut Turns, &mut TurnContext<'_>) -> R,
    ) -> Option<R> {
        let Some((turns, events)) = &mut self.turns else {
            self.needs_turns.set(true);
            return None;
        };
        let mut context = TurnContext {
            now: self.now,
            mono: self.mono,
            limits: LIMITS,
            workers: self.workers,
            events,
        };
        Some(work(turns, &mut context))
    }

    /// What is written is right only if the record is still as it was read.
    pub(super) const fn depend_on_record(&mut self) {
        self.depends_on_record = true;
    }

    /// The session in the queues.
    pub(super) const fn place(&self) -> &SessionPlace {
        &self.place
    }

    /// Does what is due in the queues, as the module does at its ticks.
    pub(super) fn advance(&mut self) {
        let mono = self.mono;
        self.with_turns(|turns, context| {
            while turns.advance(context, ADVANCED_MAX) == StepProgress::More {}
            let workers = context.workers;
            while context.events.advance(mono, workers, ADVANCED_MAX) == StepProgress::More {}
        });
    }
}
