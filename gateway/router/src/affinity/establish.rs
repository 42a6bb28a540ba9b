//! Establishing: the holder of a claim creates the upstream session for it.
//!
//! Invariant: an upstream session that is not recorded is deleted upstream.

use bytes::Bytes;
use mooring_session::Refusal;
use mooring_session::limits::LEASE_MIN;
use mooring_session::names::{InstanceName, LabelName, Token, UpstreamSession};
use mooring_session::rules::{
    BindRequest, ConfirmRequest, LossReport, Ownership, RebindRequest, UnbindRequest,
};
use mooring_session::time::Millis;
use mooring_session::view::{BindingView, RecordView};

use super::owned::ConnectionKey;
use super::resolve::{ResolveError, lease};
use super::restored_state::RestoredState;
use super::{Loss, Session, SessionRouter, caller_of};
use mooring_metrics as metrics;
use mooring_protocol::call;
use mooring_store::{InitDigest, StoreError, fresh_token};
use mooring_upstream::{
    Caller, Completion, HandshakeError, InitializeHandshake, InitializedSession, Instance,
    InstanceTransport, Outgoing, Server, discard, initialize,
};

/// The label with the digest of the client's initialize params.
pub(super) const INIT_LABEL: &[u8] = b"init";
/// The label with the negotiated revision.
pub(super) const REVISION_LABEL: &[u8] = b"protocol_version";

/// A claim of this attempt.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) binding: BindingView,
    pub(super) token: Token,
}

impl SessionRouter {
    /// The BIND of this attempt: it claims a server, and repeated it renews the claim.
    pub(super) fn bid(
        &self,
        session: &Session,
        server: &Server,
        token: &Token,
        lease: Millis,
    ) -> BindRequest {
        BindRequest {
            principal: session.principal.clone(),
            server: server.id.clone(),
            worker: self.worker().clone(),
            token: token.clone(),
            lease,
            instances: server.candidate_names(),
            upstream_session: None,
            ownership: server.ownership,
        }
    }

    /// Claims a server that the session has not used yet. `None` if another attempt has claimed it.
    pub(super) async fn claim_first(
        &self,
        session: &Session,
        server: &Server,
    ) -> Result<Option<Claim>, ResolveError> {
        let token = fresh_token()?;
        let bid = self.bid(session, server, &token, self.options().claim_lease);
        let bound = self.store().bind(&session.key, &bid).await?;
        Ok(bound.won.then_some(Claim {
            binding: bound.binding,
            token,
        }))
    }

    /// Initializes upstream under the claim as the session's client did, and restores the client's settings in the new
    /// upstream session: it may have set the log level before it first used this server. `None` if the claim was lost
    /// to another attempt meanwhile.
    ///
    /// # Errors
    /// As [`SessionRouter::establish`], or the client's params are no longer stored.
    pub(super) async fn establish_from_record(
        &self,
        session: &Session,
        server: &Server,
        claim: Claim,
    ) -> Result<Option<BindingView>, ResolveError> {
        let (handshake, restored_state) = match self.stored_handshake(session, server).await {
            Ok(stored) => stored,
            Err(error) => {
                self.give_up(session, server, &claim).await;
                return Err(error);
            }
        };
        let established = self.establish(session, server, claim, &handshake).await?;
        let Some((binding, initialized)) = established else {
            return Ok(None);
        };
        self.restore(session, server, &binding, &initialized, &restored_state)
            .await;
        Ok(Some(binding))
    }

    /// Initializes upstream under the claim, and moves the claim to other instances while they are unreachable. `None`
    /// if the claim was lost to another attempt meanwhile.
    ///
    /// # Errors
    /// No instance could be initialized; the claim is dropped.
    pub(super) async fn establish(
        &self,
        session: &Session,
        server: &Server,
        mut claim: Claim,
        handshake: &InitializeHandshake,
    ) -> Result<Option<(BindingView, InitializedSession)>, ResolveError> {
        let mut untried = server.instance_names();
        loop {
            untried.retain(|name| *name != claim.binding.instance);
            let error = match self.try_instance(session, server, &claim, handshake).await {
                Ok(initialized) => return self.confirm(session, server, &claim, initialized).await,
                Err(error) => error,
            };
            tracing::warn!(
                session = %session.digest,
                server = %server.id,
                instance = %claim.binding.instance,
                %error,
                "failed to initialize an instance"
            );
            if !error.should_try_another_instance() {
                self.give_up(session, server, &claim).await;
                return Err(ResolveError::Handshake(error));
            }
            if untried.is_empty() {
                metrics::affinity_failure("no_instance");
                self.give_up(session, server, &claim).await;
                return Err(ResolveError::NoInstance(error));
            }
            match self
                .move_claim(session, server, &claim, untried.clone())
                .await?
            {
                Some(moved) => claim = moved,
                None => return Ok(None),
            }
        }
    }

    async fn try_instance(
        &self,
        session: &Session,
        server: &Server,
        claim: &Claim,
        handshake: &InitializeHandshake,
    ) -> Result<InitializedSession, HandshakeError> {
        let Some(instance) = server.instance(&claim.binding.instance) else {
            // Cannot happen: the claim's instances come from the server.
            return Err(HandshakeError::Exchange(
                mooring_upstream::ExchangeError::NoResponse,
            ));
        };
        let initialized = match server.ownership {
            Ownership::Shared => {
                let (client, limit) = (self.client(), self.options().answer_timeout);
                let way = InstanceTransport { client, instance };
                let initialized =
                    initialize(&way, server, handshake, &caller_of(session), limit).await;
                if let Ok(initialized) = &initialized {
                    server.note_statefulness(instance, initialized.upstream_session.as_ref());
                }
                initialized
            }
            Ownership::Owned => {
                self.connect(session, server, instance, claim, handshake)
                    .await
            }
        };
        instance.contact.note_handshake(&initialized);
        initialized
    }

