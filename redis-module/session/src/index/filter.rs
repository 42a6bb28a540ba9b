//! The filter of a query over sessions.
//!
//! Invariant: an entry is admitted exactly if its record would be.

use smallvec::SmallVec;

use super::directory::Directory;
use super::entry::{BoundTo, Entry};
use super::glob::Glob;
use super::interner::Symbol;
use super::orders::{ByDigest, Orders};
use super::prefixes::PrefixId;
use super::search_part::SearchPart;
use super::slab::Slot;
use crate::limits::{PAGE_COLLECTED_MAX, PREFIXES_MAX};
use crate::names::{InstanceName, Principal, ServerName, WorkerId};
use crate::record::{Record, SessionState};
use crate::session_digest::{DigestPrefix, SessionDigest};
use crate::time::Timestamp;

/// What a session has to match; `None` matches all. Server, instance, owner and driver must match the same binding.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Its principal.
    pub principal: Option<Principal>,
    /// Bound to this server.
    pub server: Option<ServerName>,
    /// Bound to this instance.
    pub instance: Option<InstanceName>,
    /// With a binding that only this worker can drive.
    pub owner: Option<WorkerId>,
    /// With a binding that this worker used last.
    pub driver: Option<WorkerId>,
    /// Its current state.
    pub state: Option<SessionState>,
    /// The pattern of its key.
    pub pattern: Option<Glob>,
    /// The beginning of its digest.
    pub digest: Option<DigestPrefix>,
    /// A part of its names.
    pub text: Option<SearchPart>,
}

impl Filter {
    /// Whether the record under `key` matches.
    #[must_use]
    pub fn admits(&self, key: &[u8], record: &Record, now: Timestamp) -> bool {
        is_wanted(self.principal.as_ref(), &record.principal)
            && is_wanted(self.state.as_ref(), &record.lifetime.state(now))
            && (!self.asks_for_a_binding()
                || record.bindings.iter().any(|(server, binding)| {
                    is_wanted(self.server.as_ref(), server)
                        && is_wanted(self.instance.as_ref(), &binding.instance)
                        && (self.owner.is_none() || self.owner == binding.owner)
                        && is_wanted(self.driver.as_ref(), &binding.driver)
                }))
            && self.admits_key(key)
            && self
                .text
                .as_ref()
                .is_none_or(|text| text.is_in(key, record))
    }

    /// Whether a record under this key may match.
    #[must_use]
    pub fn admits_key(&self, key: &[u8]) -> bool {
        let pattern = self.pattern.as_ref();
        pattern.is_none_or(|pattern| pattern.matches(key))
            && self
                .digest
                .is_none_or(|digest| digest.matches(SessionDigest::of_key(key)))
    }

    fn asks_for_a_binding(&self) -> bool {
        self.server.is_some()
            || self.instance.is_some()
            || self.owner.is_some()
            || self.driver.is_some()
    }
}

/// What computing a digest counts as.
const DIGEST_STEPS: usize = 200;

fn is_wanted<T: PartialEq>(wanted: Option<&T>, found: &T) -> bool {
    wanted.is_none_or(|wanted| wanted == found)
}

/// A filter whose names are the symbols of one index.
pub(super) struct SymbolFilter<'f> {
    filter: &'f Filter,
    /// The principal, by prefix.
    pub(super) principals: SmallVec<[Symbol; PREFIXES_MAX]>,
    pub(super) server: Option<Symbol>,
    /// The place, if server and instance are given.
    pub(super) place: Option<Symbol>,
    pub(super) owner: Option<Symbol>,
    driver: Option<Symbol>,
    /// The sessions whose digests begin with the text.
    with_digest: SmallVec<[Slot; 4]>,
}

