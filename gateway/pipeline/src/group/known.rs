//! What this gateway remembers of a group's members: their answers to `initialize`, and their lists.
//!
//! A client may begin at a group, and see its lists, without a program of every member having been started. Invariants:
//! only what a server says to every user is remembered, for clients that introduce themselves with the same params; what
//! is older than [`BELIEVED_FOR`] is not used; memory is bounded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mooring_protocol::Listing;
use mooring_protocol::listing::Entry;
use mooring_session::names::ServerName;
use mooring_store::InitDigest;
use mooring_upstream::Server;
use serde_json::{Map, Value};

/// After this time a member is asked again, while its client is answered from memory. It is a program start for each
/// server that is in use, so it is long; a program that runs is asked anyway.
const REFRESHED_AFTER: Duration = Duration::from_secs(60 * 60);
/// Older answers are forgotten: a server that was not used for a day may be another version now.
const BELIEVED_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// Most members that are remembered, each for one kind of client.
const MEMBERS_MAX: usize = 256;
/// Longest lists of one member that are remembered, in bytes: a `tools/list` of a thousand tools is under 1 MiB.
const LISTS_BYTES_MAX: usize = 1024 * 1024;

type MemberKey = (ServerName, InitDigest);
/// A member's list; none if it does not have the method.
pub(crate) type KnownList = Option<Arc<[Entry]>>;

#[derive(Debug)]
struct KnownMember {
    initialize_result: Arc<Map<String, Value>>,
    lists: HashMap<Listing, KnownList>,
    learned_at: Instant,
    /// Whether it is being asked again.
    is_refreshed: bool,
}

/// A remembered answer to `initialize`.
#[derive(Debug)]
pub(crate) struct KnownInitializeResult {
    /// The result.
    pub(crate) result: Arc<Map<String, Value>>,
    /// Whether the caller has to ask the member again, which one caller does.
    pub(crate) is_due: bool,
}

/// The members of all groups of this gateway.
#[derive(Debug, Default)]
pub(crate) struct KnownMembers(Mutex<HashMap<MemberKey, KnownMember>>);

/// Whether the server says the same to every user, as far as the gateway lets it know them.
fn is_same_for_all(server: &Server) -> bool {
    server.caller_credentials.is_none() && server.user_secret.is_none() && server.tokens.is_none()
}

impl KnownMembers {
    /// Forgets a member that is no longer what it was.
    pub(super) fn forget(&self, server: &ServerName) {
        self.lock().retain(|(known, _), _| known != server);
    }

