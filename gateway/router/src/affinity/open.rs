//! Opening: a client initializes, and gets a session bound to one instance.

use std::collections::BTreeMap;

use bytes::Bytes;
use mooring_session::Refusal;
use mooring_session::names::{LabelName, LabelValue, NameError, Principal, ServerName};
use mooring_session::rules::{CreateRequest, Revival, TouchRequest};
use mooring_session::time::Millis;
use mooring_session::view::BindingView;

use super::active_bindings::{BindingHolder, InFlightKind};
use super::establish::REVISION_LABEL;
use super::params::{INIT_PARAMS_BYTES_MAX, ParamsKey};
use super::restored_state::{LOG_LEVEL_LABEL, subscription_label};
use super::{ResolveError, Session, SessionRouter};
use mooring_metrics as metrics;
use mooring_secrets::digest;
use mooring_store::{StoreError, labels};
use mooring_upstream::{Completion, InitializeHandshake, InitializedSession, Server};

/// The window in which a principal may begin only so many sessions.
const MINUTE: Millis = Millis::new(60_000);

/// A session that has just begun.
#[derive(Debug)]
pub struct OpenedSession {
    /// The new session.
    pub session: Session,
    /// Where its calls go.
    pub binding: BindingView,
    /// The upstream's own answer, which is the client's.
    pub initialized: InitializedSession,
}

/// Why a session did not begin. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store refused, or could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No instance began an upstream session.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The principal holds as many sessions as it may, and none of them is idle.
    #[error("the principal holds {0} sessions, as many as it may, and all of them are in use")]
    AtCap(u64),
    /// Another new session of the principal, opened by another worker, took its place before it was bound.
    #[error("another new session of the principal took its place")]
    Displaced,
    /// The principal has begun as many sessions within a minute as it may.
    #[error("the principal has begun {limit} sessions within a minute, as many as it may")]
    TooFast {
        /// How many those are.
        limit: u64,
        /// After which time it may begin another.
        retry_after: Millis,
    },
    /// The params of the `initialize` are longer than any client's.
    #[error("the params of initialize have {0} bytes; at most {INIT_PARAMS_BYTES_MAX} are taken")]
    ParamsTooLong(usize),
    /// A name of the gateway's own making was refused, which would be a defect.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl OpenError {
    /// A session of which nobody knows the id yet is over only where a cap ended it: between its CREATE and its BIND it
    /// looks idle to other workers.
    fn or_displaced(self) -> Self {
        match self {
            Self::Store(StoreError::Refused(Refusal::Ended | Refusal::NoSession))
            | Self::Resolve(ResolveError::Store(StoreError::Refused(
                Refusal::Ended | Refusal::NoSession,
            ))) => Self::Displaced,
            other => other,
        }
    }
}

/// The client's `initialize`.
#[derive(Clone, Debug)]
pub struct InitializeRequest<'a> {
    /// Its params, as the client wrote them.
    pub params: &'a str,
    /// The revision it asks for.
    pub revision: &'a str,
    /// The whole request as it goes upstream.
    pub text: Bytes,
}

impl InitializeRequest<'_> {
    fn check_length(&self) -> Result<(), OpenError> {
        match self.params.len() {
            0..=INIT_PARAMS_BYTES_MAX => Ok(()),
            length => Err(OpenError::ParamsTooLong(length)),
        }
    }
}

impl SessionRouter {
    /// Creates the record, claims an instance, makes the handshake, and confirms.
    ///
    /// # Errors
    /// See [`OpenError`]; a record already created is ended again.
    pub async fn open(
        &self,
        principal: &Principal,
        server: &Server,
        request: &InitializeRequest<'_>,
    ) -> Result<OpenedSession, OpenError> {
        let session = Session::mint(&self.options().key_prefix, principal.clone())?;
        // From here on it is in use, and no cap ends it for another session that is opened here.
        let in_flight = self
            .active_bindings()
            .begin(&session, &server.id, InFlightKind::Call);
        let opened = async {
            self.begin(&session, request).await?;
            metrics::affinity_miss();
            self.initialize_with(&session, server, request).await
        };
        let opened = opened.await.map_err(OpenError::or_displaced);
        match &opened {
            Ok(_) => in_flight.set_holder(BindingHolder::This),
            Err(error) => self.cancel_open(&session, error).await,
        }
        opened
    }

