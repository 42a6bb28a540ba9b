//! What is to be cleaned up: tombstones that still hold something.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use super::Index;
use super::entry::Entry;
use super::interner::Symbol;
use super::orders::{Due, Moment};
use super::slab::Slot;
use crate::context::Liveness;
use crate::limits::{DUE_EXAMINED_MAX, LEASE_MAX};
use crate::names::WorkerId;
use crate::record::Standing;
use crate::time::Timestamp;

/// Who wants to clean up, and when.
pub struct Reaper<'a> {
    /// The worker.
    pub worker: &'a WorkerId,
    /// Who is alive.
    pub workers: &'a dyn Liveness,
    /// The wall clock.
    pub now: Timestamp,
    /// How many keys it takes.
    pub count: usize,
}

impl Index {
    /// Keys of records that are expired or ended and hold bindings or content, which nobody is cleaning up or
    /// initialising. What is owned is named to its owner while that lives, and to anybody when it is dead. The reaper's
    /// own come first, then what nobody owns, then those of the dead; of each, what nobody has tried to clean up yet, and
    /// then whose last lease ended first. `admits` may leave out others.
    ///
    /// A session that expired since the last [`advance`](Self::advance) is not named yet. After the wall clock stepped
    /// back, one that was leased by the earlier time may be named late, by [`LEASE_MAX`] at most.
    #[must_use]
    pub fn due(&self, reaper: &Reaper<'_>, admits: impl FnMut(&[u8]) -> bool) -> Vec<&[u8]> {
        let mut search = Search {
            index: self,
            reaper,
            own: self.directory.worker(reaper.worker),
            admits,
            named: BTreeSet::new(),
            keys: Vec::new(),
            examined: 0,
        };
        if search.own.is_some() {
            search.look_at(search.own);
        }
        search.look_at(None);
        let mut last = None;
        while let Some(owner) = search.owner_after(last) {
            search.examined += 1;
            if !search.is_alive(owner) {
                search.look_at(Some(owner));
            }
            last = Some(owner);
        }
        search.keys
    }
}

struct Search<'i, 'r, A> {
    index: &'i Index,
    reaper: &'r Reaper<'r>,
    own: Option<Symbol>,
    admits: A,
    named: BTreeSet<Slot>,
    keys: Vec<&'i [u8]>,
    examined: usize,
}

impl<'i, A: FnMut(&[u8]) -> bool> Search<'i, '_, A> {
    fn is_over(&self) -> bool {
        self.keys.len() >= self.reaper.count || self.examined >= DUE_EXAMINED_MAX
    }

    /// The next owner of anything that is to be cleaned up, unless the search is over.
    fn owner_after(&self, last: Option<Symbol>) -> Option<Symbol> {
        if self.is_over() {
            return None;
        }
        let behind = Due {
            owner: last,
            leased_until: Moment::MAX,
            slot: Slot::MAX,
        };
        let mut rest = self.index.orders.due.range((Excluded(behind), Unbounded));
        rest.next().and_then(|due| due.owner)
    }

    /// Names what has this owner. A lease that ends further ahead than any lease lasts was given by a clock that has
    /// stepped back since, and holds nobody up.
    fn look_at(&mut self, owner: Option<Symbol>) {
        let due = &self.index.orders.due;
        let from = |leased_until| Due {
            owner,
            leased_until,
            slot: 0,
        };
        let to = |leased_until| Due {
            owner,
            leased_until,
            slot: Slot::MAX,
        };
        let now = self.reaper.now;
        let over = from(Moment::default())..=to(now.into());
        let impossible = from(Moment::from(now.plus(LEASE_MAX)).after())..=to(Moment::MAX);
        for place in due.range(over).chain(due.range(impossible)) {
            if self.is_over() {
                return;
            }
            self.examine(place.slot);
        }
    }

    fn examine(&mut self, slot: Slot) {
        self.examined += 1;
        let Some(entry) = self.index.entries.get(slot) else {
            return;
        };
        let is_due = entry.standing_at(self.reaper.now) != Standing::Active
            && self.may_clean(entry)
            && (self.admits)(&entry.key);
        if is_due && self.named.insert(slot) {
            self.keys.push(&entry.key);
        }
    }

    /// Whether the reaper is among the owners, or all of them are dead.
    fn may_clean(&self, entry: &Entry) -> bool {
        let mut owners = entry.bindings.iter().filter_map(|binding| binding.owner);
        owners.clone().any(|owner| Some(owner) == self.own)
            || owners.all(|owner| !self.is_alive(owner))
    }

    fn is_alive(&self, owner: Symbol) -> bool {
        let name = self.index.directory.workers.text(owner);
        let worker = name.and_then(|name| WorkerId::parse(name.as_bytes()).ok());
        worker.is_some_and(|worker| self.reaper.workers.is_alive(&worker))
    }
}
