//! The orders in which an index is read: sets of small tuples that end in a slot.
//!
//! Invariant: the place of an entry in each order follows from its fields, and only this file knows from which. To
//! change an entry, remove it before and insert it afterwards. While data is loaded, all orders are empty.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::entry::{Entry, UseRank};
use super::interner::Symbol;
use super::slab::{Slab, Slot};
use crate::record::SessionState;
use crate::session_digest::{DigestPrefix, SessionDigest};
use crate::time::Timestamp;

/// A moment in half the alignment, so that with a slot it takes twelve bytes and not sixteen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment([u32; 2]);

impl Moment {
    pub(super) const MAX: Self = Self([u32::MAX; 2]);

    /// The last moment before this one.
    fn before(self) -> Option<Self> {
        let unix_ms = Timestamp::from(self).unix_ms().checked_sub(1)?;
        Some(Timestamp::from_unix_ms(unix_ms).into())
    }

    /// The first moment after this one; the last one is its own.
    pub(super) fn after(self) -> Self {
        let unix_ms = Timestamp::from(self).unix_ms().saturating_add(1);
        Timestamp::from_unix_ms(unix_ms).into()
    }
}

impl From<Timestamp> for Moment {
    fn from(moment: Timestamp) -> Self {
        let ms = moment.unix_ms();
        Self([(ms >> 32) as u32, (ms & u64::from(u32::MAX)) as u32])
    }
}

impl From<Moment> for Timestamp {
    fn from(Moment([high, low]): Moment) -> Self {
        Self::from_unix_ms((u64::from(high) << 32) | u64::from(low))
    }
}

/// A place in an order of moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) moment: Moment,
    pub(super) slot: Slot,
}

impl Position {
    pub(super) const FIRST: Self = Self {
        moment: Moment([0; 2]),
        slot: 0,
    };

    /// The last place of a moment.
    pub(super) fn end_of(moment: Timestamp) -> Self {
        Self {
            moment: moment.into(),
            slot: Slot::MAX,
        }
    }

    /// The place just before this one; the first has none and is its own.
    pub(super) fn before(self) -> Self {
        if let Some(slot) = self.slot.checked_sub(1) {
            return Self { slot, ..self };
        }
        self.moment.before().map_or(self, |moment| Self {
            moment,
            slot: Slot::MAX,
        })
    }
}

/// A place among the sessions of one principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ByUse {
    /// Twice the principal's symbol; plus one for tombstones, which sort after the active sessions.
    line: u32,
    used: UseRank,
    pub(super) slot: Slot,
}

impl ByUse {
    /// The places of a principal's active sessions.
    pub(super) fn active(principal: Symbol) -> RangeInclusive<Self> {
        Self::places(Self::active_line(principal))
    }

    /// The places of its tombstones.
    pub(super) fn tombstones(principal: Symbol) -> RangeInclusive<Self> {
        Self::places(Self::tombstone_line(principal))
    }

    const fn active_line(principal: Symbol) -> u32 {
        // A symbol is a slot, and slots leave one bit free.
        principal.tag() << 1
    }

    const fn tombstone_line(principal: Symbol) -> u32 {
        Self::active_line(principal) | 1
    }

    fn places(line: u32) -> RangeInclusive<Self> {
        let first = Self {
            line,
            used: UseRank::FIRST,
            slot: 0,
        };
        let last = Self {
            line,
            used: UseRank::LAST,
            slot: Slot::MAX,
        };
        first..=last
    }

    fn of(slot: Slot, entry: &Entry) -> Self {
        let line = match entry.state {
            SessionState::Active => Self::active_line(entry.principal),
            SessionState::Expired | SessionState::Ended => Self::tombstone_line(entry.principal),
        };
        Self {
            line,
            used: entry.used,
            slot,
        }
    }
}

/// A place among the sessions that need cleanup: those without an owner first, then by owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    pub(super) owner: Option<Symbol>,
    /// The end of a lease on it, if there is one.
    pub(super) leased_until: Moment,
    pub(super) slot: Slot,
}

impl Due {
    /// The last place of an owner, or of the sessions without one.
    pub(super) const fn last_of(owner: Option<Symbol>) -> Self {
        Self {
            owner,
            leased_until: Moment::MAX,
            slot: Slot::MAX,
        }
    }
}

/// A place in the order of digests. In halves, so that with the slot it takes twelve bytes and not sixteen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ByDigest {
    halves: [u32; 2],
    pub(super) slot: Slot,
}