impl<'f> SymbolFilter<'f> {
    /// The filter's names as symbols; `None` if a name is in no session, so that nothing matches.
    pub(super) fn of(filter: &'f Filter, directory: &Directory, orders: &Orders) -> Option<Self> {
        let mut principals = SmallVec::new();
        if let Some(principal) = &filter.principal {
            principals.extend(
                PrefixId::all().filter_map(|prefix| directory.principal(prefix, principal)),
            );
            if principals.is_empty() {
                return None;
            }
        }
        let mut wanted = Self {
            filter,
            principals,
            server: None,
            place: None,
            owner: None,
            driver: None,
            with_digest: SmallVec::new(),
        };
        if let Some(digest) = filter.text.as_ref().and_then(|text| text.digest) {
            let places = orders.digests.range(ByDigest::places(digest));
            let slots = places.map(|place| place.slot).take(PAGE_COLLECTED_MAX);
            wanted.with_digest = slots.collect();
            wanted.with_digest.sort_unstable();
        }
        if let Some(server) = &filter.server {
            wanted.server = Some(directory.servers.find(0, server.as_str())?);
            if let Some(instance) = &filter.instance {
                wanted.place = Some(directory.place(server, instance)?);
            }
        }
        if let Some(owner) = &filter.owner {
            wanted.owner = Some(directory.worker(owner)?);
        }
        if let Some(driver) = &filter.driver {
            wanted.driver = Some(directory.worker(driver)?);
        }
        Some(wanted)
    }

    /// Whether bindings to this place match.
    pub(super) fn admits_place(&self, place: Symbol, directory: &Directory) -> bool {
        if let Some(wanted) = self.place {
            return place == wanted;
        }
        let is_server = self
            .server
            .is_none_or(|server| directory.places.tag(place) == Some(server.tag()));
        let instance = self.filter.instance.as_ref();
        is_server
            && instance
                .is_none_or(|instance| directory.places.text(place) == Some(instance.as_str()))
    }

    /// Whether the entry matches. Adds the steps that matching its key and its names took.
    pub(super) fn admits(
        &self,
        slot: Slot,
        entry: &Entry,
        directory: &Directory,
        now: Timestamp,
        steps: &mut usize,
    ) -> bool {
        let filter = self.filter;
        let is_its_binding = |binding: &BoundTo| {
            self.admits_place(binding.place, directory)
                && (self.owner.is_none() || self.owner == binding.owner)
                && self.driver.is_none_or(|driver| driver == binding.driver)
        };
        (self.principals.is_empty() || self.principals.contains(&entry.principal))
            && is_wanted(filter.state.as_ref(), &entry.state_at(now))
            && (!filter.asks_for_a_binding() || entry.bindings.iter().any(is_its_binding))
            && filter
                .pattern
                .as_ref()
                .is_none_or(|pattern| pattern.matches_counting(&entry.key, steps))
            && filter.digest.is_none_or(|digest| {
                *steps += DIGEST_STEPS;
                digest.matches(SessionDigest::of_key(&entry.key))
            })
            && filter.text.as_ref().is_none_or(|text| {
                self.with_digest.binary_search(&slot).is_ok()
                    || has_text(text, entry, directory, steps)
            })
    }

    /// Whether server or instance are given.
    pub(super) fn asks_for_a_place(&self) -> bool {
        self.filter.server.is_some() || self.filter.instance.is_some()
    }
}

/// Whether the text is in a name of the entry.
fn has_text(text: &SearchPart, entry: &Entry, directory: &Directory, steps: &mut usize) -> bool {
    let mut is_in = |name: Option<&str>| name.is_some_and(|name| text.is_in_text(name, steps));
    let is_in_names = is_in(directory.principals.text(entry.principal))
        || entry.bindings.iter().any(|binding| {
            let server = directory.places.tag(binding.place).map(Symbol::of_tag);
            let owner = binding.owner.filter(|owner| *owner != binding.driver);
            is_in(server.and_then(|server| directory.servers.text(server)))
                || is_in(directory.places.text(binding.place))
                || is_in(directory.workers.text(binding.driver))
                || is_in(owner.and_then(|owner| directory.workers.text(owner)))
        });
    is_in_names || text.is_in_key(&entry.key, steps)
}