    /// Creates the record of a session that is bound to nothing yet, and keeps its client's params.
    ///
    /// # Errors
    /// `Store`, `AtCap`, `TooFast`, `ParamsTooLong`; nothing of it is left.
    pub async fn begin(
        &self,
        session: &Session,
        request: &InitializeRequest<'_>,
    ) -> Result<(), OpenError> {
        request.check_length()?;
        self.check_rate(&session.principal).await?;
        let params_key = ParamsKey::of(request.params);
        let create = self.creation(session, initialize_labels(&params_key, request));
        let keeping_params = async {
            let params = request.params;
            Ok(self.store().put_init(&params_key.digest, params).await?)
        };
        tokio::try_join!(self.admit(session, &create), keeping_params)?;
        Ok(())
    }

    /// Creates the record of a session before its `initialize`: the stream of a legacy client opens first.
    ///
    /// # Errors
    /// `Store`, `AtCap`, `TooFast`; nothing of it is left.
    pub async fn begin_uninitialized(&self, principal: &Principal) -> Result<Session, OpenError> {
        self.check_rate(principal).await?;
        let session = Session::mint(&self.options().key_prefix, principal.clone())?;
        let create = self.creation(&session, BTreeMap::new());
        self.admit(&session, &create).await?;
        Ok(session)
    }

    /// Binds a server in a session that was created before its client's `initialize`.
    ///
    /// # Errors
    /// See [`OpenError`]; the session is left as it was.
    pub async fn open_in(
        &self,
        session: &Session,
        server: &Server,
        request: &InitializeRequest<'_>,
    ) -> Result<OpenedSession, OpenError> {
        self.note_initialize(session, request).await?;
        metrics::affinity_miss();
        self.initialize_with(session, server, request).await
    }

    /// Notes the initialize params of a session that was created before them.
    ///
    /// # Errors
    /// `Store`, `ParamsTooLong`.
    pub async fn note_initialize(
        &self,
        session: &Session,
        request: &InitializeRequest<'_>,
    ) -> Result<(), OpenError> {
        request.check_length()?;
        let params_key = ParamsKey::of(request.params);
        self.store()
            .put_init(&params_key.digest, request.params)
            .await?;
        let labels = initialize_labels(&params_key, request);
        Ok(self.set_labels(session, labels).await?)
    }

    /// Binds a server in a session by its client's initialize params.
    ///
    /// # Errors
    /// See [`ResolveError`]; `Unsettled` where the server is bound already, or another attempt is at it.
    pub async fn initialize(
        &self,
        session: &Session,
        server: &Server,
    ) -> Result<(BindingView, InitializedSession), ResolveError> {
        let (handshake, _) = self.stored_handshake(session, server).await?;
        self.initialize_first(session, server, &handshake).await
    }

    /// A session that could not be opened is ended, so that nothing of it is left.
    async fn cancel_open(&self, session: &Session, error: &OpenError) {
        tracing::warn!(session = %session.digest, %error, "a session could not be opened");
        let is_created = !matches!(
            error,
            OpenError::AtCap(_) | OpenError::TooFast { .. } | OpenError::ParamsTooLong(_)
        );
        if is_created {
            self.close_lost(session).await;
        }
    }

    /// Counts a session that the principal begins, over the whole fleet.
    async fn check_rate(&self, principal: &Principal) -> Result<(), OpenError> {
        let Some(limit) = self.options().initializes_per_minute else {
            return Ok(());
        };
        let name = format!("initialize:{}", digest::hex(principal.as_str().as_bytes()));
        let rated = self.store().rate(&name, limit.get(), MINUTE, 1).await?;
        match rated.allowed {
            true => Ok(()),
            false => Err(OpenError::TooFast {
                limit: limit.get(),
                retry_after: rated.retry_after,
            }),
        }
    }

