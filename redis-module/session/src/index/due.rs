//! What is to be cleaned up: tombstones that still hold something.
//!
//! Invariant: one call looks at a bounded number of tombstones, and none of them is out of reach for it. Where there
//! are more than that, and those that come first are not what is asked for, the next call goes on behind them.

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

/// Into how many parts a call's work is divided. The reaper's own take one of them at most, so that the others are
/// looked at in every call.
const PARTS: usize = 2;

/// Who wants to clean up, what, and when.
pub struct Reaper<'a> {
    /// The worker.
    pub worker: &'a WorkerId,
    /// Who is alive.
    pub workers: &'a dyn Liveness,
    /// The wall clock.
    pub now: Timestamp,
    /// What the keys look like that it takes; none for any.
    pub pattern: Option<Glob>,
    /// How many keys it takes.
    pub count: usize,
}

impl Index {
    /// Keys of records that are expired or ended and hold bindings or content, which nobody is cleaning up or
    /// initializing. What is owned is named to its owner while that lives, and to anybody when it is dead. The reaper's
    /// own come first, then what nobody owns, then those of the dead; of each, what nobody has tried to clean up yet,
    /// and then whose last lease ended first. `admits` may leave out others.
    ///
    /// Where a call has looked at as much as it may, the next one for the same pattern goes on behind that, whoever
    /// asks, and from the front again when it has come to the end.
    ///
    /// A session that expired since the last [`advance`](Self::advance) is not named yet. After the wall clock stepped
    /// back, one that was leased by the earlier time may be named late, by [`LEASE_MAX`] at most.
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
    /// What it took to match keys.
    steps: usize,
    /// How many parts of its work it may do.
    parts: usize,
    /// What was looked at last.
    reached: Option<Due>,
}

impl<'i, A: FnMut(&[u8]) -> bool> Search<'i, '_, A> {
    /// Answers with the keys, and where the next call goes on: nowhere for the front. A call that found all that it
    /// wanted at the front leaves what it named there: it is gone when it is cleaned, and elsewhere when that is tried.
    fn run(mut self, after: Option<Due>) -> (Vec<&'i [u8]>, Option<Due>) {
        if self.own.is_some() {
            self.look_at(self.own, None);
        }
        self.parts = PARTS;
        // The reaper's own are looked at in every call, and are nothing to go on behind.
        self.reached = None;
        match after {
            None => self.look_at(None, None),
            Some(due) => self.look_at_unless_alive(due.owner, after),
        }
        let mut last = after.and_then(|due| due.owner);
        while let Some(owner) = self.owner_after(last) {
            self.examined += 1;
            self.look_at_unless_alive(Some(owner), None);
            last = Some(owner);
        }
        let goes_on = self.is_exhausted() || (self.is_full() && after.is_some());
        (self.keys, self.reached.filter(|_| goes_on))
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

    /// The next owner of anything that is to be cleaned up, unless the search is over.
    fn owner_after(&self, last: Option<Symbol>) -> Option<Symbol> {
        if self.is_over() {
            return None;
        }
        let behind = Due::last_of(last);
        let mut rest = self.orders.due.range((Excluded(behind), Unbounded));
        rest.next().and_then(|due| due.owner)
    }

    fn look_at_unless_alive(&mut self, owner: Option<Symbol>, after: Option<Due>) {
        if owner.is_some_and(|owner| self.is_alive(owner)) {
            self.reached = Some(Due::last_of(owner));
        } else {
            self.look_at(owner, after);
        }
    }

    /// Names what has this owner, behind `after`. A lease that ends further ahead than any lease lasts was given by a
    /// clock that has stepped back since, and holds nobody up.
    fn look_at(&mut self, owner: Option<Symbol>, after: Option<Due>) {
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

    /// Whether the reaper is among the owners, or all of them are dead.
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
