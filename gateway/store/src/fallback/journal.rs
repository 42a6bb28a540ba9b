//! What has to be sent to Redis when it returns, besides the records in memory.
//!
//! Invariant: an END that was answered stays here until Redis has executed it.

use std::collections::{BTreeMap, HashMap};

use mooring_session::names::{ServerName, UpstreamSession};
use mooring_session::rules::{EndReply, EndRequest, TouchRequest};

use crate::key::{InitDigest, SessionKey};

/// The changes of an outage.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Every session in memory.
    pub(super) origins: HashMap<SessionKey, Origin>,
    pub(super) ends: HashMap<SessionKey, PendingEnd>,
    /// Initialize params that were not sent to Redis.
    pub(super) inits: Vec<InitDigest>,
}

/// Where a session in memory came from.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// It was created while Redis was away.
    Minted,
    /// It was read from Redis before.
    Read(ReadOrigin),
}

/// The state of a session in Redis before the outage, and the changes to send.
#[derive(Clone, Debug)]
pub(super) struct ReadOrigin {
    /// The epoch of each binding that was read.
    pub(super) epochs: BTreeMap<ServerName, u64>,
    /// Whether the record was read, or just some of its bindings.
    pub(super) is_whole: bool,
    /// All TOUCHes, merged.
    pub(super) touch: Option<TouchRequest>,
}

/// An END that was answered but not executed by Redis.
#[derive(Clone, Debug)]
pub(super) struct PendingEnd {
    pub(super) request: EndRequest,
    /// The upstream sessions that the reply named, which the caller cleans up.
    pub(super) reported: Vec<UpstreamSession>,
}

impl Journal {
    pub(super) fn note_end(&mut self, key: &SessionKey, request: &EndRequest, reply: &EndReply) {
        let owed = PendingEnd {
            request: request.clone(),
            reported: reply
                .record
                .bindings
                .iter()
                .filter_map(|binding| binding.upstream_session.clone())
                .collect(),
        };
        self.ends.entry(key.clone()).or_insert(owed);
    }

    pub(super) fn note_touch(&mut self, key: &SessionKey, request: &TouchRequest) {
        let Some(Origin::Read(read)) = self.origins.get_mut(key) else {
            return;
        };
        match &mut read.touch {
            None => read.touch = Some(request.clone()),
            Some(earlier) => {
                earlier.ttl = request.ttl.or(earlier.ttl);
                if request.content_hash.is_some() {
                    earlier.content_hash.clone_from(&request.content_hash);
                }
                earlier.labels.extend(request.labels.clone());
                if request.reported.is_some() {
                    earlier.reported.clone_from(&request.reported);
                }
            }
        }
    }

    /// The ENDs to send to Redis.
    pub(super) fn ends(&self) -> Vec<(SessionKey, PendingEnd)> {
        self.ends
            .iter()
            .map(|(key, end)| (key.clone(), end.clone()))
            .collect()
    }

    /// The sessions to send to Redis.
    pub(super) fn sessions(&self) -> Vec<SessionKey> {
        self.origins.keys().cloned().collect()
    }

    /// Forgets a session that was sent to Redis.
    pub(super) fn forget(&mut self, key: &SessionKey) {
        self.ends.remove(key);
        self.origins.remove(key);
    }
}
