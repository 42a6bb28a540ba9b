//! The names that the sessions of an index refer to, with counters for each.
//!
//! Invariant: a counter covers exactly the entries that were counted in and not out again, as they were then. To change
//! an entry, count it out before and in afterwards.

use super::entry::{BoundTo, Entry, EntryNames};
use super::interner::{Interner, Symbol};
use super::lookup::Seed;
use super::prefixes::PrefixId;
use crate::codec::{BorrowedBinding, BorrowedRecord};
use crate::names::{InstanceName, Principal, ServerName, WorkerId};
use crate::record::SessionState;

/// The principals, servers, instances and workers that entries name.
#[derive(Debug)]
pub(super) struct Directory {
    /// A principal is one name under each prefix.
    pub(super) principals: Interner<PrincipalCounts>,
    pub(super) servers: Interner<()>,
    /// An instance is one name under each server.
    pub(super) places: Interner<InstanceCounts>,
    pub(super) workers: Interner<WorkerCounts>,
    /// The number of principals whose uses are tracked.
    capped: usize,
}

/// The sessions of one principal under one prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PrincipalCounts {
    pub(super) active: u32,
    /// Whether a cap was ever checked, so that uses are tracked.
    is_capped: bool,
}

/// The bindings to one instance of one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InstanceCounts {
    /// Of active sessions.
    pub(super) live: u32,
    pub(super) all: u32,
}

/// The bindings of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WorkerCounts {
    /// Bindings of active sessions that it drives.
    pub(super) driven: u32,
    /// Bindings that it owns.
    pub(super) owned: u32,
}

/// The sessions of an index, and the bindings of the active ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexCounts {
    /// In use.
    pub active: u64,
    /// Idle past their TTL.
    pub expired: u64,
    /// Ended by a command.
    pub ended: u64,
    /// Bindings of the active ones.
    pub bindings_active: u64,
}

/// Whether an entry is counted in or out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    In,
    Out,
}

impl Count {
    pub(super) fn small(self, counter: &mut u32) {
        *counter = match self {
            Self::In => counter.saturating_add(1),
            Self::Out => counter.saturating_sub(1),
        };
    }

    pub(super) fn large(self, counter: &mut u64, by: u64) {
        *counter = match self {
            Self::In => counter.saturating_add(by),
            Self::Out => counter.saturating_sub(by),
        };
    }
}

impl Directory {
    pub(super) fn new(seed: Seed) -> Self {
        Self {
            principals: Interner::new(seed),
            servers: Interner::new(seed),
            places: Interner::new(seed),
            workers: Interner::new(seed),
            capped: 0,
        }
    }

    /// The names in the record, with a new reference to each.
    pub(super) fn acquire(&mut self, prefix: PrefixId, record: &BorrowedRecord<'_>) -> EntryNames {
        let bindings = record.bindings.iter();
        EntryNames {
            principal: (self.principals).acquire(prefix.tag(), record.principal),
            bindings: bindings.map(|binding| self.bind(binding)).collect(),
        }
    }

    /// Whether the entry refers to exactly the names in the record.
    pub(super) fn names_match(
        &self,
        entry: &Entry,
        prefix: PrefixId,
        record: &BorrowedRecord<'_>,
    ) -> bool {
        let mut bindings = entry.bindings.iter().zip(&record.bindings);
        (self.principals).is(entry.principal, prefix.tag(), record.principal)
            && entry.bindings.len() == record.bindings.len()
            && bindings.all(|(bound, binding)| self.is_bound(*bound, binding))
    }

    fn is_bound(&self, bound: BoundTo, binding: &BorrowedBinding<'_>) -> bool {
        let head = &binding.head;
        let is_owner = match (bound.owner, head.owner) {
            (Some(symbol), Some(owner)) => self.workers.is(symbol, 0, owner),
            (None, None) => true,
            _ => false,
        };
        let place_tag = self.places.tag(bound.place);
        is_owner
            && place_tag.is_some_and(|tag| {
                self.places.is(bound.place, tag, head.instance)
                    && (self.servers).is(Symbol::of_tag(tag), 0, binding.server)
            })
            && self.workers.is(bound.driver, 0, head.driver)
    }

