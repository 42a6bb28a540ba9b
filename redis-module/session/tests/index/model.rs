//! What an index has to answer, found by looking at every record there is.

use std::collections::{BTreeMap, BTreeSet};

use mooring_session::index::{Filter, IndexCounts, PrefixId, Reaper, StateCounts};
use mooring_session::limits::LEASE_MAX;
use mooring_session::names::{InstanceName, Principal, ServerName, WorkerId};
use mooring_session::record::{Binding, Phase, Record, SessionState};
use mooring_session::time::Timestamp;

use crate::sessions::prefix_of;

pub(crate) type Key = Vec<u8>;

/// A moment of use: its millisecond, and a number that tells uses of one millisecond apart.
pub(crate) type Use = (u64, u64);

#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) record: Record,
    used: Use,
    /// Whether it was active when last looked at.
    was_active: bool,
}

/// Sessions by state, bindings of active ones by server and instance, and those with an owner by that.
type SessionCounts = (
    StateCounts,
    BTreeMap<(String, String), u64>,
    BTreeMap<String, u64>,
);

/// Whose sessions a cap is asked about: a principal under a prefix.
type Holder = (Principal, PrefixId);

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) sessions: BTreeMap<Key, Session>,
    latest: Use,
    capped: BTreeSet<Holder>,
}

impl Model {
    pub(crate) fn put(&mut self, key: &[u8], record: Record, now: Timestamp) {
        let used = self.use_of(&record, now);
        let known = self.sessions.get(key);
        let session = Session {
            used: known.map_or(used, |known| known.used.max(used)),
            was_active: known.is_some_and(|known| known.was_active),
            record,
        };
        self.sessions.insert(key.to_vec(), session);
        self.forget_holders();
    }

    /// A use is the latest of all, whatever the clock says; what was used before stays where it was.
    fn use_of(&mut self, record: &Record, now: Timestamp) -> Use {
        let last_used_at = record.lifetime.last_used_at;
        if last_used_at == now && record.lifetime.state(now) == SessionState::Active {
            self.latest = self.next(now);
            return self.latest;
        }
        let used = (last_used_at.min(now).unix_ms(), 0);
        self.latest = self.latest.max(used);
        used
    }

    fn next(&self, now: Timestamp) -> Use {
        let (ms, number) = self.latest;
        (now.unix_ms(), 0).max((ms, number + 1))
    }

    pub(crate) fn note_use(&mut self, key: &[u8], now: Timestamp) {
        let next = self.next(now);
        if let Some(session) = self.sessions.get_mut(key)
            && self
                .capped
                .contains(&(session.record.principal.clone(), prefix_of(key)))
        {
            session.used = next;
            self.latest = next;
        }
    }

    /// Uses are noted of those who were asked about, and have had a session ever since.
    pub(crate) fn forget_holders(&mut self) {
        let sessions = self.sessions.iter();
        let holders: BTreeSet<Holder> = sessions
            .map(|(key, session)| (session.record.principal.clone(), prefix_of(key)))
            .collect();
        self.capped.retain(|holder| holders.contains(holder));
    }

    /// Whether any use is noted.
    pub(crate) fn follows_uses(&self) -> bool {
        !self.capped.is_empty()
    }

