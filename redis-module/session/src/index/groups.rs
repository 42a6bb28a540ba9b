//! How many sessions and bindings each group of keys has, and on which instances and with which owners those are.
//!
//! A group is what an operator counts apart: the sessions of the MCP clients of a gateway's prefix, or those of a server
//! of code or agents. Its name is what all its keys begin with.
//!
//! Invariants: the numbers are of exactly the entries that were counted in and not out again; the number of groups is
//! bounded, so sessions beyond may be left out, which the counts then say.

use std::collections::BTreeMap;

use super::Index;
use super::directory::Count;
use super::entry::Entry;
use super::interner::Symbol;
use crate::limits::{COUNT_NAMES_MAX, KEY_GROUPS_MAX};
use crate::record::SessionState;
use crate::session_digest::{KeyKind, split_key};

/// The groups of an index.
#[derive(Debug, Default)]
pub(super) struct KeyGroups {
    by_name: BTreeMap<Box<[u8]>, Group>,
    /// Whether a session was left out.
    is_exceeded: bool,
}

#[derive(Debug, Default)]
struct Group {
    sessions: StateCounts,
    /// The bindings of active sessions by instance, and those that have an owner by that.
    places: BTreeMap<Symbol, u32>,
    owners: BTreeMap<Symbol, u32>,
}

/// Sessions by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts {
    /// In use.
    pub active: u64,
    /// Idle past their TTL.
    pub expired: u64,
    /// Ended by a command.
    pub ended: u64,
}

impl StateCounts {
    fn of_mut(&mut self, state: SessionState) -> &mut u64 {
        match state {
            SessionState::Active => &mut self.active,
            SessionState::Expired => &mut self.expired,
            SessionState::Ended => &mut self.ended,
        }
    }
}

/// The counts of some groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts<'i> {
    /// Sessions by group, whose name is what their keys begin with.
    pub groups: Vec<(&'i [u8], StateCounts)>,
    /// Bindings of active sessions by server and instance.
    pub instances: Vec<(&'i str, &'i str, u64)>,
    /// Bindings of active sessions that have an owner, by that.
    pub owners: Vec<(&'i str, u64)>,
    /// Whether something was left out, because there is too much of it.
    pub is_cut: bool,
}

impl KeyGroups {
    /// Counts an entry in or out. The entry need not have its key.
    pub(super) fn count(&mut self, key: &[u8], entry: &Entry, count: Count) {
        let name = group_name(key);
        if !self.by_name.contains_key(name) {
            if count == Count::Out {
                return;
            }
            if self.by_name.len() >= KEY_GROUPS_MAX {
                self.is_exceeded = true;
                return;
            }
            self.by_name.insert(name.into(), Group::default());
        }
        if let Some(group) = self.by_name.get_mut(name) {
            group.count(entry, count);
            if group.sessions == StateCounts::default() {
                self.by_name.remove(name);
            }
        }
    }

    /// Whether a key that begins with this text may be in the index.
    pub(super) fn may_have(&self, start: &[u8]) -> bool {
        let is_along = |name: &[u8]| name.starts_with(start) || start.starts_with(name);
        self.is_exceeded || self.by_name.keys().any(|name| is_along(name))
    }
}

impl Group {
    fn count(&mut self, entry: &Entry, count: Count) {
        count.large(self.sessions.of_mut(entry.state), 1);
        if entry.state != SessionState::Active {
            return;
        }
        for binding in &entry.bindings {
            count_name(&mut self.places, binding.place, count);
            if let Some(owner) = binding.owner {
                count_name(&mut self.owners, owner, count);
            }
        }
    }
}

fn count_name(counts: &mut BTreeMap<Symbol, u32>, name: Symbol, count: Count) {
    let number = counts.entry(name).or_default();
    count.small(number);
    if *number == 0 {
        counts.remove(&name);
    }
}

/// What the keys of a group begin with: the head of their kind, and for code and agents the server.
fn group_name(key: &[u8]) -> &[u8] {
    let parts = split_key(key);
    let server_len = match parts.kind {
        Some(KeyKind::AtServer) => parts.own.iter().position(|byte| *byte == b':'),
        Some(KeyKind::Mcp) | None => None,
    };
    let length = parts.head.len() + server_len.map_or(0, |length| length + 1);
    key.get(..length).unwrap_or(key)
}

impl Index {
    /// The counts of the groups for which `is_wanted` returns true, as of the last [`advance`](Self::advance).
    #[must_use]
    pub fn session_counts(&self, is_wanted: impl Fn(&[u8]) -> bool) -> SessionCounts<'_> {
        let wanted = self
            .groups
            .by_name
            .iter()
            .filter(|(name, _)| is_wanted(name));
        let mut counts = SessionCounts {
            is_cut: self.groups.is_exceeded,
            ..SessionCounts::default()
        };
        let (mut places, mut owners) = (BTreeMap::new(), BTreeMap::new());
        for (name, group) in wanted {
            counts.groups.push((name, group.sessions));
            for (sum, part) in [(&mut places, &group.places), (&mut owners, &group.owners)] {
                for (symbol, number) in part {
                    *sum.entry(*symbol).or_insert(0) += u64::from(*number);
                }
            }
        }
        counts.is_cut |= places.len().max(owners.len()) > COUNT_NAMES_MAX;
        let directory = &self.directory;
        let instances = places.into_iter().filter_map(|(place, number)| {
            let server = Symbol::of_tag(directory.places.tag(place)?);
            let server = directory.servers.text(server)?;
            Some((server, directory.places.text(place)?, number))
        });
        counts.instances = instances.take(COUNT_NAMES_MAX).collect();
        let owners = owners
            .into_iter()
            .filter_map(|(owner, number)| Some((directory.workers.text(owner)?, number)));
        counts.owners = owners.take(COUNT_NAMES_MAX).collect();
        counts
    }
}
