//! A map from a session and a server to an entry with an optional deadline, for queues of turns and watches of claims.
//!
//! A *spot* is one server of one session. Invariant: an entry is in the map of ids, in the list of its session and, if
//! it has a deadline, in the order of deadlines; or in none of them. A session without entries takes no memory. All
//! maps are trees: a hash table would sometimes be copied as a whole within one command.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::names::ServerName;
use crate::place::SessionPlace;
use crate::time::Monotonic;

/// An entry's id. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SpotId(u64);

/// One entry.
#[derive(Debug)]
pub(crate) struct Spot<T> {
    pub(crate) session: Arc<SessionPlace>,
    pub(crate) server: ServerName,
    pub(crate) value: T,
    deadline: Option<Monotonic>,
}

impl<T> Spot<T> {
    /// When it is due.
    pub(crate) const fn deadline(&self) -> Option<Monotonic> {
        self.deadline
    }
}

/// The entries of all sessions.
#[derive(Debug)]
pub(crate) struct Spots<T> {
    spots: BTreeMap<SpotId, Spot<T>>,
    by_session: BTreeMap<Arc<SessionPlace>, Vec<(ServerName, SpotId)>>,
    deadlines: BTreeSet<(Monotonic, SpotId)>,
    ids_given: u64,
}

impl<T> Default for Spots<T> {
    fn default() -> Self {
        Self {
            spots: BTreeMap::new(),
            by_session: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            ids_given: 0,
        }
    }
}

impl<T> Spots<T> {
    pub(crate) fn len(&self) -> usize {
        self.spots.len()
    }

    pub(crate) fn find(&self, session: &SessionPlace, server: &ServerName) -> Option<SpotId> {
        let servers = self.by_session.get(session)?;
        let (_, id) = servers.iter().find(|(name, _)| name == server)?;
        Some(*id)
    }

    /// The entries of one session.
    pub(crate) fn of_session(&self, session: &SessionPlace) -> Vec<SpotId> {
        self.by_session
            .get(session)
            .map(|servers| servers.iter().map(|(_, id)| *id).collect())
            .unwrap_or_default()
    }

    /// The entries of the sessions that `admits` admits.
    pub(crate) fn of_sessions(&self, admits: impl Fn(&SessionPlace) -> bool) -> Vec<SpotId> {
        self.by_session
            .iter()
            .filter(|(session, _)| admits(session))
            .flat_map(|(_, servers)| servers.iter().map(|(_, id)| *id))
            .collect()
    }

    pub(crate) fn get(&self, id: SpotId) -> Option<&Spot<T>> {
        self.spots.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: SpotId) -> Option<&mut Spot<T>> {
        self.spots.get_mut(&id)
    }

    /// Adds an entry at a spot that has none.
    pub(crate) fn insert(
        &mut self,
        session: &SessionPlace,
        server: &ServerName,
        value: T,
    ) -> SpotId {
        self.ids_given = self.ids_given.wrapping_add(1);
        let id = SpotId(self.ids_given);
        let servers = self.by_session.entry(Arc::new(session.clone()));
        let session = Arc::clone(servers.key());
        servers.or_default().push((server.clone(), id));
        let spot = Spot {
            session,
            server: server.clone(),
            value,
            deadline: None,
        };
        self.spots.insert(id, spot);
        id
    }

    pub(crate) fn remove(&mut self, id: SpotId) -> Option<Spot<T>> {
        let spot = self.spots.remove(&id)?;
        if let Some(deadline) = spot.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        if let Entry::Occupied(mut servers) = self.by_session.entry(Arc::clone(&spot.session)) {
            servers.get_mut().retain(|(_, known)| *known != id);
            if servers.get().is_empty() {
                servers.remove();
            }
        }
        Some(spot)
    }

    /// Sets when the entry is due.
    pub(crate) fn set_deadline(&mut self, id: SpotId, deadline: Option<Monotonic>) {
        let Some(spot) = self.spots.get_mut(&id) else {
            return;
        };
        if spot.deadline == deadline {
            return;
        }
        if let Some(old) = std::mem::replace(&mut spot.deadline, deadline) {
            self.deadlines.remove(&(old, id));
        }
        if let Some(new) = deadline {
            self.deadlines.insert((new, id));
        }
    }

    /// The entry with the earliest deadline, if that has passed.
    pub(crate) fn due(&self, mono: Monotonic) -> Option<SpotId> {
        let (deadline, id) = self.deadlines.first()?;
        (*deadline <= mono).then_some(*id)
    }

    pub(crate) fn next_deadline(&self) -> Option<Monotonic> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }
}