    /// Remembers an answer to `initialize`, whose lists stay what they were until it is listed again.
    pub(crate) fn note_initialized(
        &self,
        server: &Server,
        client: &InitDigest,
        result: Arc<Map<String, Value>>,
        now: Instant,
    ) {
        if !is_same_for_all(server) {
            return;
        }
        let mut known = self.lock();
        known.retain(|_, member| now.duration_since(member.learned_at) < BELIEVED_FOR);
        let key = (server.id.clone(), client.clone());
        if known.len() >= MEMBERS_MAX && !known.contains_key(&key) {
            let oldest = known.iter().min_by_key(|(_, member)| member.learned_at);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                known.remove(&oldest);
            }
        }
        let lists = known.remove(&key).map(|before| before.lists);
        let member = KnownMember {
            initialize_result: result,
            lists: lists.unwrap_or_default(),
            learned_at: now,
            is_refreshed: false,
        };
        known.insert(key, member);
    }

    /// The member's answer to `initialize`.
    pub(crate) fn initialize_result(
        &self,
        server: &Server,
        client: &InitDigest,
        now: Instant,
    ) -> Option<KnownInitializeResult> {
        let mut known = self.lock();
        let member = known.get_mut(&(server.id.clone(), client.clone()))?;
        let age = now.duration_since(member.learned_at);
        if age >= BELIEVED_FOR {
            return None;
        }
        let is_due = age >= REFRESHED_AFTER && !member.is_refreshed;
        member.is_refreshed |= is_due;
        Some(KnownInitializeResult {
            result: Arc::clone(&member.initialize_result),
            is_due,
        })
    }

    /// Remembers a list of a member that has answered `initialize`.
    pub(crate) fn note_list(
        &self,
        server: &Server,
        client: &InitDigest,
        listing: Listing,
        entries: Option<&[Entry]>,
    ) {
        let mut known = self.lock();
        let Some(member) = known.get_mut(&(server.id.clone(), client.clone())) else {
            return;
        };
        member.lists.insert(listing, entries.map(Arc::from));
        let bytes: usize = (member.lists.values().flatten())
            .flat_map(|entries| entries.iter())
            .map(|entry| entry.text().len())
            .sum();
        if bytes > LISTS_BYTES_MAX {
            member.lists.remove(&listing);
        }
    }

    /// The member's list.
    pub(crate) fn list(
        &self,
        server: &Server,
        client: &InitDigest,
        listing: Listing,
        now: Instant,
    ) -> Option<KnownList> {
        let known = self.lock();
        let member = known.get(&(server.id.clone(), client.clone()))?;
        let is_believed = now.duration_since(member.learned_at) < BELIEVED_FOR;
        let list = member.lists.get(&listing).filter(|_| is_believed)?;
        Some(list.clone())
    }

    /// Forgets the lists of a server that says that one has changed.
    pub(crate) fn forget_lists(&self, server: &ServerName) {
        let mut known = self.lock();
        let its = known.iter_mut().filter(|((of, _), _)| of == server);
        its.for_each(|(_, member)| member.lists.clear());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<MemberKey, KnownMember>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]
    use super::*;
    use mooring_protocol::listing::Page;
    use mooring_session::rules::Ownership;
    use mooring_settings::{Affinity, Concurrency, Continuity, LostStateNotice, OnUpstreamLoss};
    use mooring_upstream::SessionPolicy;

    fn server(id: &[u8]) -> Server {
        let policy = SessionPolicy {
            affinity: Affinity::On,
            ownership: Ownership::Owned,
            concurrency: Concurrency::Serial,
            on_upstream_loss: OnUpstreamLoss::Reinitialize,
            lost_state_notice: LostStateNotice::Content,
            continuity: Continuity::None,
        };
        let id = ServerName::parse(id).unwrap();
        Server::new(id, Vec::new(), policy, Default::default())
    }

    fn note(known: &KnownMembers, server: &Server, client: &InitDigest, now: Instant) {
        known.note_initialized(server, client, Arc::default(), now);
    }

    #[test]
    fn a_member_is_known_for_a_day_and_one_caller_asks_it_again_after_an_hour() {
        let (known, start) = (KnownMembers::default(), Instant::now());
        let (tools, client) = (server(b"tools"), InitDigest::of("a"));
        let due = |after: Duration| {
            let known = known.initialize_result(&tools, &client, start + after)?;
            Some(known.is_due)
        };
        assert_eq!(due(Duration::ZERO), None);
        note(&known, &tools, &client, start);
        assert_eq!(due(REFRESHED_AFTER - Duration::from_secs(1)), Some(false));
        assert_eq!(due(REFRESHED_AFTER), Some(true));
        assert_eq!(due(REFRESHED_AFTER), Some(false), "one asks");
        assert_eq!(due(BELIEVED_FOR), None);
        let other = InitDigest::of("b");
        assert!(known.initialize_result(&tools, &other, start).is_none());
    }

    #[test]
    fn lists_are_known_until_one_changes_and_have_a_limit() {
        let (known, start) = (KnownMembers::default(), Instant::now());
        let (tools, client) = (server(b"tools"), InitDigest::of("a"));
        let page = |name: &str| {
            let text = format!(r#"{{"tools":[{{"name":"{name}"}}]}}"#);
            Page::read(Listing::Tools, &text).unwrap().entries
        };
        let names = |known: &KnownMembers| {
            let list = known.list(&tools, &client, Listing::Tools, start)?;
            Some(list.map(|entries| entries.first().unwrap().name.to_string()))
        };
        known.note_list(&tools, &client, Listing::Tools, Some(&page("a")));
        assert_eq!(names(&known), None, "it has not answered initialize");
        note(&known, &tools, &client, start);
        known.note_list(&tools, &client, Listing::Tools, Some(&page("a")));
        assert_eq!(names(&known), Some(Some("a".to_owned())));
        known.note_list(&tools, &client, Listing::Tools, None);
        assert_eq!(names(&known), Some(None), "it has no tools");
        known.forget_lists(&tools.id);
        assert_eq!(names(&known), None);
        let long = page(&"x".repeat(LISTS_BYTES_MAX));
        known.note_list(&tools, &client, Listing::Tools, Some(&long));
        assert_eq!(names(&known), None);
    }

    #[test]
    fn the_member_that_was_learned_first_makes_room() {
        let (known, start) = (KnownMembers::default(), Instant::now());
        let tools = server(b"tools");
        let client = |number: usize| InitDigest::of(&number.to_string());
        for number in 0..=MEMBERS_MAX {
            let now = start + Duration::from_millis(number as u64);
            note(&known, &tools, &client(number), now);
        }
        let is_known = |number| {
            let known = known.initialize_result(&tools, &client(number), start);
            known.is_some()
        };
        assert_eq!(
            [is_known(0), is_known(1), is_known(MEMBERS_MAX)],
            [false, true, true]
        );
    }
}
