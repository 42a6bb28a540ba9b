//! Which member of a group has which name, from its recent lists.
//!
//! It saves listing all members before each call whose name does not identify the member. Invariant: unknown names are
//! looked up at the members, so a stale entry costs at most the error of a member that no longer has the name, for as
//! long as [`FRESH`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::template::UriTemplate;
use mooring_protocol::Listing;

/// How long lists are valid.
const FRESH: Duration = Duration::from_secs(30);
/// How long a name that was in no list counts as absent: a client that asks for unknown names must not make the gateway
/// list all members each time.
const ABSENT: Duration = Duration::from_secs(1);
/// Most memory of names and templates, over all sessions of a group; beyond it the oldest lists are dropped.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Memory of a name besides its bytes.
const NAME_OVERHEAD_BYTES: usize = 64;

/// The member for each name in the group.
#[derive(Debug, Default)]
pub(crate) struct MemberIndex {
    by_name: HashMap<Box<str>, usize>,
    templates: Vec<(UriTemplate, usize)>,
}

impl MemberIndex {
    /// From these names; those of resource templates are parsed as templates.
    pub(crate) fn new(listing: Listing, by_name: HashMap<Box<str>, usize>) -> Self {
        let templates = match listing {
            Listing::Templates => by_name
                .iter()
                .filter_map(|(template, member)| Some((UriTemplate::parse(template)?, *member)))
                .collect(),
            Listing::Tools | Listing::Prompts | Listing::Resources => Vec::new(),
        };
        Self { by_name, templates }
    }

    /// The member that has this name, or else the most specific template that matches; of equally specific ones, the
    /// first member's.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied().or_else(|| {
            self.templates
                .iter()
                .filter_map(|(template, member)| Some((template.fits(name)?, *member)))
                .max_by_key(|(fixed, member)| (*fixed, std::cmp::Reverse(*member)))
                .map(|(_, member)| member)
        })
    }

    fn bytes(&self) -> usize {
        // A template is stored twice: as text and parsed.
        let copies = if self.templates.is_empty() { 1 } else { 2 };
        let names = self.by_name.keys();
        let bytes: usize = names.map(|name| name.len() + NAME_OVERHEAD_BYTES).sum();
        bytes.saturating_mul(copies)
    }
}

/// The result of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberLookup {
    /// This member has it.
    At(usize),
    /// No member had it a moment ago.
    Nowhere,
    /// The members have to be listed.
    Unknown,
}

#[derive(Debug)]
struct CachedListing {
    places: Arc<MemberIndex>,
    made_at: Instant,
}

/// The recent lists of the sessions of one group at this gateway.
#[derive(Debug, Default)]
pub(crate) struct MemberDirectory(Mutex<HashMap<(Box<str>, Listing), CachedListing>>);

impl MemberDirectory {
    /// Stores the lists of a session.
    pub(crate) fn note(
        &self,
        session_digest: &str,
        listing: Listing,
        places: Arc<MemberIndex>,
        now: Instant,
    ) {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lists.retain(|_, kept| now.duration_since(kept.made_at) < FRESH);
        let new = places.bytes();
        let mut bytes: usize = lists.values().map(|kept| kept.places.bytes()).sum();
        while bytes.saturating_add(new) > BYTES_MAX {
            let oldest = lists
                .iter()
                .min_by_key(|(_, kept)| kept.made_at)
                .map(|(key, _)| key.clone());
            let Some(gone) = oldest.and_then(|key| lists.remove(&key)) else {
                // The list alone exceeds the limit.
                return;
            };
            bytes = bytes.saturating_sub(gone.places.bytes());
        }
        let kept = CachedListing {
            places,
            made_at: now,
        };
        lists.insert((session_digest.into(), listing), kept);
    }

    /// Looks up a name.
    pub(crate) fn look_up(
        &self,
        session_digest: &str,
        listing: Listing,
        name: &str,
        now: Instant,
    ) -> MemberLookup {
        let lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kept) = lists.get(&(session_digest.into(), listing)) else {
            return MemberLookup::Unknown;
        };
        let age = now.duration_since(kept.made_at);
        match kept.places.find(name) {
            Some(member) if age < FRESH => MemberLookup::At(member),
            None if age < ABSENT => MemberLookup::Nowhere,
            _ => MemberLookup::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(listing: Listing, names: &[(&str, usize)]) -> Arc<MemberIndex> {
        let by_name = names
            .iter()
            .map(|(name, member)| ((*name).into(), *member))
            .collect();
        Arc::new(MemberIndex::new(listing, by_name))
    }

    #[test]
    fn lists_are_believed_for_a_while_and_their_gaps_for_a_shorter_one() {
        let directory = MemberDirectory::default();
        let start = Instant::now();
        let ask = |session: &str, name: &str, after_ms: u64| {
            let now = start + Duration::from_millis(after_ms);
            directory.look_up(session, Listing::Tools, name, now)
        };
        assert_eq!(ask("s", "echo", 0), MemberLookup::Unknown);
        let tools = places(Listing::Tools, &[("echo", 1)]);
        directory.note("s", Listing::Tools, tools, start);
        assert_eq!(ask("s", "echo", 29_999), MemberLookup::At(1));
        assert_eq!(ask("s", "echo", 30_000), MemberLookup::Unknown);
        assert_eq!(ask("s", "other", 999), MemberLookup::Nowhere);
        assert_eq!(ask("s", "other", 1_000), MemberLookup::Unknown);
        assert_eq!(
            ask("t", "echo", 0),
            MemberLookup::Unknown,
            "another session's"
        );
        assert_eq!(
            directory.look_up("s", Listing::Prompts, "echo", start),
            MemberLookup::Unknown
        );
    }

    #[test]
    fn the_oldest_lists_make_room() {
        let directory = MemberDirectory::default();
        let start = Instant::now();
        let long = "x".repeat(1_000);
        let many: Vec<String> = (0..BYTES_MAX / 2 / 1_100)
            .map(|number| format!("{number}{long}"))
            .chain(["7".to_owned()])
            .collect();
        let names: Vec<(&str, usize)> = many.iter().map(|name| (name.as_str(), 0)).collect();
        for (age, session) in ["a", "b", "c"].into_iter().enumerate() {
            let now = start + Duration::from_millis(age as u64);
            directory.note(session, Listing::Tools, places(Listing::Tools, &names), now);
        }
        let known = |session| directory.look_up(session, Listing::Tools, "7", start);
        let end = start + Duration::from_millis(3);
        assert_eq!(
            directory.look_up("a", Listing::Tools, "7", end),
            MemberLookup::Unknown
        );
        assert_eq!(
            (known("b"), known("c")),
            (MemberLookup::At(0), MemberLookup::At(0))
        );
    }

    #[test]
    fn a_uri_leads_to_the_template_that_fixes_most() {
        let templates = places(
            Listing::Templates,
            &[
                ("u:{x}", 0),
                ("u:a/{x}", 1),
                ("v:{x}", 3),
                ("v:{y}", 2),
                ("{", 4),
            ],
        );
        assert_eq!(templates.find("u:b"), Some(0));
        assert_eq!(templates.find("u:a/b"), Some(1));
        assert_eq!(templates.find("u:a/{x}"), Some(1), "the template itself");
        assert_eq!(templates.find("v:1"), Some(2));
        assert_eq!(templates.find("w:1"), None);
    }
}
