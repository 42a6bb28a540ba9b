//! The events that workers wait for: turns granted or withdrawn, and settled claims.
//!
//! A worker has a mailbox from its first event until it takes the last one. `settled` only means "ask again", so a
//! mailbox holds at most one such event for each server of a session. Invariants: no decision depends on an event. The
//! number of mailboxes, of their events, of watches and of watchers is bounded. An event that finds no room is dropped:
//! a grant then passes on as one that was not picked up, a worker that waits for a claim asks again at its timeout, and
//! a withdrawn caller asks for its turn again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::context::Liveness;
use crate::limits::{MAILBOX_EVENTS_MAX, MAILBOXES_MAX, WATCHED_MAX, WATCHERS_MAX};
use crate::names::{ServerName, Token, WorkerId};
use crate::place::SessionPlace;
use crate::progress::StepProgress;
use crate::rotation::next_in_rotation;
use crate::spots::{SpotId, Spots};
use crate::time::Monotonic;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MailboxEvent {
    /// The turn that the worker asked for is granted.
    Turn {
        /// The session.
        session: Arc<SessionPlace>,
        /// The server.
        server: ServerName,
        /// The ticket of the caller that asked.
        ticket: Token,
        /// The turn's number.
        turn: u64,
    },
    /// A waiting call of the worker was withdrawn, because its client cancelled it.
    Withdrawn {
        /// The session.
        session: Arc<SessionPlace>,
        /// The server.
        server: ServerName,
        /// The ticket of the caller that waited.
        ticket: Token,
    },
    /// The claim or turn that the worker waits for at this server is settled: it asks again.
    Settled {
        /// The session.
        session: Arc<SessionPlace>,
        /// The server.
        server: ServerName,
    },
}

impl MailboxEvent {
    /// The session of the event.
    #[must_use]
    pub fn session(&self) -> &SessionPlace {
        match self {
            Self::Turn { session, .. }
            | Self::Withdrawn { session, .. }
            | Self::Settled { session, .. } => session,
        }
    }
}

/// The mailboxes of all workers, and which workers watch which claim.
#[derive(Debug, Default)]
pub struct EventMailboxes {
    boxes: BTreeMap<WorkerId, Mailbox>,
    /// Workers whose mailbox got an event since the last [`pop_fresh`](EventMailboxes::pop_fresh).
    fresh: BTreeSet<WorkerId>,
    watches: Spots<BTreeSet<WorkerId>>,
    watchers: usize,
    /// The worker whose liveness was last checked.
    checked: Option<WorkerId>,
}

#[derive(Debug, Default)]
struct Mailbox {
    /// Events for single tickets.
    tickets: VecDeque<MailboxEvent>,
    settled: BTreeSet<(Arc<SessionPlace>, ServerName)>,
}

impl Mailbox {
    fn len(&self) -> usize {
        self.tickets.len().saturating_add(self.settled.len())
    }

    /// Takes at most `max` events whose session the caller may read, and leaves the others in their order.
    fn take(&mut self, max: usize, may_read: impl Fn(&SessionPlace) -> bool) -> Vec<MailboxEvent> {
        let mut items = Vec::new();
        // Turns first: a grant lapses if it is not picked up, a settled claim stays settled.
        for item in std::mem::take(&mut self.tickets) {
            match items.len() < max && may_read(item.session()) {
                true => items.push(item),
                false => self.tickets.push_back(item),
            }
        }
        let room = max.saturating_sub(items.len());
        let settled = self
            .settled
            .extract_if(.., |(session, _)| may_read(session));
        let settled = settled.take(room);
        items.extend(settled.map(|(session, server)| MailboxEvent::Settled { session, server }));
        items
    }
}

impl EventMailboxes {
    /// No mailboxes and no watches.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Watches the binding at this server, of which the worker knows a claim or that it is delegated. The worker is
    /// notified when the binding changes, and at the latest at `until`, when the claim or the delegation lapses. Returns
    /// whether there was room for it.
    pub fn watch(
        &mut self,
        worker: &WorkerId,
        session: &SessionPlace,
        server: &ServerName,
        until: Monotonic,
    ) -> bool {
        let known = self.watches.find(session, server);
        let knows = |id| {
            let watch = self.watches.get(id);
            watch.is_some_and(|watch| watch.value.contains(worker))
        };
        let is_full = known.is_none() && self.watches.len() >= WATCHED_MAX;
        if is_full || self.watchers >= WATCHERS_MAX && !known.is_some_and(knows) {
            return false;
        }
        let id = known.unwrap_or_else(|| self.watches.insert(session, server, BTreeSet::default()));
        if let Some(watch) = self.watches.get_mut(id) {
            self.watchers += usize::from(watch.value.insert(worker.clone()));
        }
        self.watches.set_deadline(id, Some(until));
        true
    }

    /// The same for a turn or a route that is to be delegated. Claims have room of their own, because who waits for one
    /// waits for longer without its event.
    pub fn watch_delegation(
        &mut self,
        worker: &WorkerId,
        session: &SessionPlace,
        server: &ServerName,
        until: Monotonic,
    ) -> bool {
        let has_room = self.watches.len() <= WATCHED_MAX / 2 && self.watchers <= WATCHERS_MAX / 2;
        has_room && self.watch(worker, session, server, until)
    }

