//! Opening: a client initializes, and gets a session bound to one instance.

use std::collections::BTreeMap;

use bytes::Bytes;
use mooring_session::Refusal;
use mooring_session::names::{LabelName, LabelValue, NameError, Principal};
use mooring_session::rules::{Bind, Create, Ownership, Revival, Touch};
use mooring_session::view::BindingView;

use super::driven::{Driver, InFlightKind};
use super::establish::{
    Claim, INIT_LABEL, LOG_LEVEL_LABEL, REVISION_LABEL, SUBSCRIPTION_LABEL_PREFIX,
};
use super::{Affinity, Session, SettleError};
use crate::store::{InitDigest, StoreError};
use crate::upstream::{Completion, Greeting, Initialized, Server};
use crate::{digest, metrics};

/// A session that has just begun.
#[derive(Debug)]
pub struct Opened {
    /// The new session.
    pub session: Session,
    /// Where its calls go.
    pub binding: BindingView,
    /// The upstream's own answer, which is the client's.
    pub initialized: Initialized,
}

/// Why a session did not begin. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store refused, or could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No instance began an upstream session.
    #[error(transparent)]
    Settle(#[from] SettleError),
    /// The principal holds as many sessions as it may, and none of them is idle.
    #[error("the principal holds {0} sessions, as many as it may, and all of them are in use")]
    AtCap(u64),
    /// Another new session of the principal, opened by another worker, took its place before it was bound.
    #[error("another new session of the principal took its place")]
    Displaced,
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
            | Self::Settle(SettleError::Store(StoreError::Refused(
                Refusal::Ended | Refusal::NoSession,
            ))) => Self::Displaced,
            other => other,
        }
    }
}

/// The client's `initialize`.
#[derive(Clone, Debug)]
pub struct Introduction<'a> {
    /// Its params, as the client wrote them.
    pub params: &'a str,
    /// The revision it asks for.
    pub revision: &'a str,
    /// The whole request as it goes upstream.
    pub text: Bytes,
}

impl Affinity {
    /// Creates the record, claims an instance, makes the handshake, and confirms.
    ///
    /// # Errors
    /// See [`OpenError`]; a record already created is ended again.
    pub async fn open(
        &self,
        principal: &Principal,
        server: &Server,
        introduction: &Introduction<'_>,
    ) -> Result<Opened, OpenError> {
        let session = Session::mint(&self.options().key_prefix, principal.clone())?;
        let opened = self
            .open_as(&session, server, introduction)
            .await
            .map_err(OpenError::or_displaced);
        if let Err(error) = &opened {
            tracing::warn!(session = %session.digest, server = %server.id, %error, "a session could not be opened");
            if !matches!(error, OpenError::AtCap(_)) {
                self.close_lost(&session).await;
            }
        }
        opened
    }

    async fn open_as(
        &self,
        session: &Session,
        server: &Server,
        introduction: &Introduction<'_>,
    ) -> Result<Opened, OpenError> {
        let ttl = self.options().session_ttl;
        let params_digest = InitDigest::of(introduction.params);
        let create = Create {
            id: session.id.clone(),
            principal: session.principal.clone(),
            ttl,
            content_hash: None,
            labels: labels(&[
                (INIT_LABEL, params_digest.as_str()),
                (REVISION_LABEL, introduction.revision),
            ]),
            revival: Revival::Allowed,
            cap: self.options().sessions_max,
        };
        let keeping_params = async {
            let params = introduction.params;
            Ok(self.store().put_init(&params_digest, params).await?)
        };
        // From here on it is in use, and no cap ends it for another session that is opened here.
        let in_flight = self.driven().begin(session, &server.id, InFlightKind::Call);
        tokio::try_join!(self.admit(session, &create), keeping_params)?;
        metrics::affinity_miss();
        let token = self.attempt()?;
        let bind = Bind {
            principal: session.principal.clone(),
            server: server.id.clone(),
            worker: self.worker().clone(),
            token: token.clone(),
            lease: self.options().claim_lease,
            instances: server.instance_names(),
            upstream_session: None,
            ownership: Ownership::Shared,
        };
        let bound = self.store().bind(&session.key, &bind).await?;
        let greeting = Greeting {
            text: introduction.text.clone(),
            completion: Completion::ByClient,
        };
        let claim = Claim {
            binding: bound.binding,
            token,
        };
        // Nobody else knows the id yet, so nobody else can have taken the claim but by its lease.
        let (binding, initialized) = self
            .establish(session, server, claim, &greeting)
            .await?
            .ok_or(SettleError::Unsettled)?;
        if let Some(revision) = &initialized.revision
            && **revision != *introduction.revision
            && let Err(error) = self.label(session, &[(REVISION_LABEL, revision)]).await
        {
            // The session is bound and serves; the label is for people.
            tracing::info!(session = %session.digest, %error, "the negotiated revision was not noted");
        }
        in_flight.driven_by(Driver::This);
        Ok(Opened {
            session: session.clone(),
            binding,
            initialized,
        })
    }

    /// Notes the log level the client sets, for a later upstream session.
    ///
    /// # Errors
    /// What the store says.
    pub async fn note_log_level(&self, session: &Session, level: &str) -> Result<(), StoreError> {
        self.label(session, &[(LOG_LEVEL_LABEL, level)]).await
    }

    /// Notes a subscription the client makes or drops, for a later upstream session.
    ///
    /// # Errors
    /// What the store says; `LIMIT labels` beyond what a record holds.
    pub async fn note_subscription(
        &self,
        session: &Session,
        uri: &str,
        subscribed: Subscribed,
    ) -> Result<(), StoreError> {
        let name = format!("{SUBSCRIPTION_LABEL_PREFIX}{}", digest::short(uri));
        let value = match subscribed {
            Subscribed::Yes => uri,
            Subscribed::No => "",
        };
        self.label(session, &[(name.as_bytes(), value)]).await
    }

    async fn label(&self, session: &Session, pairs: &[(&[u8], &str)]) -> Result<(), StoreError> {
        let touch = Touch {
            principal: session.principal.clone(),
            ttl: None,
            content_hash: None,
            labels: labels(pairs),
        };
        self.store().touch(&session.key, &touch).await.map(|_| ())
    }
}

/// Whether a resource is subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subscribed {
    /// It is.
    Yes,
    /// Not any more.
    No,
}

/// Labels from pairs; a pair that is out of the limits of a label is left out, because it only serves convenience.
fn labels(pairs: &[(&[u8], &str)]) -> BTreeMap<LabelName, LabelValue> {
    pairs
        .iter()
        .filter_map(|(name, value)| {
            let name = LabelName::parse(name).ok()?;
            let value = LabelValue::parse(value.as_bytes()).ok()?;
            Some((name, value))
        })
        .collect()
}