    pub(super) fn creation(
        &self,
        session: &Session,
        labels: BTreeMap<LabelName, LabelValue>,
    ) -> CreateRequest {
        CreateRequest {
            id: session.id.clone(),
            principal: session.principal.clone(),
            ttl: self.options().session_ttl,
            content_hash: None,
            labels,
            revival: Revival::Allowed,
            cap: self.options().sessions_max,
        }
    }

    async fn initialize_with(
        &self,
        session: &Session,
        server: &Server,
        request: &InitializeRequest<'_>,
    ) -> Result<OpenedSession, OpenError> {
        let handshake = InitializeHandshake {
            text: request.text.clone(),
            completion: Completion::ByClient,
        };
        let (binding, initialized) = self.initialize_first(session, server, &handshake).await?;
        if let Some(revision) = &initialized.revision
            && **revision != *request.revision
            && let Err(error) = self.label(session, &[(REVISION_LABEL, revision)]).await
        {
            // The session is bound and serves; the label is for people.
            tracing::info!(session = %session.digest, %error, "the negotiated revision was not noted");
        }
        Ok(OpenedSession {
            session: session.clone(),
            binding,
            initialized,
        })
    }

    /// The first handshake of a session with a server.
    async fn initialize_first(
        &self,
        session: &Session,
        server: &Server,
        handshake: &InitializeHandshake,
    ) -> Result<(BindingView, InitializedSession), ResolveError> {
        let claim = self
            .claim_first(session, server)
            .await?
            .ok_or(ResolveError::Unsettled)?;
        // Where nobody else knows the session yet, nobody else can have taken the claim but by its lease.
        self.establish(session, server, claim, handshake)
            .await?
            .ok_or(ResolveError::Unsettled)
    }

    /// Notes the log level the client sets, for a later upstream session.
    ///
    /// # Errors
    /// What the store says.
    pub async fn note_log_level(&self, session: &Session, level: &str) -> Result<(), StoreError> {
        self.label(session, &[(LOG_LEVEL_LABEL, level)]).await
    }

    /// Notes a subscription the client makes or drops at a server, for a later upstream session of it.
    ///
    /// # Errors
    /// What the store says; `LIMIT labels` beyond what a record holds.
    pub async fn note_subscription(
        &self,
        session: &Session,
        server: &ServerName,
        uri: &str,
        subscribed: SubscriptionState,
    ) -> Result<(), StoreError> {
        let name = subscription_label(server, uri);
        let value = match subscribed {
            SubscriptionState::Subscribed => uri,
            SubscriptionState::Unsubscribed => "",
        };
        self.label(session, &[(name.as_bytes(), value)]).await
    }

    async fn label(&self, session: &Session, pairs: &[(&[u8], &str)]) -> Result<(), StoreError> {
        self.set_labels(session, labels(pairs)).await
    }

    pub(super) async fn set_labels(
        &self,
        session: &Session,
        labels: BTreeMap<LabelName, LabelValue>,
    ) -> Result<(), StoreError> {
        let touch = TouchRequest {
            principal: session.principal.clone(),
            ttl: None,
            content_hash: None,
            labels,
            reported: None,
        };
        self.store().touch(&session.key, &touch).await.map(|_| ())
    }
}

/// The labels of a record that name its client's initialize params.
fn initialize_labels(
    params_key: &ParamsKey,
    request: &InitializeRequest<'_>,
) -> BTreeMap<LabelName, LabelValue> {
    let mut noted = params_key.labels();
    noted.extend(labels(&[(REVISION_LABEL, request.revision)]));
    noted
}

/// Whether a resource is subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionState {
    /// It is.
    Subscribed,
    /// Not any more.
    Unsubscribed,
}
