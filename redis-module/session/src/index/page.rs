//! Pages of sessions, by when they were created.
//!
//! If the filter names something that few sessions have, those are collected and sorted; otherwise the order of
//! creation is read. A pattern whose literal start no key has is answered at once. In each case a call examines a
//! bounded number of entries: a page may be short or empty and still have a next one. A session that exists during a
//! whole iteration is returned once, whatever happens to others.

use std::ops::Bound::{Excluded, Unbounded};

use super::Index;
use super::filter::{Filter, SymbolFilter};
use super::glob::Glob;
use super::interner::Symbol;
use super::orders::{ByDigest, ByUse, Position};
use super::slab::Slot;
use crate::limits::{
    PAGE_COLLECTED_MAX, PAGE_EXAMINED_MAX, PAGE_PATTERN_STEPS_MAX, PAGE_PLACES_MAX,
};
use crate::names::{NameError, Problem, parse_integer};
use crate::time::Timestamp;

/// Whether the newest or the oldest session comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The newest.
    #[default]
    Newest,
    /// The oldest.
    Oldest,
}

/// The session after which the next page continues. As text `<created_at>-<n>`; start and end of an iteration are `0`,
/// which is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(Position);

impl Cursor {
    /// Reads a cursor.
    ///
    /// # Errors
    /// Text that is no cursor.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, NameError> {
        let what = "cursor";
        if bytes == b"0" {
            return Ok(None);
        }
        let dash = bytes.iter().position(|byte| *byte == b'-');
        let Some((moment, [_, slot @ ..])) = dash.and_then(|dash| bytes.split_at_checked(dash))
        else {
            let problem = Problem::Alphabet("0, or what the page before answered, is expected");
            return Err(NameError { what, problem });
        };
        let moment = parse_integer(what, moment, 0, u64::MAX)?;
        let slot = parse_integer(what, slot, 0, Slot::MAX.into())?;
        Ok(Some(Self(Position {
            moment: Timestamp::from_unix_ms(moment).into(),
            slot: Slot::try_from(slot).unwrap_or(Slot::MAX),
        })))
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Position { moment, slot } = self.0;
        write!(formatter, "{}-{slot}", Timestamp::from(moment))
    }
}

/// One page of the sessions that the filter admits.
#[derive(Debug)]
pub struct Page<'i> {
    /// In the requested order.
    pub sessions: Vec<PageEntry<'i>>,
    /// The cursor of the next page; `None` at the end.
    pub next: Option<Cursor>,
}

/// One session of a page.
#[derive(Clone, Copy, Debug)]
pub struct PageEntry<'i> {
    /// Its key.
    pub key: &'i [u8],
    /// The cursor after this session.
    pub cursor: Cursor,
}

