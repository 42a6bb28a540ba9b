//! The conversations of one server in the store: for each, the id by which the agent resumes it.
//!
//! Most agents change the id with every run. It is in the record's only binding, and is replaced in one step that
//! compares the binding's epoch: a process that is killed loses neither the old id nor the new one, and a run that ends
//! too late replaces nothing. Each run is recorded as a use, so that the session cap evicts the least recently used
//! conversation.
//!
//! Invariant: an id is only given to the principal that owns the conversation.

use std::time::Duration;

use mooring_session::Refusal;
use mooring_session::names::{
    InstanceName, NameError, Principal, Reason, ServerName, UpstreamSession, WorkerId,
};
use mooring_session::rules::{
    BindRequest, CreateReply, CreateRequest, EndCondition, EndRequest, LossReport, Ownership,
    RebindRequest, Revival, TouchRequest,
};
use mooring_session::time::Millis;
use mooring_session::view::{BindingState, RecordView};

use super::parent::ParentSession;
use super::place::{FOLDER_LABEL, INSTANCE, LAST_RUN_LABEL, PARENT_LABEL, place};
use mooring_store::{
    EvictionOutcome, RoomError, Session, SessionKey, Store, StoreError, fresh_token, labels,
    unix_now_ms,
};

/// The reason of rebinds after a run.
const RUN: &[u8] = b"run";
/// The lease of a claim. No claim stays open: the id is known before its binding is made.
const LEASE: Millis = Millis::new(10_000);

/// The conversations of one server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Conversations {
    store: Store,
    worker: WorkerId,
    server: ServerName,
    ttl: Duration,
    sessions_max: u64,
}

/// The stored state of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConversationState {
    /// The id by which the agent resumes it; `None` before its first run.
    pub agent_session: Option<String>,
    /// The binding's epoch, which fences `agent_session`.
    pub epoch: Option<u64>,
    /// The folder of the last run.
    pub folder: Option<String>,
}

/// The outcome of saving a new agent session id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveOutcome {
    /// The conversation is resumed by this id.
    Now,
    /// Another run of the conversation ended meanwhile; its id is kept.
    Superseded,
}

/// Why an agent session id was not saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The store refused, or is unavailable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A name is invalid in the store.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl From<SaveError> for ConversationError {
    fn from(error: SaveError) -> Self {
        match error {
            SaveError::Store(error) => Self::Store(error),
            SaveError::Name(error) => Self::Name(error),
        }
    }
}

/// Why a conversation could not be begun or stored.
#[derive(Debug, thiserror::Error)]
pub enum ConversationError {
    /// The store refused, or is unavailable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The principal has reached its limit, and all its conversations are in use.
    #[error("conversation limit reached: the principal has {0}, all in use")]
    AtCap(u64),
    /// A name is invalid in the store.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl From<RoomError> for ConversationError {
    fn from(error: RoomError) -> Self {
        match error {
            RoomError::Store(error) => Self::Store(error),
            RoomError::Full(held) => Self::AtCap(held),
        }
    }
}

impl Conversations {
    /// Most conversations of one principal.
    pub(crate) const fn sessions_max(&self) -> u64 {
        self.sessions_max
    }

    /// The conversations of this server: each expires when unused for `ttl`, and a principal has at most
    /// `sessions_max`.
    #[must_use]
    pub fn new(
        store: Store,
        worker: WorkerId,
        server: ServerName,
        ttl: Duration,
        sessions_max: u64,
    ) -> Self {
        Self {
            store,
            worker,
            server,
            ttl,
            sessions_max,
        }
    }

    /// The conversation of this principal under this parent session.
    ///
    /// # Errors
    /// Its key would be too long.
    pub fn session(&self, principal: &Principal, parent: &str) -> Result<Session, NameError> {
        let (key, id) = place(&self.store, &self.server, principal, parent)?;
        Ok(Session::new(key, id, principal.clone()))
    }

    /// Creates or finds the conversation.
    ///
    /// # Errors
    /// See [`ConversationError`].
    pub async fn begin(
        &self,
        session: &Session,
        parent: &ParentSession,
    ) -> Result<CreateReply, ConversationError> {
        let request = CreateRequest {
            id: session.id.clone(),
            principal: session.principal.clone(),
            ttl: Millis::from(self.ttl),
            content_hash: None,
            labels: labels(&[(PARENT_LABEL.as_bytes(), parent.as_str())]),
            revival: Revival::Allowed,
            cap: std::num::NonZeroU64::new(self.sessions_max),
        };
        let make_room = |key| self.make_room(&session.principal, key);
        let created = self
            .store
            .create_making_room(&session.key, &request, make_room);
        Ok(created.await?)
    }

    /// Ends a conversation if it is idle; otherwise records it as used.
    async fn make_room(
        &self,
        principal: &Principal,
        key: SessionKey,
    ) -> Result<EvictionOutcome, StoreError> {
        let request = EndRequest {
            principal: Some(principal.clone()),
            when: EndCondition::Idle,
        };
        match self.store.end(&key, &request).await {
            Ok(_) => {
                tracing::info!(session = %key.digest(), "least recently used conversation evicted for a new one");
                Ok(EvictionOutcome::Made)
            }
            Err(StoreError::Refused(Refusal::NoSession)) => Ok(EvictionOutcome::Made),
            Err(StoreError::Refused(Refusal::Busy(_))) => {
                self.touch(&key, principal, &[]).await?;
                Ok(EvictionOutcome::Spared)
            }
            Err(error) => Err(error),
        }
    }

