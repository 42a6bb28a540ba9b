//! The records of one principal's sessions at one server of kind `agent`, as entries of parent, agent's session and
//! last use.
//!
//! The last use is in the label `last_run`, which every run updates. An import writes the file's value there, while the
//! record itself counts as used at the import: no store accepts a past time of use. So that such a session does not
//! live longer than it otherwise would, its record gets only the rest of its TTL; the first run restores the whole TTL.
//!
//! Invariant: an agent's session is replaced only at the epoch that was read, so a run that ended meanwhile wins.

use std::collections::BTreeMap;

use mooring_session::Refusal;
use mooring_session::limits::TTL_MIN;
use mooring_session::names::{NameError, UpstreamSession, WorkerId};
use mooring_session::record::SessionState;
use mooring_session::rules::{CreateRequest, Revival, TouchRequest};
use mooring_session::time::Millis;
use mooring_session::view::RecordView;

use super::agent_record::{labels, parent, used_at_ms};
use super::outcome::SessionsError;
use super::policy::Policy;
use super::target::Owner;
use mooring_admin::sessions::select_sessions;
use mooring_agent::conversations::{Conversations, SaveError, SaveOutcome};
use mooring_agent::session_file::Entry;
use mooring_router::affinity::Session;
use mooring_store::{Family, SessionKey, SessionQuery, Store, StoreError};

/// The reason in the rebind, for operators.
const REASON: &[u8] = b"imported";
/// The state of a parent in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentSessionState {
    /// No session that an agent can resume.
    Nothing,
    /// A session that was ended on purpose.
    Ended {
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
    /// A session that an agent can resume.
    Held {
        /// When it was last used, in milliseconds since 1970.
        used_at_ms: u64,
        /// The epoch of the binding.
        epoch: u64,
    },
}

/// The outcome of storing an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PutOutcome {
    /// A new session has it.
    Created,
    /// An existing session has it now.
    Replaced,
    /// A run that ended meanwhile stored its own session.
    Overtaken,
    /// The principal is at its session cap, and all its sessions were used later.
    NoRoom,
}

/// The records of one owner.
#[derive(Debug)]
pub(super) struct AgentRecords<'a> {
    pub(super) store: &'a Store,
    pub(super) owner: &'a Owner,
    conversations: Conversations,
}

impl<'a> AgentRecords<'a> {
    pub(super) fn new(store: &'a Store, owner: &'a Owner) -> Result<Self, NameError> {
        let worker = format!("mooring-sessions:{:016x}", rand::random::<u64>());
        let Policy {
            session_ttl,
            sessions_max,
        } = owner.policy;
        let conversations = Conversations::new(
            store.clone(),
            WorkerId::parse(worker.as_bytes())?,
            owner.server.clone(),
            session_ttl,
            sessions_max.get(),
        );
        Ok(Self {
            store,
            owner,
            conversations,
        })
    }

    /// The state of a parent in the store.
    pub(super) async fn known(&self, parent: &str) -> Result<AgentSessionState, SessionsError> {
        let session = self.session(parent)?;
        let record = match self.store.get(&session.key).await {
            Ok(record) => record,
            Err(StoreError::Refused(Refusal::NoSession)) => return Ok(AgentSessionState::Nothing),
            Err(error) => return Err(error.into()),
        };
        let epoch = self.conversations.known_in(&record).epoch;
        Ok(match (record.state, epoch) {
            (SessionState::Ended, _) => AgentSessionState::Ended {
                at_ms: record.last_used_at.unix_ms(),
            },
            (SessionState::Active, Some(epoch)) => AgentSessionState::Held {
                used_at_ms: used_at_ms(&record),
                epoch,
            },
            (SessionState::Expired, _) | (SessionState::Active, None) => AgentSessionState::Nothing,
        })
    }

