//! Establishing: an upstream session is created under a claim, at the instance that the claim names.

use bytes::Bytes;
use mooring_delivery::{Claim, ResolveFailure};
use mooring_session::names::{LabelName, UpstreamSession};
use mooring_session::rules::Ownership;
use mooring_session::view::RecordView;

use super::owned::ConnectionKey;
use super::resolve::RouterErrors;
use super::restored_state::RestoredState;
use super::{Session, SessionRouter, caller_of};
use mooring_protocol::call;
use mooring_store::InitDigest;
use mooring_upstream::{
    Caller, Completion, ExchangeError, HandshakeError, InitializeHandshake, InitializedSession,
    Instance, InstanceTransport, Outgoing, Server, discard, initialize,
};

/// The label with the digest of the client's initialize params.
pub(super) const INIT_LABEL: &[u8] = b"init";
/// The label with the negotiated revision.
pub(super) const REVISION_LABEL: &[u8] = b"protocol_version";

impl SessionRouter {
    /// Initializes the claim's instance.
    pub(super) async fn initialize_claimed(
        &self,
        session: &Session,
        server: &Server,
        claim: &Claim,
        handshake: &InitializeHandshake,
    ) -> Result<InitializedSession, HandshakeError> {
        let Some(instance) = server.instance(&claim.binding.instance) else {
            // Cannot happen: the claim's instances come from the server.
            return Err(HandshakeError::Exchange(ExchangeError::NoResponse));
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

    /// Deletes the upstream session that was initialized under a claim and is not recorded.
    pub(super) async fn discard_claimed(
        &self,
        session: &Session,
        server: &Server,
        claim: &Claim,
        upstream_session: Option<UpstreamSession>,
    ) {
        if server.ownership == Ownership::Owned {
            self.owned_connections()
                .close(&ConnectionKey::of(session, server), claim.binding.epoch);
        } else if let (Some(instance), Some(upstream_session)) =
            (server.instance(&claim.binding.instance), upstream_session)
        {
            let caller = caller_of(session);
            self.delete_upstream(server, instance, upstream_session, &caller)
                .await;
        }
    }

    /// The client's handshake as stored, and the state to restore in its new upstream session.
    ///
    /// # Errors
    /// `Store`; `ParamsGone` if the params are no longer stored.
    pub(super) async fn stored_handshake(
        &self,
        session: &Session,
        server: &Server,
    ) -> Result<(InitializeHandshake, RestoredState), ResolveFailure<RouterErrors>> {
        let store = self.store();
        let record = store.get(&session.key).await;
        let record = record.map_err(ResolveFailure::Store)?;
        let digest = init_digest(&record).ok_or(ResolveFailure::ParamsGone)?;
        let params = store.get_init(&digest).await;
        let params = (params.map_err(ResolveFailure::Store)?).ok_or(ResolveFailure::ParamsGone)?;
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

/// The digest of the params with which the session's client introduced itself; none if it has not, and of no other session
/// if they are long.
#[must_use]
pub fn init_digest(record: &RecordView) -> Option<InitDigest> {
    let name = LabelName::parse(INIT_LABEL).ok()?;
    InitDigest::parse(record.labels.get(&name)?.as_str())
}
