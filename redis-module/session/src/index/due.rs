//! The tombstones that need cleanup because they still hold something.
//!
//! Invariant: one call examines a bounded number of tombstones, and every tombstone is examined eventually. If there
//! are more, and the first ones do not match, the next call continues after them.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Included, Unbounded};

use super::Index;
use super::directory::Directory;
use super::entry::Entry;
use super::glob::Glob;
use super::interner::Symbol;
use super::orders::{Due, Moment, Orders};
use super::slab::{Slab, Slot};
use crate::context::Liveness;
use crate::limits::{DUE_EXAMINED_MAX, DUE_PATTERN_STEPS_MAX, LEASE_MAX};
use crate::names::WorkerId;
use crate::record::SessionState;
use crate::time::Timestamp;

/// The number of parts of a call's work. The reaper's own sessions take at most one part, so that every call examines
/// others as well.
const PARTS: usize = 2;

/// The request of REAP.
pub struct Reaper<'a> {
    /// The worker.
    pub worker: &'a WorkerId,
    /// Which workers are alive.
    pub workers: &'a dyn Liveness,
    /// The wall clock.
    pub now: Timestamp,
    /// The pattern of the keys; `None` for any key.
    pub pattern: Option<Glob>,
    /// The highest number of keys to return.
    pub count: usize,
}

impl Index {
    /// Keys of records that are expired or ended and hold bindings or content, without a live cleanup or claim. A
    /// session with owned bindings is returned to its owner only while the owner is alive, and to any worker once it is
    /// dead. The reaper's own sessions come first, then those without an owner, then those of dead owners. In each
    /// group, those without a lease come first, then those whose lease ended first. `admits` may exclude others.
    ///
    /// If a call reaches its limit, the next one for the same pattern, from any worker, continues after it. At the end
    /// the search starts over.
    ///
    /// A session that expired since the last [`advance`](Self::advance) is not returned yet. After the wall clock
    /// stepped back, a session that was leased before may be returned late, by at most [`LEASE_MAX`].
    #[must_use]
    pub fn due(&mut self, reaper: &Reaper<'_>, admits: impl FnMut(&[u8]) -> bool) -> Vec<&[u8]> {
        let Self {
            directory,
            entries,
            orders,
            rounds,
            ..
        } = self;
        let after = rounds.reached(&reaper.pattern);
        let search = Search {
            directory,
            entries,
            orders,
            reaper,
            own: directory.worker(reaper.worker),
            admits,
            named: BTreeSet::new(),
            keys: Vec::new(),
            examined: 0,
            steps: 0,
            parts: 1,
            reached: None,
        };
        let (keys, reached) = search.run(after);
        rounds.note(&reaper.pattern, reached);
        keys
    }
}

struct Search<'i, 'r, A> {
    directory: &'i Directory,
    entries: &'i Slab<Entry>,
    orders: &'i Orders,
    reaper: &'r Reaper<'r>,
    own: Option<Symbol>,
    admits: A,
    named: BTreeSet<Slot>,
    keys: Vec<&'i [u8]>,
    examined: usize,
    /// The steps that matching keys has taken.
    steps: usize,
    /// How many parts of its work it may do.
    parts: usize,
    /// The last place that was examined.
    reached: Option<Due>,
}

impl<'i, A: FnMut(&[u8]) -> bool> Search<'i, '_, A> {
    /// Returns the keys, and where the next call continues; `None` to start over. A call that filled its count from the
    /// start also starts over: a returned session moves in the order when it is claimed, and leaves it when it is
    /// forgotten.
    fn run(mut self, after: Option<Due>) -> (Vec<&'i [u8]>, Option<Due>) {
        if self.own.is_some() {
            self.search_owner(self.own, None);
        }
        self.parts = PARTS;
        // The reaper's own sessions are examined in every call, so no call continues after them.
        self.reached = None;
        match after {
            None => self.search_owner(None, None),
            Some(due) => self.search_owner_unless_alive(due.owner, after),
        }
        let mut last = after.and_then(|due| due.owner);
        while let Some(owner) = self.owner_after(last) {
            self.examined += 1;
            self.search_owner_unless_alive(Some(owner), None);
            last = Some(owner);
        }
        let continues = self.is_exhausted() || (self.is_full() && after.is_some());
        (self.keys, self.reached.filter(|_| continues))
    }

    fn is_full(&self) -> bool {
        self.keys.len() >= self.reaper.count
    }

    fn is_over(&self) -> bool {
        self.is_full() || self.is_exhausted()
    }

    fn is_exhausted(&self) -> bool {
        self.examined >= DUE_EXAMINED_MAX / PARTS * self.parts
            || self.steps >= DUE_PATTERN_STEPS_MAX / PARTS * self.parts
    }

    /// The next owner in the order, unless the search is over.
    fn owner_after(&self, last: Option<Symbol>) -> Option<Symbol> {
        if self.is_over() {
            return None;
        }
        let behind = Due::last_of(last);
        let mut rest = self.orders.due.range((Excluded(behind), Unbounded));
        rest.next().and_then(|due| due.owner)
    }

    fn search_owner_unless_alive(&mut self, owner: Option<Symbol>, after: Option<Due>) {
        if owner.is_some_and(|owner| self.is_alive(owner)) {
            self.reached = Some(Due::last_of(owner));
        } else {
            self.search_owner(owner, after);
        }
    }

    /// Examines the sessions of this owner, starting after `after`. A lease that ends further ahead than any lease
    /// lasts was granted before the clock stepped back, and is ignored.
    fn search_owner(&mut self, owner: Option<Symbol>, after: Option<Due>) {
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
        let over = (from(Moment::default()), to(now.into()));
        let impossible = (
            from(Moment::from(now.plus(LEASE_MAX)).after()),
            to(Moment::MAX),
        );
        for (first, last) in [over, impossible] {
            let first = match after {
                Some(after) if after >= last => continue,
                Some(after) if after >= first => Excluded(after),
                _ => Included(first),
            };
            for place in self.orders.due.range((first, Included(last))) {
                if self.is_over() {
                    return;
                }
                self.reached = Some(*place);
                self.examine(place.slot);
            }
        }
    }

    fn examine(&mut self, slot: Slot) {
        self.examined += 1;
        let Some(entry) = self.entries.get(slot) else {
            return;
        };
        let is_due = entry.state_at(self.reaper.now) != SessionState::Active
            && self.may_clean(entry)
            && self.is_wanted(entry)
            && (self.admits)(&entry.key);
        if is_due && self.named.insert(slot) {
            self.keys.push(&entry.key);
        }
    }

    fn is_wanted(&mut self, entry: &Entry) -> bool {
        let pattern = self.reaper.pattern.as_ref();
        pattern.is_none_or(|pattern| pattern.matches_counting(&entry.key, &mut self.steps))
    }

    /// Whether the reaper is one of the owners, or all of them are dead.
    fn may_clean(&self, entry: &Entry) -> bool {
        let mut owners = entry.bindings.iter().filter_map(|binding| binding.owner);
        owners.clone().any(|owner| Some(owner) == self.own)
            || owners.all(|owner| !self.is_alive(owner))
    }

    fn is_alive(&self, owner: Symbol) -> bool {
        let name = self.directory.workers.text(owner);
        let worker = name.and_then(|name| WorkerId::parse(name.as_bytes()).ok());
        worker.is_some_and(|worker| self.reaper.workers.is_alive(&worker))
    }
}