    /// The stored state of a conversation that has begun.
    ///
    /// # Errors
    /// The store refused, or is unavailable.
    pub async fn known(&self, session: &Session) -> Result<ConversationState, StoreError> {
        let record = self.store.get(&session.key).await?;
        if record.principal != session.principal {
            return Err(StoreError::Refused(Refusal::Denied));
        }
        Ok(self.known_in(&record))
    }

    /// The conversation's state in a record.
    #[must_use]
    pub fn known_in(&self, record: &RecordView) -> ConversationState {
        let binding = record
            .bindings
            .iter()
            .find(|binding| binding.server == self.server && binding.state == BindingState::Bound);
        binding.map_or_else(ConversationState::default, |binding| ConversationState {
            agent_session: (binding.upstream_session.as_ref())
                .map(|id| id.as_str().to_owned())
                .filter(|id| is_argument(id)),
            epoch: Some(binding.epoch),
            folder: folder_in(record),
        })
    }

    /// Stores the id by which the conversation is resumed from now on. If it expired meanwhile, it is created again
    /// with this id.
    ///
    /// # Errors
    /// See [`ConversationError`].
    pub async fn keep(
        &self,
        session: &Session,
        parent: &ParentSession,
        known: &ConversationState,
        agent_session: &str,
    ) -> Result<SaveOutcome, ConversationError> {
        let id = UpstreamSession::parse(agent_session.as_bytes())?;
        let kept = match known.epoch {
            Some(epoch) => self.replace(session, epoch, &id, RUN).await,
            None => self.bind(session, &id).await,
        };
        match kept {
            Err(SaveError::Store(StoreError::Refused(
                Refusal::NoSession | Refusal::Ended | Refusal::Stale(_),
            ))) => {
                self.begin(session, parent).await?;
                Ok(self.bind(session, &id).await?)
            }
            settled => Ok(settled?),
        }
    }

    /// Stores the first id of a conversation.
    ///
    /// # Errors
    /// See [`SaveError`].
    pub async fn bind(
        &self,
        session: &Session,
        id: &UpstreamSession,
    ) -> Result<SaveOutcome, SaveError> {
        let request = BindRequest {
            principal: session.principal.clone(),
            server: self.server.clone(),
            worker: self.worker.clone(),
            token: fresh_token()?,
            lease: LEASE,
            instances: vec![InstanceName::parse(INSTANCE)?],
            upstream_session: Some(id.clone()),
            ownership: Ownership::Shared,
        };
        let bound = self.store.bind(&session.key, &request).await?;
        Ok(save_outcome(bound.won))
    }

    /// Replaces the id at `epoch`; `reason` is for operators.
    ///
    /// # Errors
    /// See [`SaveError`].
    pub async fn replace(
        &self,
        session: &Session,
        epoch: u64,
        id: &UpstreamSession,
        reason: &[u8],
    ) -> Result<SaveOutcome, SaveError> {
        let request = RebindRequest {
            principal: session.principal.clone(),
            server: self.server.clone(),
            epoch,
            worker: self.worker.clone(),
            token: fresh_token()?,
            lease: LEASE,
            instances: vec![InstanceName::parse(INSTANCE)?],
            avoid: None,
            reason: Some(Reason::parse(reason)?),
            ownership: Ownership::Shared,
            upstream_session: Some(id.clone()),
            report: LossReport::ByCaller,
        };
        let rebound = self.store.rebind(&session.key, &request).await?;
        Ok(save_outcome(rebound.won))
    }

    /// Records a run and its outcome. A failure only makes the order of eviction less exact.
    pub async fn note_run(&self, session: &Session, folder: &str, outcome: &str) {
        let last_run = format!("{} {outcome}", unix_now_ms());
        let pairs = [
            (FOLDER_LABEL.as_bytes(), folder),
            (LAST_RUN_LABEL.as_bytes(), last_run.as_str()),
        ];
        let noted = self.touch(&session.key, &session.principal, &pairs).await;
        if let Err(error) = noted {
            tracing::debug!(session = %session.digest, %error, "agent run not noted as in flight");
        }
    }

    async fn touch(
        &self,
        key: &SessionKey,
        principal: &Principal,
        pairs: &[(&[u8], &str)],
    ) -> Result<(), StoreError> {
        let request = TouchRequest {
            principal: principal.clone(),
            ttl: None,
            content_hash: None,
            labels: labels(pairs),
            reported: None,
        };
        self.store.touch(key, &request).await.map(|_| ())
    }
}

fn folder_in(record: &RecordView) -> Option<String> {
    let mut labels = record.labels.iter();
    let (_, folder) = labels.find(|(name, _)| name.as_str() == FOLDER_LABEL)?;
    Some(folder.as_str().to_owned())
}

/// Whether an id can be passed to a program as an argument. One that begins with a hyphen could be read as a flag.
pub(crate) fn is_argument(id: &str) -> bool {
    !id.is_empty() && !id.starts_with('-') && !id.chars().any(char::is_control)
}

const fn save_outcome(won: bool) -> SaveOutcome {
    if won {
        SaveOutcome::Now
    } else {
        SaveOutcome::Superseded
    }
}
