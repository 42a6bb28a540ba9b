//! What workers wait to hear: turns granted to them or withdrawn, and claims settled that they were told of.
//!
//! Every worker has a mailbox, from the first item for it until it takes the last. `settled` means "ask again" and no
//! more, so one such item for a spot says as much as ten. Invariants: nothing here is needed for a decision; every
//! mailbox and the number of them, every watch and the number of those has a bound. Where news finds no room it is not
//! told: a turn then passes on as one that was not picked up, who waits for a claim asks again at its time-out, and who
//! was withdrawn unheard asks for its turn anew.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::context::Liveness;
use crate::limits::{NEWS_BOXES_MAX, NEWS_ITEMS_MAX, WATCHED_MAX, WATCHERS_MAX};
use crate::names::{ServerName, Token, WorkerId};
use crate::place::SessionPlace;
use crate::progress::StepProgress;
use crate::rotation::next_in_rotation;
use crate::spots::{SpotId, Spots};
use crate::time::Monotonic;

/// One item of news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewsItem {
    /// The turn that the worker asked for is granted.
    Turn {
        /// Of which session.
        session: Arc<SessionPlace>,
        /// At which server.
        server: ServerName,
        /// Who among the worker's callers asked.
        ticket: Token,
        /// The turn's number.
        turn: u64,
    },
    /// A waiting call of the worker was withdrawn, because its client cancelled it.
    Withdrawn {
        /// Of which session.
        session: Arc<SessionPlace>,
        /// At which server.
        server: ServerName,
        /// Who among the worker's callers waited.
        ticket: Token,
    },
    /// What the worker waits for at this server has come to something: it asks again.
    Settled {
        /// Of which session.
        session: Arc<SessionPlace>,
        /// At which server.
        server: ServerName,
    },
}

impl NewsItem {
    /// The session that it is about.
    #[must_use]
    pub fn session(&self) -> &SessionPlace {
        match self {
            Self::Turn { session, .. }
            | Self::Withdrawn { session, .. }
            | Self::Settled { session, .. } => session,
        }
    }
}

/// The mailboxes of all workers, and who is to be told of which claim.
#[derive(Debug, Default)]
pub struct News {
    boxes: BTreeMap<WorkerId, Mailbox>,
    /// Workers whose mailbox had news put into it since they were last looked for.
    fresh: BTreeSet<WorkerId>,
    watches: Spots<BTreeSet<WorkerId>>,
    watchers: usize,
    /// The worker whose life was last checked.
    checked: Option<WorkerId>,
}

#[derive(Debug, Default)]
struct Mailbox {
    /// What is told to single tickets.
    tickets: VecDeque<NewsItem>,
    settled: BTreeSet<(Arc<SessionPlace>, ServerName)>,
}

impl Mailbox {
    fn len(&self) -> usize {
        self.tickets.len().saturating_add(self.settled.len())
    }

    /// Takes at most `max` items that may be told, and leaves the others in their order.
    fn take(&mut self, max: usize, may_tell: impl Fn(&SessionPlace) -> bool) -> Vec<NewsItem> {
        let mut items = Vec::new();
        // Turns first: a grant lapses if it is not picked up, a settled claim stays settled.
        for item in std::mem::take(&mut self.tickets) {
            match items.len() < max && may_tell(item.session()) {
                true => items.push(item),
                false => self.tickets.push_back(item),
            }
        }
        let room = max.saturating_sub(items.len());
        let settled = self
            .settled
            .extract_if(.., |(session, _)| may_tell(session));
        let settled = settled.take(room);
        items.extend(settled.map(|(session, server)| NewsItem::Settled { session, server }));
        items
    }
}

impl News {
    /// Nobody is to be told anything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Remembers that the worker was told of a claim at this server, and tells it when that is settled; at `until`,
    /// when the claim lapses, in any case.
    pub fn watch(
        &mut self,
        worker: &WorkerId,
        session: &SessionPlace,
        server: &ServerName,
        until: Monotonic,
    ) {
        let known = self.watches.find(session, server);
        if self.watchers >= WATCHERS_MAX || (known.is_none() && self.watches.len() >= WATCHED_MAX) {
            return;
        }
        let id = known.unwrap_or_else(|| self.watches.insert(session, server, BTreeSet::default()));
        if let Some(watch) = self.watches.get_mut(id) {
            self.watchers += usize::from(watch.value.insert(worker.clone()));
        }
        self.watches.set_deadline(id, Some(until));
    }

