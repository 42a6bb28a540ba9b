//! The members of one session at a group: which it is bound to, and what is known of the others.
//!
//! Invariant: memory answers only for programs that the session has not started; every other member is asked.

use std::sync::Arc;
use std::time::Instant;

use mooring_session::names::ServerName;
use mooring_session::view::{BindingState, RecordView};

use super::gather::Scope;
use super::known::{KnownList, KnownMembers};
use super::members::Group;
use mooring_protocol::Listing;
use mooring_protocol::listing::Entry;
use mooring_router::affinity::init_digest;
use mooring_store::InitDigest;
use mooring_upstream::Server;

/// Which members a session is bound to, and what is known of the others.
#[derive(Clone, Debug)]
pub(crate) struct SessionMembers {
    known: Arc<KnownMembers>,
    /// The client as it has introduced itself; none if that is not known.
    client: Option<InitDigest>,
    bound: Arc<[ServerName]>,
}

impl SessionMembers {
    /// Of this session at a group. Where the store does not answer nothing is known: requests for members will tell why.
    pub(super) async fn read(group: &Group, scope: &Scope) -> Self {
        let record = match group.has_programs() {
            true => scope
                .session_router
                .store()
                .get(&scope.session.key)
                .await
                .ok(),
            false => None,
        };
        match record {
            Some(record) => Self::of(&group.known, &record),
            None => Self {
                known: Arc::clone(&group.known),
                client: None,
                bound: Arc::default(),
            },
        }
    }

    /// Of this record.
    pub(crate) fn of(known: &Arc<KnownMembers>, record: &RecordView) -> Self {
        let bindings = record.bindings.iter();
        let bound = bindings.filter(|binding| binding.state == BindingState::Bound);
        Self {
            known: Arc::clone(known),
            client: init_digest(record),
            bound: bound.map(|binding| binding.server.clone()).collect(),
        }
    }

    /// Whether a request for this member would have to start its program, or wait for it.
    pub(crate) fn is_unstarted(&self, server: &Server) -> bool {
        server.is_program() && !self.bound.contains(&server.id)
    }

    /// The list of a program that this session has not started.
    pub(super) fn known_list(&self, server: &Server, listing: Listing) -> Option<KnownList> {
        let client = self.client.as_ref()?;
        self.is_unstarted(server)
            .then(|| self.known.list(server, client, listing, Instant::now()))?
    }

    /// Remembers a list that a member sent.
    pub(super) fn note_list(&self, server: &Server, listing: Listing, entries: Option<&[Entry]>) {
        if let Some(client) = &self.client {
            self.known.note_list(server, client, listing, entries);
        }
    }
}