    async fn confirm(
        &self,
        session: &Session,
        server: &Server,
        claim: &Claim,
        initialized: InitializedSession,
    ) -> Result<Option<(BindingView, InitializedSession)>, ResolveError> {
        let request = ConfirmRequest {
            principal: session.principal.clone(),
            server: server.id.clone(),
            epoch: claim.binding.epoch,
            token: claim.token.clone(),
            upstream_session: initialized.upstream_session.clone(),
        };
        let error = match self.store().confirm(&session.key, &request).await {
            Ok(binding) => {
                self.waiters().note_binding(&session.key, &server.id);
                return Ok(Some((binding, initialized)));
            }
            Err(error) => error,
        };
        if server.ownership == Ownership::Owned {
            self.owned_connections()
                .close(&ConnectionKey::of(session, server), claim.binding.epoch);
        } else if let (Some(instance), Some(upstream_session)) = (
            server.instance(&claim.binding.instance),
            initialized.upstream_session,
        ) {
            let caller = caller_of(session);
            self.delete_upstream(server, instance, upstream_session, &caller)
                .await;
        }
        match error {
            StoreError::Refused(Refusal::Stale(_)) => Ok(None),
            error => Err(error.into()),
        }
    }

    /// Moves this attempt's claim to an instance that it has not tried.
    async fn move_claim(
        &self,
        session: &Session,
        server: &Server,
        claim: &Claim,
        untried: Vec<InstanceName>,
    ) -> Result<Option<Claim>, StoreError> {
        let request = RebindRequest {
            principal: session.principal.clone(),
            server: server.id.clone(),
            epoch: claim.binding.epoch,
            worker: self.worker().clone(),
            token: claim.token.clone(),
            lease: lease(self),
            instances: untried,
            avoid: None,
            reason: super::resolve::reason_text(Loss::InstanceRefuses),
            upstream_session: None,
            ownership: server.ownership,
            report: LossReport::ByCaller,
        };
        let rebound = self.store().rebind(&session.key, &request).await?;
        Ok(rebound.won.then(|| Claim {
            binding: rebound.binding,
            token: claim.token.clone(),
        }))
    }

    /// Drops the claim, so that the next request need not wait for its lease. If this fails, the lease expires.
    ///
    /// The claim of a moved binding is not dropped but expires at once: the next attempt must see that there was an
    /// earlier binding, and tell the client that its state is lost.
    pub(super) async fn give_up(&self, session: &Session, server: &Server, claim: &Claim) {
        let given_up = if claim.binding.rebinds == 0 {
            self.unbind(session, server, claim).await
        } else {
            self.let_lapse(session, server, claim).await
        };
        if let Err(error) = given_up {
            tracing::debug!(session = %session.digest, %error, "failed to drop a claim");
        }
    }

    async fn unbind(
        &self,
        session: &Session,
        server: &Server,
        claim: &Claim,
    ) -> Result<(), StoreError> {
        let request = UnbindRequest {
            principal: session.principal.clone(),
            server: server.id.clone(),
            epoch: claim.binding.epoch,
            token: Some(claim.token.clone()),
        };
        self.store()
            .unbind(&session.key, &request)
            .await
            .map(|_| ())
    }

    /// BIND by the holder renews its lease; with the minimum lease, the claim expires.
    async fn let_lapse(
        &self,
        session: &Session,
        server: &Server,
        claim: &Claim,
    ) -> Result<(), StoreError> {
        let request = self.bid(session, server, &claim.token, LEASE_MIN);
        self.store().bind(&session.key, &request).await.map(|_| ())
    }

    /// The client's handshake as stored, and the state to restore in its new upstream session.
    ///
    /// # Errors
    /// [`ResolveError::ParamsGone`] if the params are no longer stored.
    pub(super) async fn stored_handshake(
        &self,
        session: &Session,
        server: &Server,
    ) -> Result<(InitializeHandshake, RestoredState), ResolveError> {
        let record = self.store().get(&session.key).await?;
        let digest = init_digest(&record).ok_or(ResolveError::ParamsGone)?;
        let params = self
            .store()
            .get_init(&digest)
            .await?
            .ok_or(ResolveError::ParamsGone)?;
        let handshake = InitializeHandshake {
            text: Bytes::from(call::initialize(&self.next_id(), &params)),
            completion: Completion::ByGateway,
        };
        Ok((handshake, RestoredState::of(&record, &server.id)))
    }

    /// Deletes an unreferenced upstream session. Failures are logged, and its instance expires it.
    pub async fn delete_upstream(
        &self,
        server: &Server,
        instance: &Instance,
        upstream_session: UpstreamSession,
        caller: &Caller<'_>,
    ) {
        let deletion = Outgoing::delete(server).on_behalf_of(server, caller);
        let limit = self.deletion_timeout();
        discard(self.client(), instance, &deletion, &upstream_session, limit).await;
    }
}

/// The digest of the client's initialize params.
/// The digest of the params with which the session's client introduced itself; none if it has not, and of no other session
/// if they are long.
#[must_use]
pub fn init_digest(record: &RecordView) -> Option<InitDigest> {
    let name = LabelName::parse(INIT_LABEL).ok()?;
    InitDigest::parse(record.labels.get(&name)?.as_str())
}