impl ByDigest {
    /// The places of the digests that begin so.
    pub(super) const fn places(prefix: DigestPrefix) -> RangeInclusive<Self> {
        let first = Self {
            halves: prefix.first.halves(),
            slot: 0,
        };
        let last = Self {
            halves: prefix.last.halves(),
            slot: Slot::MAX,
        };
        RangeInclusive::new(first, last)
    }

    fn of(slot: Slot, entry: &Entry) -> Self {
        Self {
            halves: SessionDigest::of_key(&entry.key).halves(),
            slot,
        }
    }
}

/// All orders of an index.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// All, by when they were created.
    pub(super) created: BTreeSet<Position>,
    /// All but the ended ones, by deadline.
    pub(super) deadlines: BTreeSet<Position>,
    /// All, by principal and use.
    pub(super) used: BTreeSet<ByUse>,
    /// All with bindings, by instance.
    pub(super) placed: BTreeSet<(Symbol, Slot)>,
    /// All with owned bindings, by owner.
    pub(super) owned: BTreeSet<(Symbol, Slot)>,
    /// All, by digest. The key of an entry never changes, so its place does not.
    pub(super) digests: BTreeSet<ByDigest>,
    /// Tombstones that hold something.
    pub(super) due: BTreeSet<Due>,
    /// Whether all orders stay empty, because data is being loaded.
    is_deferred: bool,
}

impl Orders {
    /// The estimated memory in bytes: nodes of a tree are half full after ascending insertions, and two thirds after others.
    pub(super) fn bytes(&self) -> usize {
        fn tree<T>(set: &BTreeSet<T>) -> usize {
            set.len() * size_of::<T>() * 2
        }
        tree(&self.created)
            + tree(&self.deadlines)
            + tree(&self.used)
            + tree(&self.placed)
            + tree(&self.owned)
            + self.digests.len() * size_of::<ByDigest>() * 3 / 2
            + tree(&self.due)
    }

    /// Keeps all orders empty until [`make_deferred`](Self::make_deferred).
    pub(super) const fn defer(&mut self) {
        self.is_deferred = true;
    }

    /// Whether the orders stay empty.
    pub(super) const fn is_deferred(&self) -> bool {
        self.is_deferred
    }

    /// Builds all orders from the entries, if they were deferred. Sorting once takes a fifth of the time of as many
    /// insertions.
    pub(super) fn make_deferred(&mut self, entries: &Slab<Entry>) {
        if !self.is_deferred {
            return;
        }
        let all = || (0..entries.end()).filter_map(|slot| Some((slot, entries.get(slot)?)));
        let mut due = Vec::new();
        all().for_each(|(slot, entry)| for_each_due(slot, entry, |place| due.push(place)));
        *self = Self {
            is_deferred: false,
            created: all().map(|(slot, entry)| created(slot, entry)).collect(),
            deadlines: all()
                .filter_map(|(slot, entry)| deadline_ahead(slot, entry))
                .collect(),
            used: all().map(|(slot, entry)| ByUse::of(slot, entry)).collect(),
            placed: all()
                .flat_map(|(slot, entry)| placed(slot, entry))
                .collect(),
            owned: all().flat_map(|(slot, entry)| owned(slot, entry)).collect(),
            digests: all()
                .map(|(slot, entry)| ByDigest::of(slot, entry))
                .collect(),
            due: due.into_iter().collect(),
        };
    }

    /// Inserts a new entry.
    pub(super) fn insert(&mut self, slot: Slot, entry: &Entry) {
        if self.is_deferred {
            return;
        }
        self.created.insert(created(slot, entry));
        self.digests.insert(ByDigest::of(slot, entry));
        self.used.insert(ByUse::of(slot, entry));
        self.deadlines.extend(deadline_ahead(slot, entry));
        self.insert_bindings(slot, entry);
        for_each_due(slot, entry, |due| {
            self.due.insert(due);
        });
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, slot: Slot, entry: &Entry) {
        self.created.remove(&created(slot, entry));
        self.digests.remove(&ByDigest::of(slot, entry));
        self.used.remove(&ByUse::of(slot, entry));
        if let Some(deadline) = deadline_ahead(slot, entry) {
            self.deadlines.remove(&deadline);
        }
        self.remove_bindings(slot, entry);
        for_each_due(slot, entry, |due| {
            self.due.remove(&due);
        });
    }

