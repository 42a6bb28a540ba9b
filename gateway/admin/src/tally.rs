//! How many sessions each instance and gateway has, counted over all active sessions.
//!
//! The store counts, or where it cannot, every active session is read; so a count is used for a while.
//!
//! Invariant: the memory of a count grows with the instances and gateways, not with the sessions.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::operator::Operator;
use super::words::SessionKind;
use mooring_session::names::WorkerId;
use mooring_session::record::SessionState;
use mooring_session::view::{BindingState, RecordView};
use mooring_store::{
    PAGE_MAX, SessionCounts, SessionKey, SessionQuery, Store, StoreError, unix_now_ms,
};

/// How long a count is used.
const USED_FOR: Duration = Duration::from_secs(5);
/// Most pages of the store that are counted of each kind: at least as many sessions as one store is made for.
const PAGES_MAX: usize = 4_000;

/// The counts of one moment.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    counted: Instant,
    pub(crate) counted_at_ms: u64,
    /// Whether every active session was counted.
    pub(crate) is_complete: bool,
    pub(crate) sessions: BTreeMap<SessionKind, u64>,
    /// By server and instance.
    pub(crate) instances: BTreeMap<(Box<str>, Box<str>), u64>,
    /// By the id of the owner.
    pub(crate) owned: BTreeMap<Box<str>, u64>,
    /// By server: bindings of clients' sessions, and sessions of code and agents.
    pub(crate) servers: BTreeMap<Box<str>, u64>,
    pub(crate) orphaned_bindings: u64,
}

impl Tally {
    async fn count(store: &Store) -> Result<Self, StoreError> {
        let mut tally = Self {
            counted: Instant::now(),
            counted_at_ms: unix_now_ms(),
            is_complete: true,
            sessions: BTreeMap::new(),
            instances: BTreeMap::new(),
            owned: BTreeMap::new(),
            servers: BTreeMap::new(),
            orphaned_bindings: 0,
        };
        for kind in SessionKind::ALL {
            match store.count(kind.family()).await? {
                Some(counts) => tally.add_counts(kind, &counts),
                None => tally.read_all(store, kind).await?,
            }
        }
        tally.counted = Instant::now();
        Ok(tally)
    }

    fn add_counts(&mut self, kind: SessionKind, counts: &SessionCounts) {
        self.is_complete &= counts.complete;
        let active = counts.active_sessions();
        if active > 0 {
            self.sessions.insert(kind, active);
        }
        if kind != SessionKind::Mcp {
            for (server, sessions) in &counts.active {
                *self.servers.entry(server.clone()).or_default() += sessions;
            }
            return;
        }
        for count in &counts.instances {
            let (server, instance) = (count.server.clone(), count.instance.clone());
            *self.servers.entry(server.clone()).or_default() += count.bindings;
            *self.instances.entry((server, instance)).or_default() += count.bindings;
        }
        for count in &counts.owners {
            let owner = count.worker.as_str().into();
            *self.owned.entry(owner).or_default() += count.bindings;
            if !count.alive {
                self.orphaned_bindings += count.bindings;
            }
        }
    }

    /// Counts the active sessions of a kind one by one.
    async fn read_all(&mut self, store: &Store, kind: SessionKind) -> Result<(), StoreError> {
        let mut query = SessionQuery {
            family: kind.family(),
            state: Some(SessionState::Active),
            count: PAGE_MAX,
            ..SessionQuery::default()
        };
        for _ in 0..PAGES_MAX {
            let page = store.list(&query).await?;
            self.is_complete &= page.complete;
            for (key, record) in &page.sessions {
                self.add(kind, key, record);
            }
            query.cursor = page.cursor;
            if query.cursor.is_none() {
                return Ok(());
            }
        }
        self.is_complete = false;
        Ok(())
    }

    fn add(&mut self, kind: SessionKind, key: &SessionKey, record: &RecordView) {
        *self.sessions.entry(kind).or_default() += 1;
        if kind != SessionKind::Mcp {
            // Its server is in its key, and it calls the gateway's own code.
            let server = key.place().split(':').next().unwrap_or_default();
            *self.servers.entry(server.into()).or_default() += 1;
            return;
        }
        for binding in &record.bindings {
            let server: Box<str> = binding.server.as_str().into();
            let instance = (server.clone(), binding.instance.as_str().into());
            *self.servers.entry(server).or_default() += 1;
            *self.instances.entry(instance).or_default() += 1;
            if let Some(owner) = &binding.owner {
                let owner = owner.worker.as_str().into();
                *self.owned.entry(owner).or_default() += 1;
            }
            if binding.state == BindingState::Orphaned {
                self.orphaned_bindings += 1;
            }
        }
    }

    /// The sessions at a server.
    pub(crate) fn of_server(&self, server: &str) -> u64 {
        self.servers.get(server).copied().unwrap_or_default()
    }

    /// The connections that a gateway owns: the one of this id, or all boots of this name.
    pub(crate) fn of_owner(&self, worker: &str) -> u64 {
        let is_named = |owner: &str| owner == worker || WorkerId::name_of(owner) == worker;
        let of = self.owned.iter().filter(|(owner, _)| is_named(owner));
        of.map(|(_, count)| count).sum()
    }

    /// The sessions of one instance of a server.
    pub(crate) fn of_instance(&self, server: &str, instance: &str) -> u64 {
        let of = self.instances.get(&(server.into(), instance.into()));
        of.copied().unwrap_or_default()
    }
}

impl Operator {
    /// The latest count, which may be a few seconds old.
    pub(crate) async fn tally(&self) -> Result<Tally, StoreError> {
        let mut last = self.cache.tally.lock().await;
        if let Some(tally) = &*last
            && tally.counted.elapsed() < USED_FOR
        {
            return Ok(tally.clone());
        }
        let tally = Tally::count(self.store()).await?;
        Ok(last.insert(tally).clone())
    }
}