    fn bind(&mut self, binding: &BorrowedBinding<'_>) -> BoundTo {
        let head = &binding.head;
        let server = self.servers.acquire(0, binding.server);
        BoundTo {
            place: self.places.acquire(server.tag(), head.instance),
            driver: self.workers.acquire(0, head.driver),
            owner: head.owner.map(|owner| self.workers.acquire(0, owner)),
        }
    }

    /// Releases the names that the entry refers to.
    pub(super) fn leave(&mut self, entry: &Entry) {
        if let Some(gone) = self.principals.release(entry.principal) {
            self.capped -= usize::from(gone.is_capped);
        }
        for binding in &entry.bindings {
            if let Some(server) = self.places.tag(binding.place) {
                self.servers.release(Symbol::of_tag(server));
            }
            self.places.release(binding.place);
            self.workers.release(binding.driver);
            if let Some(owner) = binding.owner {
                self.workers.release(owner);
            }
        }
    }

    /// Counts the entry in or out.
    pub(super) fn count(&mut self, entry: &Entry, counts: &mut IndexCounts, count: Count) {
        let is_active = entry.state == SessionState::Active;
        if is_active && let Some(holding) = self.principals.counts_mut(entry.principal) {
            count.small(&mut holding.active);
        }
        for binding in &entry.bindings {
            if let Some(load) = self.places.counts_mut(binding.place) {
                count.small(&mut load.all);
                if is_active {
                    count.small(&mut load.live);
                }
            }
            if is_active && let Some(duty) = self.workers.counts_mut(binding.driver) {
                count.small(&mut duty.driven);
            }
            let owner = binding
                .owner
                .and_then(|owner| self.workers.counts_mut(owner));
            if let Some(duty) = owner {
                count.small(&mut duty.owned);
            }
        }
        match entry.state {
            SessionState::Active => {
                count.large(&mut counts.active, 1);
                count.large(&mut counts.bindings_active, entry.bindings.len() as u64);
            }
            SessionState::Expired => count.large(&mut counts.expired, 1),
            SessionState::Ended => count.large(&mut counts.ended, 1),
        }
    }

    /// The memory of all names, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.principals.bytes() + self.servers.bytes() + self.places.bytes() + self.workers.bytes()
    }

    /// Tracks the principal's uses, until it has no session.
    pub(super) fn cap(&mut self, principal: Symbol) {
        if let Some(holding) = self.principals.counts_mut(principal) {
            self.capped += usize::from(!holding.is_capped);
            holding.is_capped = true;
        }
    }

    /// Whether the principal's uses are tracked.
    pub(super) fn is_capped(&self, principal: Symbol) -> bool {
        let holding = self.principals.counts(principal);
        holding.is_some_and(|holding| holding.is_capped)
    }

    /// Whether any principal's uses are tracked.
    pub(super) const fn has_caps(&self) -> bool {
        self.capped > 0
    }

    /// A principal's symbol under a prefix, if it has a session there.
    pub(super) fn principal(&self, prefix: PrefixId, principal: &Principal) -> Option<Symbol> {
        self.principals.find(prefix.tag(), principal.as_str())
    }

    /// An instance's symbol at a server, if anything is bound to it.
    pub(super) fn place(&self, server: &ServerName, instance: &InstanceName) -> Option<Symbol> {
        let server = self.servers.find(0, server.as_str())?;
        self.places.find(server.tag(), instance.as_str())
    }

    /// A worker's symbol, if it drives or owns anything.
    pub(super) fn worker(&self, worker: &WorkerId) -> Option<Symbol> {
        self.workers.find(0, worker.as_str())
    }
}