    /// Moves an entry to its places after a change.
    pub(super) fn replace(&mut self, slot: Slot, before: &Entry, after: &Entry) {
        if self.is_deferred {
            return;
        }
        exchange(
            &mut self.created,
            Some(created(slot, before)),
            Some(created(slot, after)),
        );
        exchange(
            &mut self.used,
            Some(ByUse::of(slot, before)),
            Some(ByUse::of(slot, after)),
        );
        exchange(
            &mut self.deadlines,
            deadline_ahead(slot, before),
            deadline_ahead(slot, after),
        );
        if before.bindings != after.bindings {
            self.remove_bindings(slot, before);
            self.insert_bindings(slot, after);
        }
        for_each_due(slot, before, |due| {
            self.due.remove(&due);
        });
        for_each_due(slot, after, |due| {
            self.due.insert(due);
        });
    }

    /// Moves an entry in the order of use only.
    pub(super) fn note_use(&mut self, slot: Slot, entry: &mut Entry, used: UseRank) {
        let before = ByUse::of(slot, entry);
        entry.used = used;
        if !self.is_deferred {
            exchange(&mut self.used, Some(before), Some(ByUse::of(slot, entry)));
        }
    }

    fn insert_bindings(&mut self, slot: Slot, entry: &Entry) {
        self.placed.extend(placed(slot, entry));
        self.owned.extend(owned(slot, entry));
    }

    fn remove_bindings(&mut self, slot: Slot, entry: &Entry) {
        for place in placed(slot, entry) {
            self.placed.remove(&place);
        }
        for place in owned(slot, entry) {
            self.owned.remove(&place);
        }
    }
}

/// Moves from one place to another, if they differ.
fn exchange<T: Ord>(order: &mut BTreeSet<T>, before: Option<T>, after: Option<T>) {
    if before != after {
        if let Some(before) = before {
            order.remove(&before);
        }
        order.extend(after);
    }
}

fn placed(slot: Slot, entry: &Entry) -> impl Iterator<Item = (Symbol, Slot)> {
    let bindings = entry.bindings.iter();
    bindings.map(move |binding| (binding.place, slot))
}

fn owned(slot: Slot, entry: &Entry) -> impl Iterator<Item = (Symbol, Slot)> {
    let owners = entry.bindings.iter().filter_map(|binding| binding.owner);
    owners.map(move |owner| (owner, slot))
}

/// The deadline of an entry that has not ended.
fn deadline_ahead(slot: Slot, entry: &Entry) -> Option<Position> {
    (entry.state != SessionState::Ended).then(|| deadline(slot, entry))
}

fn created(slot: Slot, entry: &Entry) -> Position {
    Position {
        moment: entry.created_at.into(),
        slot,
    }
}

/// The place of the entry among the deadlines.
pub(super) fn deadline(slot: Slot, entry: &Entry) -> Position {
    Position {
        moment: entry.expires_at.into(),
        slot,
    }
}

/// One place for each owner; without an owner, the place of unowned sessions.
fn for_each_due(slot: Slot, entry: &Entry, mut visit: impl FnMut(Due)) {
    if entry.state == SessionState::Active || !entry.holds_something() {
        return;
    }
    let leased_until = entry.leased_until.into();
    let mut owners = entry.bindings.iter().filter_map(|binding| binding.owner);
    let first = owners.next();
    for owner in std::iter::once(first).chain(owners.map(Some)) {
        visit(Due {
            owner,
            leased_until,
            slot,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_orders_as_its_timestamp_and_reads_back() {
        let ms = [0, 1, u64::from(u32::MAX), 1 << 32, (1 << 32) + 1, u64::MAX];
        for (low, high) in ms.iter().zip(&ms[1..]) {
            let [low, high] = [low, high].map(|ms| Timestamp::from_unix_ms(*ms));
            assert!(Moment::from(low) < Moment::from(high));
            assert_eq!(Timestamp::from(Moment::from(low)), low);
        }
        assert_eq!(Moment::from(Timestamp::from_unix_ms(u64::MAX)), Moment::MAX);
        assert_eq!(size_of::<Position>(), 12);
        assert_eq!(size_of::<ByUse>(), 16);
    }

    #[test]
    fn the_place_before_is_just_before() {
        let place = |ms, slot| Position {
            moment: Timestamp::from_unix_ms(ms).into(),
            slot,
        };
        assert_eq!(place(7, 3).before(), place(7, 2));
        assert_eq!(place(7, 0).before(), place(6, Slot::MAX));
        assert_eq!(Position::FIRST.before(), Position::FIRST);
    }
}
