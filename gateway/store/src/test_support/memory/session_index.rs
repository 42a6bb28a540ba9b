//! What memory has about all sessions together: their index, and the latest moves.
//!
//! Invariant: every record that is written or dropped is reported here, so the index is always complete.

use std::cell::RefCell;

use mooring_session::context::{Node, PrincipalSessions, RecordChange};
use mooring_session::index::{Departures, Index, PrefixId, Prefixes, Seed};
use mooring_session::names::{InstanceName, Principal, ServerName};
use mooring_session::record::Record;
use mooring_session::time::{Monotonic, Timestamp};

use crate::key::{Family, SessionKey};
use crate::queues::Queues;

/// The index of the sessions of one store's prefix. Each family counts by itself.
#[derive(Debug)]
pub(super) struct SessionIndex {
    /// Behind a `RefCell` because a question about what is held lets the index follow the clock.
    index: RefCell<Index>,
    departures: Departures,
    /// None for a prefix that no key can have, and so there are no sessions.
    families: Option<Prefixes>,
}

/// The memory, asked from within the command over one record.
pub(super) struct MemoryNode<'a> {
    pub(super) session_index: &'a SessionIndex,
    pub(super) queues: &'a Queues,
    pub(super) key: &'a SessionKey,
    pub(super) now: Timestamp,
    pub(super) mono: Monotonic,
}

impl SessionIndex {
    pub(super) fn new(prefix: &str) -> Self {
        let heads = Family::heads(prefix);
        Self {
            index: RefCell::new(Index::new(Seed(rand::random()))),
            departures: Departures::default(),
            families: Prefixes::new(heads.iter().map(String::as_bytes)).ok(),
        }
    }

    fn family_of(&self, key: &[u8]) -> Option<PrefixId> {
        self.families.as_ref()?.of(key)
    }

    /// The index, to be asked about many sessions.
    pub(super) fn index(&mut self) -> &mut Index {
        self.index.get_mut()
    }

    /// Notes what a transition left under the key.
    pub(super) fn note(
        &mut self,
        key: &SessionKey,
        record: Option<&Record>,
        written: RecordChange,
        now: Timestamp,
    ) {
        let key = key.secret().as_bytes();
        let family = self.family_of(key);
        let index = self.index.get_mut();
        match (record, family) {
            (Some(record), Some(family)) => match written {
                RecordChange::Nothing => {}
                RecordChange::Lifetime => index.slide(key, &record.lifetime, now),
                RecordChange::Record | RecordChange::Removed => index.put(family, key, record, now),
            },
            _ => index.remove(key),
        }
    }

    /// Notes that a session was dropped.
    pub(super) fn forget(&mut self, key: &SessionKey) {
        self.index.get_mut().remove(key.secret().as_bytes());
    }

    /// Notes a use, written or not.
    pub(super) fn note_use(&mut self, key: &SessionKey, now: Timestamp) {
        let index = self.index.get_mut();
        if index.follows_uses() {
            index.note_use(key.secret().as_bytes(), now);
        }
    }

    /// Notes that a session was moved away from an instance.
    pub(super) fn note_departure(
        &mut self,
        server: &ServerName,
        instance: &InstanceName,
        mono: Monotonic,
    ) {
        self.departures.note(server, instance, mono);
    }
}

impl Node for MemoryNode<'_> {
    fn fullness(&self, server: &ServerName, instance: &InstanceName) -> u64 {
        let bound = self.session_index.index.borrow().bound_to(server, instance);
        let departures = &self.session_index.departures;
        bound.saturating_add(departures.fullness(server, instance, self.mono))
    }

    fn held_by(&self, principal: &Principal) -> Option<PrincipalSessions> {
        let key = self.key.secret().as_bytes();
        let family = self.session_index.family_of(key)?;
        let mut index = self.session_index.index.borrow_mut();
        Some(index.held(principal, family, key, self.now))
    }

    fn holds_turn(&self, server: Option<&ServerName>) -> bool {
        self.queues.holds(self.key, server)
    }
}