    /// A key is gone.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        self.sessions.remove(key);
        self.forget_holders();
    }

    /// The keys that have expired since the last look.
    pub(crate) fn expired(&mut self, now: Timestamp) -> BTreeSet<Key> {
        let mut expired = BTreeSet::new();
        for (key, session) in &mut self.sessions {
            let state = session.record.lifetime.state(now);
            if session.was_active && state == SessionState::Expired {
                expired.insert(key.clone());
            }
            session.was_active = state == SessionState::Active;
        }
        expired
    }

    pub(crate) fn counts(&self, now: Timestamp) -> IndexCounts {
        let mut counts = IndexCounts::default();
        for session in self.sessions.values() {
            match session.record.lifetime.state(now) {
                SessionState::Active => {
                    counts.active += 1;
                    counts.bindings_active += session.record.bindings.len() as u64;
                }
                SessionState::Expired => counts.expired += 1,
                SessionState::Ended => counts.ended += 1,
            }
        }
        counts
    }

    /// The uses of the principal's active sessions but one, by key.
    pub(crate) fn held(
        &mut self,
        principal: &Principal,
        prefix: PrefixId,
        except: &[u8],
        now: Timestamp,
    ) -> BTreeMap<Key, Use> {
        self.capped.insert((principal.clone(), prefix));
        self.forget_holders();
        let is_held = |key: &Key, record: &Record| {
            record.principal == *principal
                && prefix_of(key) == prefix
                && key != except
                && record.lifetime.state(now) == SessionState::Active
        };
        let held = self.sessions.iter();
        held.filter(|(key, session)| is_held(key, &session.record))
            .map(|(key, session)| (key.clone(), session.used))
            .collect()
    }

    pub(crate) fn bound_to(&self, to: &ServerName, at: &InstanceName, now: Timestamp) -> u64 {
        self.bindings(now)
            .filter(|(server, binding)| *server == to && binding.instance == *at)
            .count() as u64
    }

    pub(crate) fn driven_by(&self, worker: &WorkerId, now: Timestamp) -> u64 {
        self.bindings(now)
            .filter(|(_, binding)| binding.driver == *worker)
            .count() as u64
    }

    fn bindings(&self, now: Timestamp) -> impl Iterator<Item = (&ServerName, &Binding)> {
        self.sessions
            .values()
            .filter(move |session| session.record.lifetime.state(now) == SessionState::Active)
            .flat_map(|session| &session.record.bindings)
    }

    /// The counts of the sessions whose keys begin with this text.
    pub(crate) fn session_counts(&self, head: &[u8], now: Timestamp) -> SessionCounts {
        let (mut states, mut instances, mut owners) =
            (StateCounts::default(), BTreeMap::new(), BTreeMap::new());
        let sessions = self
            .sessions
            .iter()
            .filter(|(key, _)| key.starts_with(head));
        for (_, session) in sessions {
            match session.record.lifetime.state(now) {
                SessionState::Active => states.active += 1,
                SessionState::Expired => states.expired += 1,
                SessionState::Ended => states.ended += 1,
            }
            if session.record.lifetime.state(now) != SessionState::Active {
                continue;
            }
            for (server, binding) in &session.record.bindings {
                let place = (
                    server.as_str().to_owned(),
                    binding.instance.as_str().to_owned(),
                );
                *instances.entry(place).or_default() += 1;
                if let Some(owner) = &binding.owner {
                    *owners.entry(owner.as_str().to_owned()).or_default() += 1;
                }
            }
        }
        (states, instances, owners)
    }

    /// The keys that a filter admits, the earliest created first.
    pub(crate) fn admitted(&self, filter: &Filter, now: Timestamp) -> Vec<(u64, Key)> {
        let mut admitted: Vec<_> = self
            .sessions
            .iter()
            .filter(|(key, session)| filter.admits(key, &session.record, now))
            .map(|(key, session)| (session.record.lifetime.created_at.unix_ms(), key.clone()))
            .collect();
        admitted.sort();
        admitted
    }

    pub(crate) fn due(&self, reaper: &Reaper<'_>) -> BTreeSet<Key> {
        let due = self.sessions.iter();
        let is_wanted = |key: &[u8]| {
            let pattern = reaper.pattern.as_ref();
            pattern.is_none_or(|pattern| pattern.matches(key))
        };
        due.filter(|(key, session)| is_wanted(key) && is_due(&session.record, reaper))
            .map(|(key, _)| key.clone())
            .collect()
    }
}

fn is_due(record: &Record, reaper: &Reaper<'_>) -> bool {
    let owners: BTreeSet<_> = record
        .bindings
        .values()
        .filter_map(|binding| binding.owner.as_ref())
        .collect();
    let claims = record
        .bindings
        .values()
        .filter_map(|binding| match binding.phase {
            Phase::Claimed { lease_until } => Some(lease_until),
            Phase::Bound => None,
        });
    let cleaning = record.cleaning.iter().map(|cleaning| cleaning.lease_until);
    let leased_until = claims.chain(cleaning).max().unwrap_or_default();
    let is_leased = reaper.now < leased_until && leased_until <= reaper.now.plus(LEASE_MAX);
    record.lifetime.state(reaper.now) != SessionState::Active
        && (!record.bindings.is_empty() || record.content_hash.is_some())
        && !is_leased
        && (owners.contains(reaper.worker)
            || owners.iter().all(|owner| !reaper.workers.is_alive(owner)))
}