    /// The claim at this server came to an end, whichever: whoever was told of it is told.
    pub fn settle(&mut self, session: &SessionPlace, server: &ServerName) {
        if let Some(id) = self.watches.find(session, server) {
            self.tell_watchers(id);
        }
    }

    /// The same for every server of the session: it is over.
    pub fn settle_session(&mut self, session: &SessionPlace) {
        for id in self.watches.of_session(session) {
            self.tell_watchers(id);
        }
    }

    /// The same for every session of a database, or of all: with the next steps of [`advance`](Self::advance).
    pub fn settle_database(&mut self, database: Option<i32>) {
        let is_gone = |session: &SessionPlace| database.is_none_or(|gone| session.database == gone);
        for id in self.watches.of_sessions(is_gone) {
            self.watches.set_deadline(id, Some(Monotonic::default()));
        }
    }

    /// Tells one worker to ask again.
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

    /// Tells one worker what became of a ticket of its own. Where there is no room, it is not told.
    pub(crate) fn post_to_ticket(&mut self, worker: &WorkerId, item: NewsItem) {
        if let Some(mailbox) = self.room_at(worker) {
            mailbox.tickets.push_back(item);
        }
    }

    /// Whether there is anything for the worker.
    #[must_use]
    pub fn has(&self, worker: &WorkerId) -> bool {
        self.boxes.contains_key(worker)
    }

    /// Takes what there is for the worker and may be told, at most `max` items: what is told to tickets first, the oldest
    /// before the others. The rest stays for a caller to whom it may be told.
    pub fn take(
        &mut self,
        worker: &WorkerId,
        max: usize,
        may_tell: impl Fn(&SessionPlace) -> bool,
    ) -> Vec<NewsItem> {
        let Some(mailbox) = self.boxes.get_mut(worker) else {
            return Vec::new();
        };
        let items = mailbox.take(max, may_tell);
        if mailbox.len() == 0 {
            self.boxes.remove(worker);
            self.fresh.remove(worker);
        }
        items
    }

    /// A worker that has had news since it was last named here. Whoever lets workers wait calls this until there is
    /// none.
    pub fn pop_fresh(&mut self) -> Option<WorkerId> {
        self.fresh.pop_first()
    }

    /// When something is due: the earliest lapse of a claim that is watched.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        self.watches.next_deadline()
    }

    /// Tells of claims that lapsed, and drops the mailboxes of the dead; at most `limit` of each.
    pub fn advance(
        &mut self,
        mono: Monotonic,
        workers: &dyn Liveness,
        limit: usize,
    ) -> StepProgress {
        self.drop_the_dead(workers, limit);
        for _ in 0..limit {
            let Some(id) = self.watches.due(mono) else {
                return StepProgress::Done;
            };
            self.tell_watchers(id);
        }
        StepProgress::More
    }

    fn drop_the_dead(&mut self, workers: &dyn Liveness, limit: usize) {
        let looked_at = next_in_rotation(&self.boxes, self.checked.as_ref(), limit);
        self.checked = looked_at.last().cloned();
        for worker in looked_at {
            if !workers.is_alive(&worker) {
                self.boxes.remove(&worker);
                self.fresh.remove(&worker);
            }
        }
    }

    fn tell_watchers(&mut self, id: SpotId) {
        let Some(watch) = self.watches.remove(id) else {
            return;
        };
        self.watchers = self.watchers.saturating_sub(watch.value.len());
        for worker in &watch.value {
            self.post_settled(worker, &watch.session, &watch.server);
        }
    }

    /// The worker's mailbox, if another item fits.
    fn room_at(&mut self, worker: &WorkerId) -> Option<&mut Mailbox> {
        if !self.boxes.contains_key(worker) {
            if self.boxes.len() >= NEWS_BOXES_MAX {
                return None;
            }
            self.boxes.insert(worker.clone(), Mailbox::default());
        }
        let mailbox = self.boxes.get_mut(worker)?;
        if mailbox.len() >= NEWS_ITEMS_MAX {
            return None;
        }
        self.fresh.insert(worker.clone());
        Some(mailbox)
    }
}