impl Index {
    /// At most `count` sessions that the filter admits, after `after`.
    #[must_use]
    pub fn page(
        &self,
        filter: &Filter,
        order: Order,
        after: Option<Cursor>,
        count: usize,
        now: Timestamp,
    ) -> Page<'_> {
        let after = after.map(|Cursor(position)| position);
        let start = filter.pattern.as_ref().map(Glob::literal_start);
        let may_match = start.is_none_or(|start| self.groups.may_have(&start));
        let wanted = SymbolFilter::of(filter, &self.directory, &self.orders);
        let Some(wanted) = wanted.filter(|_| may_match) else {
            return Page {
                sessions: Vec::new(),
                next: None,
            };
        };
        let created = &self.orders.created;
        match (self.collect(&wanted, filter), order, after) {
            (Some(mut few), Order::Oldest, after) => {
                few.retain(|position| after.is_none_or(|after| *position > after));
                self.fill(few.into_iter(), &wanted, count, now)
            }
            (Some(mut few), Order::Newest, after) => {
                few.retain(|position| after.is_none_or(|after| *position < after));
                self.fill(few.into_iter().rev(), &wanted, count, now)
            }
            (None, Order::Oldest, Some(after)) => {
                let rest = created.range((Excluded(after), Unbounded));
                self.fill(rest.copied(), &wanted, count, now)
            }
            (None, Order::Newest, Some(after)) => {
                let rest = created.range(..after).rev();
                self.fill(rest.copied(), &wanted, count, now)
            }
            (None, Order::Oldest, None) => self.fill(created.iter().copied(), &wanted, count, now),
            (None, Order::Newest, None) => {
                self.fill(created.iter().rev().copied(), &wanted, count, now)
            }
        }
    }

    /// Adds the admitted sessions from `positions` until the page is full or the limit of examined entries is reached.
    fn fill(
        &self,
        positions: impl Iterator<Item = Position>,
        wanted: &SymbolFilter<'_>,
        count: usize,
        now: Timestamp,
    ) -> Page<'_> {
        let mut sessions = Vec::new();
        let (mut examined, mut steps) = (0, 0);
        let mut positions = positions.peekable();
        while let Some(position) = positions.next() {
            examined += 1;
            let entry = self.entries.get(position.slot);
            if let Some(entry) = entry
                && wanted.admits(position.slot, entry, &self.directory, now, &mut steps)
            {
                sessions.push(PageEntry {
                    key: &entry.key,
                    cursor: Cursor(position),
                });
            }
            let is_enough = sessions.len() >= count
                || examined >= PAGE_EXAMINED_MAX
                || steps >= PAGE_PATTERN_STEPS_MAX;
            if is_enough {
                let next = positions.peek().map(|_| Cursor(position));
                return Page { sessions, next };
            }
        }
        Page {
            sessions,
            next: None,
        }
    }

    /// The sessions with the rarest name of the filter, the oldest first; `None` if there are too many.
    fn collect(&self, wanted: &SymbolFilter<'_>, filter: &Filter) -> Option<Vec<Position>> {
        let by_digest = filter.digest.map(|digest| {
            let places = self.orders.digests.range(ByDigest::places(digest));
            places.take(PAGE_COLLECTED_MAX + 1).count()
        });
        let by_principal = (!wanted.principals.is_empty()).then(|| self.sessions_of(wanted));
        let by_owner = wanted.owner.and_then(|owner| {
            let duty = self.directory.workers.counts(owner)?;
            Some(duty.owned as usize)
        });
        let places = self.places(wanted);
        let by_place = places.as_ref().map(|(_, bindings)| *bindings);
        let sizes = [by_digest, by_principal, by_owner, by_place];
        let least = sizes.into_iter().flatten().min()?;
        if least > PAGE_COLLECTED_MAX {
            return None;
        }
        let mut slots: Vec<Slot> = Vec::with_capacity(least);
        if by_digest == Some(least) {
            let digests = filter.digest.map(ByDigest::places);
            let places = digests.map(|places| self.orders.digests.range(places));
            slots.extend(places.into_iter().flatten().map(|place| place.slot));
        } else if by_principal == Some(least) {
            for principal in &wanted.principals {
                for line in [ByUse::active(*principal), ByUse::tombstones(*principal)] {
                    slots.extend(self.orders.used.range(line).map(|by_use| by_use.slot));
                }
            }
        } else if by_owner == Some(least) {
            let owner = wanted.owner?;
            let owned = (owner, 0)..=(owner, Slot::MAX);
            slots.extend(self.orders.owned.range(owned).map(|(_, slot)| slot));
        } else {
            for place in places?.0 {
                let placed = (place, 0)..=(place, Slot::MAX);
                slots.extend(self.orders.placed.range(placed).map(|(_, slot)| slot));
            }
        }
        let mut positions: Vec<Position> = slots
            .into_iter()
            .filter_map(|slot| self.created_at(slot))
            .collect();
        positions.sort_unstable();
        // A session may be bound to one instance by two servers.
        positions.dedup();
        Some(positions)
    }

    fn created_at(&self, slot: Slot) -> Option<Position> {
        let entry = self.entries.get(slot)?;
        Some(Position {
            moment: entry.created_at.into(),
            slot,
        })
    }

    fn sessions_of(&self, wanted: &SymbolFilter<'_>) -> usize {
        let principals = wanted.principals.iter();
        principals
            .map(|principal| self.directory.principals.references(*principal))
            .sum()
    }

    /// The places that the filter names, with the number of all bindings to them; `None` if too many would have to be
    /// examined.
    fn places(&self, wanted: &SymbolFilter<'_>) -> Option<(Vec<Symbol>, usize)> {
        if !wanted.asks_for_a_place() {
            return None;
        }
        let places = &self.directory.places;
        let wanted_places: Vec<Symbol> = match wanted.place {
            Some(place) => vec![place],
            None if places.symbols_len() > PAGE_PLACES_MAX => return None,
            None => places
                .symbols()
                .filter(|place| wanted.admits_place(*place, &self.directory))
                .collect(),
        };
        let bindings = wanted_places
            .iter()
            .filter_map(|place| places.counts(*place))
            .map(|load| load.all as usize)
            .sum();
        Some((wanted_places, bindings))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_cursor_reads_back_and_nothing_else_reads() {
        for text in ["1700000000000-7", "0-0", "18446744073709551615-4294967295"] {
            let cursor = Cursor::parse(text.as_bytes()).unwrap().unwrap();
            assert_eq!(cursor.to_string(), text);
        }
        assert_eq!(Cursor::parse(b"0"), Ok(None));
        for bad in [
            "",
            "1",
            "1-",
            "-1",
            "1-x",
            "1--1",
            "1-4294967296",
            "01-1",
            "\0",
        ] {
            assert!(Cursor::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
