//! Bindings that this gateway has read, so that the module need not repeat them: see EPOCH of SESSION.ROUTE.
//!
//! Invariants: bounded. Nothing is believed because it is here: the server confirms it in the reply to each command. Only
//! bindings are kept of which nothing changes without their epoch: in use, without an owner, and driven by this gateway.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex};

use foldhash::fast::RandomState;
use mooring_session::names::{ServerName, WorkerId};
use mooring_session::rules::RouteReply;
use mooring_session::view::{BindingState, BindingView};

use crate::key::SessionKey;
use crate::lock::lock;

/// Most bindings. Beyond it those are forgotten that were not used for longest.
const BINDINGS_MAX: usize = 20_000;

type Bindings = HashMap<SessionKey, Vec<Arc<BindingView>>, RandomState>;

/// The bindings in two generations: a use moves the session's to the young one; when that is full it becomes the old one,
/// and what was not used since is dropped at once.
#[derive(Debug, Default)]
pub(crate) struct KnownBindings(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: Bindings,
    old: Bindings,
    /// Bindings in the young one.
    count: usize,
}

impl KnownBindings {
    /// The session's binding to a server, if it is known.
    pub(crate) fn get(&self, key: &SessionKey, server: &ServerName) -> Option<Arc<BindingView>> {
        let mut known = lock(&self.0);
        if !known.young.contains_key(key) {
            let bindings = known.old.remove(key)?;
            known.insert(key, bindings);
        }
        let bindings = known.young.get(key)?;
        bindings
            .iter()
            .find(|known| known.server == *server)
            .cloned()
    }

    /// Notes a whole reply to ROUTE or ENTER of `worker`.
    pub(crate) fn note(
        &self,
        key: &SessionKey,
        server: &ServerName,
        worker: &WorkerId,
        reply: &RouteReply,
    ) {
        let is_kept = |binding: &&BindingView| {
            binding.state == BindingState::Bound
                && binding.owner.is_none()
                && binding.driver == *worker
        };
        let binding = reply
            .binding
            .as_ref()
            .filter(is_kept)
            .cloned()
            .map(Arc::new);
        let mut known = lock(&self.0);
        let before = known.remove(key);
        let others = before.into_iter().filter(|known| known.server != *server);
        let bindings: Vec<_> = others.chain(binding).collect();
        if !bindings.is_empty() {
            known.insert(key, bindings);
        }
    }
}

impl Generations {
    fn remove(&mut self, key: &SessionKey) -> Vec<Arc<BindingView>> {
        if let Some(bindings) = self.young.remove(key) {
            self.count = self.count.saturating_sub(bindings.len());
            return bindings;
        }
        self.old.remove(key).unwrap_or_default()
    }

    fn insert(&mut self, key: &SessionKey, bindings: Vec<Arc<BindingView>>) {
        if self.count.saturating_add(bindings.len()) > BINDINGS_MAX / 2 {
            self.old = mem::take(&mut self.young);
            self.count = 0;
        }
        self.count = self.count.saturating_add(bindings.len());
        self.young.insert(key.clone(), bindings);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use crate::test_support::requests as make;

    fn routed(server: &str, epoch: u64) -> RouteReply {
        RouteReply {
            binding: Some(BindingView {
                server: make::server(server),
                state: BindingState::Bound,
                instance: make::instance("i1"),
                upstream_session: None,
                owner: None,
                driver: make::worker("w:1"),
                epoch,
                bound_at: mooring_session::time::Timestamp::default(),
                lease_until: None,
                rebinds: 0,
                last_reason: None,
            }),
            worker_lost: None,
            unreported_loss: None,
        }
    }

    fn note(known: &KnownBindings, session: &str, reply: &RouteReply) {
        let server = reply.binding.as_ref().map(|binding| binding.server.clone());
        let server = server.unwrap_or_else(|| make::server("tools"));
        known.note(&make::key(session), &server, &make::worker("w:1"), reply);
    }

    fn epoch(known: &KnownBindings, session: &str, server: &str) -> Option<u64> {
        let binding = known.get(&make::key(session), &make::server(server))?;
        Some(binding.epoch)
    }

    #[test]
    fn the_latest_reply_is_known_for_each_server() {
        let known = KnownBindings::default();
        note(&known, "s", &routed("tools", 7));
        note(&known, "s", &routed("files", 8));
        note(&known, "s", &routed("tools", 9));
        assert_eq!(epoch(&known, "s", "tools"), Some(9));
        assert_eq!(epoch(&known, "s", "files"), Some(8));
        assert_eq!(epoch(&known, "s", "other"), None);
        let unbound = RouteReply {
            binding: None,
            ..routed("tools", 9)
        };
        note(&known, "s", &unbound);
        assert_eq!(epoch(&known, "s", "tools"), None);
        assert_eq!(epoch(&known, "s", "files"), Some(8));
    }

    #[test]
    fn what_can_change_within_an_epoch_is_not_kept() {
        type Change = fn(&mut BindingView);
        let changes: [Change; 3] = [
            |binding| binding.state = BindingState::Claimed,
            |binding| binding.driver = make::worker("w:2"),
            |binding| {
                binding.owner = Some(mooring_session::view::OwnerView {
                    worker: make::worker("w:1"),
                    alive: true,
                    address: None,
                });
            },
        ];
        for change in changes {
            let known = KnownBindings::default();
            note(&known, "s", &routed("tools", 7));
            let mut reply = routed("tools", 7);
            change(reply.binding.as_mut().unwrap());
            note(&known, "s", &reply);
            assert_eq!(epoch(&known, "s", "tools"), None);
        }
    }

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let known = KnownBindings::default();
        note(&known, "used", &routed("tools", 7));
        for n in 0..2 * BINDINGS_MAX {
            note(&known, &format!("s{n}"), &routed("tools", 7));
            assert_eq!(epoch(&known, "used", "tools"), Some(7));
            let halves = lock(&known.0);
            assert!(halves.young.len() + halves.old.len() <= BINDINGS_MAX);
        }
        assert_eq!(epoch(&known, "s0", "tools"), None);
    }
}
