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
use mooring_secrets::digest;
use mooring_store::{EndCause, StoreError, labels};
use mooring_upstream::{Completion, InitializeHandshake, InitializedSession, Server};
use mooring_usage::for_same_user;

/// The window of the limit on new sessions.
const MINUTE: Millis = Millis::new(60_000);

/// A session that has just begun.
#[derive(Debug)]
pub struct OpenedSession {
    /// The new session.
    pub session: Session,
    /// Where its calls go.
    pub binding: BindingView,
    /// The upstream's answer, which is the client's.
    pub initialized: InitializedSession,
}

/// Why a session did not begin. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store refused or was unreachable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No instance created an upstream session.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The principal is at its session limit, and all its sessions are in use.
    #[error("the principal holds {0} sessions, as many as it may, and all of them are in use")]
    AtCap(u64),
    /// Another new session of the principal, opened by a peer, replaced it before it was bound.
    #[error("another new session of the principal took its place")]
    Displaced,
    /// The principal has reached its limit of new sessions per minute.
    #[error("the principal has begun {limit} sessions within a minute, as many as it may")]
    TooFast {
        /// That limit.
        limit: u64,
        /// After which time it may begin another.
        retry_after: Millis,
    },
    /// The params of the `initialize` exceed [`INIT_PARAMS_BYTES_MAX`].
    #[error("the params of initialize have {0} bytes; at most {INIT_PARAMS_BYTES_MAX} are taken")]
    ParamsTooLong(usize),
    /// A name made by the gateway was refused, which is a defect.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl OpenError {
    /// A new session can only have ended because of the session limit: between its CREATE and its BIND it looks idle to
    /// peers.
    pub(super) fn or_displaced(self) -> Self {
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
    /// How the client came, if this begins its session: for the session's history.
    pub transport: Option<&'static str>,
    /// Its params, as the client wrote them.
    pub params: &'a str,
    /// The requested revision.
    pub revision: &'a str,
    /// The whole request, as sent upstream.
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
    /// Creates the record of a minted session, claims an instance, performs the handshake, and confirms.
    ///
    /// # Errors
    /// See [`OpenError`]; the record is ended again.
    pub async fn open(
        &self,
        session: Session,
        server: &Server,
        request: &InitializeRequest<'_>,
    ) -> Result<OpenedSession, OpenError> {
        // From here on the session is in use, and this gateway does not end it for another.
        let in_flight = self
            .active_bindings()
            .begin(&session, &server.id, InFlightKind::Call);
        let opened = async {
            self.begin(&session, request).await?;
            self.initialize_with(&session, server, request).await
        };
        let opened = opened.await.map_err(OpenError::or_displaced);
        match &opened {
            Ok(_) => in_flight.set_holder(BindingHolder::This),
            Err(error) => self.cancel_open(&session, error).await,
        }
        opened
    }

    /// Creates the record of an unbound session, and stores its client's params.
    ///
    /// # Errors
    /// `Store`, `AtCap`, `TooFast`, `ParamsTooLong`; nothing of the session is left.
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
        self.note_created(session, request);
        Ok(())
    }

    /// Creates the record of a session before its `initialize`, because the stream of a legacy client opens first.
    ///
    /// # Errors
    /// `Store`, `AtCap`, `TooFast`; nothing of the session is left.
    pub async fn begin_uninitialized(
        &self,
        principal: &Principal,
        server: &ServerName,
    ) -> Result<Session, OpenError> {
        self.check_rate(principal).await?;
        let prefix = &self.options().key_prefix;
        let session = Session::mint(prefix, principal.clone(), server.as_str())?;
        let create = self.creation(&session, BTreeMap::new());
        self.admit(&session, &create).await?;
        Ok(session)
    }

    /// Binds a server in a session that was created before its client's `initialize`.
    ///
    /// # Errors
    /// See [`OpenError`]; the session is unchanged.
    pub async fn open_in(
        &self,
        session: &Session,
        server: &Server,
        request: &InitializeRequest<'_>,
    ) -> Result<OpenedSession, OpenError> {
        self.note_initialize(session, request).await?;
        self.initialize_with(session, server, request).await
    }

    /// Stores the initialize params of a session that was created before them.
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
        self.set_labels(session, labels).await?;
        self.note_created(session, request);
        Ok(())
    }

    /// Binds a server in a session with its client's initialize params.
    ///
    /// # Errors
    /// See [`ResolveError`]; `ClaimPending` if the server is bound or claimed already.
    pub async fn initialize(
        &self,
        session: &Session,
        server: &Server,
    ) -> Result<(BindingView, InitializedSession), ResolveError> {
        let (handshake, _) = self.stored_handshake(session, server).await?;
        self.open_binding(session, server, handshake).await
    }

    /// Ends a session that could not be opened.
    async fn cancel_open(&self, session: &Session, error: &OpenError) {
        tracing::warn!(session = %session.digest, %error, "failed to open a session");
        let is_created = !matches!(
            error,
            OpenError::AtCap(_) | OpenError::TooFast { .. } | OpenError::ParamsTooLong(_)
        );
        if !is_created {
            return;
        }
        // In a task: if the store did not answer, waiting for it once more would delay the client's reply.
        if let OpenError::Store(StoreError::NotReady(_)) = error {
            let (router, session) = (self.clone(), session.clone());
            tokio::spawn(for_same_user(async move {
                router.close_lost(&session, EndCause::NotOpened).await
            }));
        } else {
            self.close_lost(session, EndCause::NotOpened).await;
        }
    }

    /// Counts a new session of the principal, fleet-wide.
    pub(super) async fn check_rate(&self, principal: &Principal) -> Result<(), OpenError> {
        let Some(limit) = self.session_limits().initializes_per_minute else {
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
            cap: self.session_limits().sessions_max,
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
        let (binding, initialized) = self.open_binding(session, server, handshake).await?;
        if let Some(revision) = &initialized.revision
            && **revision != *request.revision
            && let Err(error) = self.label(session, &[(REVISION_LABEL, revision)]).await
        {
            // The session is bound and works; the label is informational.
            tracing::info!(session = %session.digest, %error, "failed to record the negotiated revision");
        }
        Ok(OpenedSession {
            session: session.clone(),
            binding,
            initialized,
        })
    }

    /// Records the client's log level, for a later upstream session.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn note_log_level(&self, session: &Session, level: &str) -> Result<(), StoreError> {
        self.label(session, &[(LOG_LEVEL_LABEL, level)]).await
    }

    /// Records a subscription that the client adds or removes at a server, for a later upstream session.
    ///
    /// # Errors
    /// Errors of the store; `LIMIT labels` if the record is full.
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

/// The labels of a client's initialize params.
fn initialize_labels(
    params_key: &ParamsKey,
    request: &InitializeRequest<'_>,
) -> BTreeMap<LabelName, LabelValue> {
    let mut noted = params_key.labels();
    noted.extend(labels(&[(REVISION_LABEL, request.revision)]));
    noted
}

/// Whether the client is subscribed to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionState {
    /// It is subscribed.
    Subscribed,
    /// It is no longer subscribed.
    Unsubscribed,
}
