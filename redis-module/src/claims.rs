//! Notifications of claims and delegated routes: a worker that got the reply `claimed` gets an event in WORKER.WAIT once
//! the claim is settled, and one to which a route is delegated when the binding changes.
//!
//! The event only means that the worker should ask again: a superfluous one costs a round trip, a missing one costs a
//! timeout. No decision depends on it.

use mooring_session::SessionPlace;
use mooring_session::events::EventMailboxes;
use mooring_session::names::{ServerName, WorkerId};
use mooring_session::time::{Millis, Monotonic, Timestamp};
use mooring_session::view::{BindingState, BindingView};

use crate::module::Module;
use crate::moment::Moment;

/// Remembers until the claim lapses that the worker got the reply `claimed`.
pub(crate) fn watch(
    events: &mut EventMailboxes,
    moment: &Moment<'_>,
    worker: &WorkerId,
    server: &ServerName,
    until: Monotonic,
) {
    events.watch(worker, &place(moment), server, until);
}

/// Remembers until the delegation lapses that the route is delegated to the worker. Returns whether there was room for it.
pub(crate) fn watch_route(
    events: &mut EventMailboxes,
    moment: &Moment<'_>,
    worker: &WorkerId,
    server: &ServerName,
    until: Monotonic,
) -> bool {
    events.watch_delegation(worker, &place(moment), server, until)
}

/// The same for a worker whose BIND or REBIND returned the current binding, if that is a claim.
pub(crate) fn watch_binding(
    module: &mut Module,
    moment: &Moment<'_>,
    worker: &WorkerId,
    binding: &BindingView,
) {
    if binding.state == BindingState::Claimed {
        let until = module.monotonic().plus(left(moment, binding.lease_until));
        watch(&mut module.events, moment, worker, &binding.server, until);
    }
}

/// How much of a claim's lease is left.
pub(crate) fn left(moment: &Moment<'_>, lease_until: Option<Timestamp>) -> Millis {
    let until = lease_until.map_or(0, Timestamp::unix_ms);
    Millis::new(until.saturating_sub(moment.now.unix_ms()))
}

/// Notifies the watchers that the claim at this server is settled, or the binding has changed.
pub(crate) fn settle(module: &mut Module, moment: &Moment<'_>, server: &ServerName) {
    module.events.settle(&place(moment), server);
}

/// The session is wanted idle: recalls the turns of it that are delegated.
pub(crate) fn recall_turns(module: &mut Module, moment: &Moment<'_>) {
    (module.turns).recall_session(&place(moment), &mut module.events);
}

/// The session ended: settles its claims and removes its queues of turns.
pub(crate) fn settle_session(module: &mut Module, moment: &Moment<'_>) {
    module.drop_session(&place(moment));
}

fn place(moment: &Moment<'_>) -> SessionPlace {
    SessionPlace::new(moment.database, moment.key.as_bytes())
}
