//! Workers that wait for news: the clients blocked in WORKER.WAIT.
//!
//! A client waits from its command until one of four things happens: there is news for its worker, its time-out, its
//! end (a disconnect, a kill, a role change), or another WAIT of the same worker. In all cases but its end it is
//! *woken*: handed back to the server, which asks for its reply a moment later. What it is told is taken from the
//! mailbox only then, so news is not lost with a client that went away in between.
//!
//! Time-outs are kept here and passed by the tick, for the server loses the reply of a client that is woken and times
//! out in one turn of its loop.
//!
//! Invariants: a blocked client is handed back to the server exactly once, by dropping its [`BlockedClient`], also
//! after its end; of one worker at most one client waits.

use std::collections::{BTreeMap, HashMap};

use mooring_session::limits::NEWS_BATCH_MAX;
use mooring_session::names::WorkerId;
use mooring_session::news::NewsItem;
use mooring_session::time::{Millis, Monotonic};

use crate::ffi::{BlockedClient, BlockedId, Context};
use crate::module::Module;
use crate::reply;

/// One that waits.
struct Waiter {
    client: BlockedClient,
    /// Its time-out.
    until: Monotonic,
}

/// The clients that wait.
#[derive(Default)]
pub(crate) struct Waiting {
    by_worker: BTreeMap<WorkerId, Waiter>,
    /// Whose client each is: those that wait, and those that were woken and have not replied yet.
    workers: HashMap<BlockedId, WorkerId>,
}

impl Waiting {
    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.by_worker.len()
    }

    fn block(&mut self, worker: &WorkerId, waiter: Waiter) {
        self.workers.insert(waiter.client.id(), worker.clone());
        // The one before is dropped here, and so woken.
        self.by_worker.insert(worker.clone(), waiter);
    }

    /// Wakes the worker's client, if it waits.
    fn wake(&mut self, worker: &WorkerId) {
        drop(self.by_worker.remove(worker));
    }

    /// The client needs no answer any more, or gets it now: hands it back if that was not done, and says whose it is.
    fn release(&mut self, client: BlockedId) -> Option<WorkerId> {
        let worker = self.workers.remove(&client)?;
        let waiter = self.by_worker.get(&worker);
        let waits = waiter.is_some_and(|waiter| waiter.client.id() == client);
        if waits {
            self.wake(&worker);
        }
        Some(worker)
    }
}

/// Answers with the news there is, or makes the client wait for some.
pub(crate) fn wait(module: &mut Module, context: &Context, worker: &WorkerId, timeout: Millis) {
    let items = take(module, worker);
    if !items.is_empty() || context.denies_blocking() {
        reply::news(context, &items);
        return;
    }
    let until = module.monotonic().plus(timeout);
    match context.block_client() {
        Some(client) => module.waiting.block(worker, Waiter { client, until }),
        None => reply::news(context, &[]),
    }
}

/// The client is awake: its reply is due.
pub(crate) fn wake(module: &mut Module, context: &Context, client: BlockedId) {
    let worker = module.waiting.release(client);
    // Where another client of the same worker waits, the news is for that one: this one may be a connection that the
    // worker has given up.
    let worker = worker.filter(|worker| !module.waiting.by_worker.contains_key(worker));
    let items = worker.map_or_else(Vec::new, |worker| take(module, &worker));
    reply::news(context, &items);
}

/// An operator ends the client's wait: its reply is due.
pub(crate) fn time_out(module: &mut Module, context: &Context, client: BlockedId) {
    wake(module, context, client);
}

/// The client is gone.
pub(crate) fn forsake(module: &mut Module, client: BlockedId) {
    module.waiting.release(client);
}

/// Wakes who has waited for as long as it wanted to.
pub(crate) fn pass_deadlines(module: &mut Module, mono: Monotonic) {
    let waiting = &mut module.waiting.by_worker;
    waiting.retain(|_, waiter| mono < waiter.until);
}

/// Wakes who has news: called at the end of every command and every tick.
pub(crate) fn serve(module: &mut Module) {
    while let Some(worker) = module.news.pop_fresh() {
        module.waiting.wake(&worker);
    }
}

/// Takes the worker's news, without the turns that have passed on meanwhile. From now on the others' leases run. None
/// means that the mailbox is empty, however many turns in front of other news had passed on.
fn take(module: &mut Module, worker: &WorkerId) -> Vec<NewsItem> {
    let mono = module.monotonic();
    loop {
        let mut items = module.news.take(worker, NEWS_BATCH_MAX);
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