    /// The worker no longer watches the binding at this server.
    pub(crate) fn unwatch(
        &mut self,
        worker: &WorkerId,
        session: &SessionPlace,
        server: &ServerName,
    ) {
        let Some(id) = self.watches.find(session, server) else {
            return;
        };
        let Some(watch) = self.watches.get_mut(id) else {
            return;
        };
        let removed = watch.value.remove(worker);
        let is_empty = watch.value.is_empty();
        self.watchers = self.watchers.saturating_sub(usize::from(removed));
        if is_empty {
            self.watches.remove(id);
        }
    }

    /// The binding at this server has changed: notifies all its watchers.
    pub fn settle(&mut self, session: &SessionPlace, server: &ServerName) {
        if let Some(id) = self.watches.find(session, server) {
            self.notify_watchers(id);
        }
    }

    /// Who watches which binding of a session, and until when.
    #[must_use]
    pub fn watches_of(&self, session: &SessionPlace) -> Vec<(&ServerName, &WorkerId, Monotonic)> {
        let watches = self.watches.of_session(session).into_iter();
        watches
            .filter_map(|id| self.watches.get(id))
            .flat_map(|watch| {
                let until = watch.deadline().unwrap_or_default();
                let workers = watch.value.iter();
                workers.map(move |worker| (&watch.server, worker, until))
            })
            .collect()
    }

    /// The same for every server of a session that ended.
    pub fn settle_session(&mut self, session: &SessionPlace) {
        for id in self.watches.of_session(session) {
            self.notify_watchers(id);
        }
    }

    /// The same for every session of a database, or of all databases. The next steps of [`advance`](Self::advance)
    /// notify the watchers.
    pub fn settle_database(&mut self, database: Option<i32>) {
        let is_gone = |session: &SessionPlace| database.is_none_or(|gone| session.database == gone);
        for id in self.watches.of_sessions(is_gone) {
            self.watches.set_deadline(id, Some(Monotonic::default()));
        }
    }

    /// Posts an event that makes one worker ask again.
    pub fn post_settled(
        &mut self,
        worker: &WorkerId,
        session: &Arc<SessionPlace>,
        server: &ServerName,
    ) {
        if let Some(mailbox) = self.room_at(worker) {
            mailbox
                .settled
                .insert((Arc::clone(session), server.clone()));
        }
    }

    /// Posts an event for one ticket of a worker, or drops it if there is no room.
    pub(crate) fn post_to_ticket(&mut self, worker: &WorkerId, item: MailboxEvent) {
        if let Some(mailbox) = self.room_at(worker) {
            mailbox.tickets.push_back(item);
        }
    }

    /// Whether the worker has events.
    #[must_use]
    pub fn has(&self, worker: &WorkerId) -> bool {
        self.boxes.contains_key(worker)
    }

    /// Takes at most `max` events of the worker whose session the caller may read: those for tickets first, and of
    /// these the oldest. The others stay for a caller that may read them.
    pub fn take(
        &mut self,
        worker: &WorkerId,
        max: usize,
        may_read: impl Fn(&SessionPlace) -> bool,
    ) -> Vec<MailboxEvent> {
        let Some(mailbox) = self.boxes.get_mut(worker) else {
            return Vec::new();
        };
        let items = mailbox.take(max, may_read);
        if mailbox.len() == 0 {
            self.boxes.remove(worker);
            self.fresh.remove(worker);
        }
        items
    }

    /// A worker that got an event since it was last returned here. The store that blocks workers calls this until it
    /// returns `None`.
    pub fn pop_fresh(&mut self) -> Option<WorkerId> {
        self.fresh.pop_first()
    }

    /// When [`advance`](Self::advance) is due: when the first watched claim lapses.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        self.watches.next_deadline()
    }

    /// Notifies the watchers of lapsed claims, and drops the mailboxes of dead workers; at most `limit` of each.
    pub fn advance(
        &mut self,
        mono: Monotonic,
        workers: &dyn Liveness,
        limit: usize,
    ) -> StepProgress {
        self.drop_dead_mailboxes(workers, limit);
        for _ in 0..limit {
            let Some(id) = self.watches.due(mono) else {
                return StepProgress::Done;
            };
            self.notify_watchers(id);
        }
        StepProgress::More
    }

    fn drop_dead_mailboxes(&mut self, workers: &dyn Liveness, limit: usize) {
        let looked_at = next_in_rotation(&self.boxes, self.checked.as_ref(), limit);
        self.checked = looked_at.last().cloned();
        for worker in looked_at {
            if !workers.is_alive(&worker) {
                self.boxes.remove(&worker);
                self.fresh.remove(&worker);
            }
        }
    }

    fn notify_watchers(&mut self, id: SpotId) {
        let Some(watch) = self.watches.remove(id) else {
            return;
        };
        self.watchers = self.watchers.saturating_sub(watch.value.len());
        for worker in &watch.value {
            self.post_settled(worker, &watch.session, &watch.server);
        }
    }

    /// The worker's mailbox, if it has room for another event.
    fn room_at(&mut self, worker: &WorkerId) -> Option<&mut Mailbox> {
        if !self.boxes.contains_key(worker) {
            if self.boxes.len() >= MAILBOXES_MAX {
                return None;
            }
            self.boxes.insert(worker.clone(), Mailbox::default());
        }
        let mailbox = self.boxes.get_mut(worker)?;
        if mailbox.len() >= MAILBOX_EVENTS_MAX {
            return None;
        }
        self.fresh.insert(worker.clone());
        Some(mailbox)
    }
}
