//! Answers to what servers ask during a request over a shared session, in place of a client.

use std::sync::Arc;

use bytes::Bytes;
use mooring_secrets::access_token::AccessToken;
use mooring_session::names::{InstanceName, Principal, UpstreamSession};

use mooring_protocol::{ErrorBody, ErrorKind, Message, Method, call};
use mooring_upstream::{Caller, Client, Instance, Outgoing, Server};
use mooring_usage::for_same_user;

/// Answers server-to-client requests over a shared session, which belong to no particular client. Pings are answered
/// too.
#[derive(Clone, Debug)]
pub struct ServerRequestResponder {
    pub(super) client: Client,
    pub(super) server: Arc<Server>,
    pub(super) instance: Arc<Instance>,
    pub(super) upstream_session: Option<UpstreamSession>,
    pub(super) principal: Principal,
    pub(super) token: Option<Arc<AccessToken>>,
}

impl ServerRequestResponder {
    /// Closes the connections to the instance, over one of which came the reply to another request.
    pub(crate) fn distrust_connections(&self) {
        self.client.distrust_connections(&self.instance);
    }

    /// The instance that the session is at.
    #[must_use]
    pub fn instance(&self) -> &InstanceName {
        &self.instance.name
    }

    /// Sends the answer without waiting for its delivery.
    pub fn answer(&self, request: &Message<'_>) {
        let Some(id) = request.id() else {
            return;
        };
        let text = if request.method() == Method::Ping {
            Bytes::from(call::empty_result(id.as_json()))
        } else {
            ErrorBody::new(ErrorKind::NoSingleClient)
                .answering(Some(id))
                .to_bytes()
        };
        let caller = Caller {
            token: self.token.as_ref(),
            ..Caller::of(&self.principal)
        };
        let outgoing = Outgoing::post(&self.server, text)
            .on_behalf_of(&self.server, &caller)
            .upstream_session(self.upstream_session.as_ref());
        let (client, instance) = (self.client.clone(), Arc::clone(&self.instance));
        tokio::spawn(for_same_user(async move {
            if let Err(error) = client.send_once(&instance, &outgoing).await {
                tracing::info!(%error, "failed to answer a server-to-client request over a pooled session");
            }
        }));
    }
}