    /// Stores an entry, replacing the state that was read.
    pub(super) async fn put(
        &self,
        entry: &Entry,
        known: AgentSessionState,
        now_ms: u64,
    ) -> Result<PutOutcome, SessionsError> {
        let session = self.session(&entry.parent)?;
        let age_ms = now_ms.saturating_sub(entry.updated_at_ms);
        let ttl_ms = Millis::from(self.owner.policy.session_ttl).get();
        let create = CreateRequest {
            id: session.id.clone(),
            principal: session.principal.clone(),
            ttl: Millis::new(ttl_ms.saturating_sub(age_ms)).max(TTL_MIN),
            content_hash: None,
            labels: labels(entry),
            revival: Revival::Allowed,
            cap: Some(self.owner.policy.sessions_max),
        };
        match known {
            AgentSessionState::Held { epoch, .. } => {
                self.replace(&session, create, epoch, entry).await
            }
            AgentSessionState::Nothing | AgentSessionState::Ended { .. } => {
                self.begin(&session, create, entry).await
            }
        }
    }

    async fn begin(
        &self,
        session: &Session,
        create: CreateRequest,
        entry: &Entry,
    ) -> Result<PutOutcome, SessionsError> {
        let Some(is_new) = self.create(&session.key, &create, entry).await? else {
            return Ok(PutOutcome::NoRoom);
        };
        let id = UpstreamSession::parse(entry.agent_session.as_bytes())?;
        if self.conversations.bind(session, &id).await? == SaveOutcome::Superseded {
            return Ok(PutOutcome::Overtaken);
        }
        if !is_new {
            self.label(&session.key, create).await?;
        }
        Ok(PutOutcome::Created)
    }

    async fn replace(
        &self,
        session: &Session,
        create: CreateRequest,
        epoch: u64,
        entry: &Entry,
    ) -> Result<PutOutcome, SessionsError> {
        let id = UpstreamSession::parse(entry.agent_session.as_bytes())?;
        let replaced = self.conversations.replace(session, epoch, &id, REASON);
        match replaced.await {
            Ok(SaveOutcome::Now) => {}
            // It was ended or rebound since it was read.
            Ok(SaveOutcome::Superseded)
            | Err(SaveError::Store(StoreError::Refused(
                Refusal::NoSession | Refusal::Ended | Refusal::Stale(_),
            ))) => return Ok(PutOutcome::Overtaken),
            Err(error) => return Err(error.into()),
        }
        self.label(&session.key, create).await?;
        Ok(PutOutcome::Replaced)
    }

    /// Writes the entry's last use into an existing record.
    async fn label(&self, key: &SessionKey, create: CreateRequest) -> Result<(), SessionsError> {
        let touch = TouchRequest {
            principal: create.principal,
            ttl: Some(create.ttl),
            content_hash: None,
            labels: create.labels,
            reported: None,
        };
        self.store.touch(key, &touch).await?;
        Ok(())
    }

    /// Every session of the owner that an agent can resume.
    pub(super) async fn all(&self) -> Result<Vec<Entry>, SessionsError> {
        let query = SessionQuery {
            family: Family::Agent,
            principal: Some(self.owner.principal.clone()),
            server: Some(self.owner.server.clone()),
            state: Some(SessionState::Active),
            ..SessionQuery::default()
        };
        let selection = select_sessions(self.store, query, usize::MAX, |_, _| true).await?;
        if !selection.is_complete {
            return Err(SessionsError::Incomplete);
        }
        let found = selection.sessions.iter();
        let entries = found.filter_map(|found| self.entry(&found.record));
        let by_parent: BTreeMap<_, _> =
            entries.map(|entry| (entry.parent.clone(), entry)).collect();
        Ok(by_parent.into_values().collect())
    }

    fn entry(&self, record: &RecordView) -> Option<Entry> {
        Some(Entry {
            parent: parent(record)?.to_owned(),
            agent_session: self.conversations.known_in(record).agent_session?,
            updated_at_ms: used_at_ms(record),
        })
    }

    fn session(&self, parent: &str) -> Result<Session, NameError> {
        self.conversations.session(&self.owner.principal, parent)
    }
}
