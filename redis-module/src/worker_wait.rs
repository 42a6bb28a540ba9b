//! WORKER.WAIT: clients that are blocked until there is news for their worker. While `mooring.quiesce` is on nobody is.
//!
//! A client waits from its command until one of four things happens: there is news for its worker, its time-out, its
//! end (a disconnect, a kill, a role change), or another WAIT of the same worker. In all cases but its end it is
//! *woken*: handed back to the server, which asks for its reply a moment later. What it is told is taken from the
//! mailbox only then, so news is not lost with a client that went away in between.
//!
//! Time-outs are kept here and passed by the tick, for the server loses the reply of a client that is woken and times
//! out in one turn of its loop.

use mooring_session::SessionPlace;
use mooring_session::limits::NEWS_BATCH_MAX;
use mooring_session::names::WorkerId;
use mooring_session::news::NewsItem;
use mooring_session::time::Millis;

use crate::failure::Failure;
use crate::ffi::{BlockedId, Context, OwnedText};
use crate::module::Module;
use crate::reply;
use crate::settings;

/// Answers with the news there is, or makes the client wait for some.
///
/// # Errors
/// `ERR` where it would have to wait while `mooring.quiesce` is on. An empty answer would be asked for again at once.
pub(crate) fn wait(
    module: &mut Module,
    context: &Context,
    worker: &WorkerId,
    timeout: Millis,
) -> Result<(), Failure> {
    let items = take(module, context, worker);
    if !items.is_empty() || context.denies_blocking() {
        reply::news(context, &items);
        return Ok(());
    }
    if settings::QUIESCE.get() {
        return Err(Failure::Quiesced);
    }
    let until = module.monotonic().plus(timeout);
    match context.block_client() {
        Some(client) => module.blocked_clients.block(worker, client, until),
        None => reply::news(context, &[]),
    }
    Ok(())
}

/// The client is awake, or an operator ended its wait: its reply is due.
pub(crate) fn wake(module: &mut Module, context: &Context, client: BlockedId) {
    let worker = module.blocked_clients.release(client);
    // Where another client of the same worker waits, the news is for that one: this one may be a connection that the
    // worker has given up.
    let worker = worker.filter(|worker| !module.blocked_clients.has(worker));
    let items = worker.map_or_else(Vec::new, |worker| take(module, context, &worker));
    reply::news(context, &items);
}

/// The client is gone.
pub(crate) fn forsake(module: &mut Module, client: BlockedId) {
    module.blocked_clients.release(client);
}

/// Wakes who has news: called at the end of every command and every tick.
pub(crate) fn serve(module: &mut Module) {
    while let Some(worker) = module.news.pop_fresh() {
        module.blocked_clients.wake(&worker);
    }
}

/// Takes the worker's news, without the turns that have passed on meanwhile. What the caller's ACL does not let it read
/// stays for the worker itself. From now on the others' leases run. None means that the mailbox is empty, however many turns in front of
/// other news had passed on.
fn take(module: &mut Module, context: &Context, worker: &WorkerId) -> Vec<NewsItem> {
    let mono = module.monotonic();
    let reader = context.reader();
    let may_tell = |session: &SessionPlace| reader.may_read(OwnedText::new(&session.key).text());
    loop {
        let mut items = module.news.take(worker, NEWS_BATCH_MAX, may_tell);
        if items.is_empty() {
            return items;
        }
        items.retain(|item| match item {
            NewsItem::Turn {
                session,
                server,
                ticket,
                turn,
            } => module.turns.pick_up(session, server, ticket, *turn, mono),
            NewsItem::Withdrawn { .. } | NewsItem::Settled { .. } => true,
        });
        if !items.is_empty() {
            return items;
        }
    }
}
