//! WORKER.WAIT: clients that are blocked until there are events for their worker. While `mooring.quiesce` is on, none
//! is blocked.
//!
//! A client is blocked from its command until one of four things happens: an event for its worker, its timeout, its end
//! (a disconnect, a kill, a role change), or another WAIT of the same worker. In all cases but its end it is *woken*:
//! returned to the server, which asks for its reply a moment later. Only then the events of the reply are taken from
//! the mailbox, so that no event is lost with a client that disconnects in between.
//!
//! Timeouts are kept here and checked by the tick, because the server loses the reply of a client that is woken and
//! times out in the same iteration of its loop.

use mooring_session::SessionPlace;
use mooring_session::events::MailboxEvent;
use mooring_session::limits::EVENTS_BATCH_MAX;
use mooring_session::names::WorkerId;
use mooring_session::time::Millis;

use crate::failure::Failure;
use crate::ffi::{BlockedId, ClientId, Context, OwnedText};
use crate::module::Module;
use crate::reply;
use crate::settings;

/// Replies with the pending events, or blocks the client until there are some.
///
/// # Errors
/// `ERR` if it would have to block while `mooring.quiesce` is on. After an empty reply, the worker would ask again at
/// once.
pub(crate) fn wait(
    module: &mut Module,
    context: &Context,
    worker: &WorkerId,
    timeout: Millis,
) -> Result<(), Failure> {
    let denies_blocking = context.denies_blocking();
    if !denies_blocking {
        let mono = module.monotonic();
        let connections = &mut module.event_connections;
        connections.note_wait(worker, context.client(), mono);
    }
    let items = take(module, context, worker);
    if !items.is_empty() || denies_blocking {
        reply::events(context, &items);
        return Ok(());
    }
    if settings::QUIESCE.get() {
        return Err(Failure::Quiesced);
    }
    let until = module.monotonic().plus(timeout);
    match context.block_client() {
        Some(client) => module.blocked_clients.block(worker, client, until),
        None => reply::events(context, &[]),
    }
    Ok(())
}

/// The client was woken, or an operator unblocked it: its reply is due.
pub(crate) fn wake(module: &mut Module, context: &Context, client: BlockedId) {
    let worker = module.blocked_clients.release(client);
    if let Some(worker) = &worker {
        let mono = module.monotonic();
        module.event_connections.note_seen(worker, mono);
    }
    // If another client of the same worker is blocked, the events are for that one: this one may be a connection that
    // the worker has abandoned.
    let worker = worker.filter(|worker| !module.blocked_clients.has(worker));
    let items = worker.map_or_else(Vec::new, |worker| take(module, context, &worker));
    reply::events(context, &items);
}

/// The client has disconnected.
pub(crate) fn on_client_gone(module: &mut Module, client: BlockedId) {
    module.blocked_clients.release(client);
}

/// The connection of a client has closed, whether or not the client was blocked. If its worker does not return in time,
/// the housekeeping ends its delegations.
pub(crate) fn on_disconnect(module: &mut Module, context: &Context, client: ClientId) {
    let mono = module.monotonic();
    let lost_at = module.event_connections.note_closed(client, mono);
    if let Some(lost_at) = lost_at.filter(|_| !settings::QUIESCE.get()) {
        module.tick_schedule.set_timer(context, mono, lost_at);
    }
}

/// Wakes the workers that have events: called at the end of every command and every tick.
pub(crate) fn serve(module: &mut Module) {
    while let Some(worker) = module.events.pop_fresh() {
        module.blocked_clients.wake(&worker);
    }
}

/// Takes the worker's events, without turns that have passed on in the meantime. Events of keys that the caller's ACL
/// does not let it read stay in the mailbox. The leases of the returned turns start now. An empty result means that
/// there are no further events, even if some turns had passed on.
fn take(module: &mut Module, context: &Context, worker: &WorkerId) -> Vec<MailboxEvent> {
    let mono = module.monotonic();
    let reader = context.reader();
    let may_read = |session: &SessionPlace| reader.may_read(OwnedText::new(&session.key).text());
    loop {
        let mut items = module.events.take(worker, EVENTS_BATCH_MAX, may_read);
        if items.is_empty() {
            return items;
        }
        items.retain(|item| match item {
            MailboxEvent::Turn {
                session,
                server,
                ticket,
                turn,
            } => module.turns.pick_up(session, server, ticket, *turn, mono),
            MailboxEvent::Withdrawn { .. } | MailboxEvent::Settled { .. } => true,
        });
        if !items.is_empty() {
            return items;
        }
    }
}
