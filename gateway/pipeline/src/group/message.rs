//! A message to a group, and how it reaches a member.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use mooring_session::record::SessionState;
use mooring_session::rules::TouchRequest;
use mooring_session::view::RecordView;

use super::gather::Scope;
use super::member_reply::{name_member, relay_reply};
use super::members::{Group, Member};
use crate::held_text::into_held;
use crate::order::serve_in_order;
use crate::request::{Request, RequestFields, RequestServer as _, ServerRequest, SessionSource};
use crate::{answer, code, upstream_server};
use mooring_protocol::{ErrorKind, Message, Reply, Revision, Sender};
use mooring_router::affinity::{InFlightKind, RebindNotice, Session};
use mooring_store::StoreError;

/// A request for a group.
pub(super) type GroupRequest<'a> = ServerRequest<'a, Arc<Group>>;

/// A message of a session of the group.
#[derive(Debug)]
pub(super) struct GroupMessage<'a> {
    pub(super) request: &'a GroupRequest<'a>,
    pub(super) session: Session,
    pub(super) body: &'a Bytes,
    pub(super) message: &'a Message<'a>,
    pub(super) revision: Revision,
}

impl GroupMessage<'_> {
    /// Extends the session's TTL. Fails unless the session is live and the caller's.
    pub(super) async fn check_session(&self) -> Result<(), Reply> {
        check_session(self.request, &self.session)
            .await
            .map_err(|cause| answer::store(&cause, self.message.id()))
    }

    /// The session's record, if it is live and the caller's.
    pub(super) async fn record(&self) -> Result<RecordView, Reply> {
        let gone = || answer::plain(ErrorKind::SessionNotFound, self.message.id());
        match self
            .request
            .core
            .session_router
            .store()
            .get(&self.session.key)
            .await
        {
            Ok(record)
                if record.principal == self.session.principal
                    && record.state == SessionState::Active =>
            {
                Ok(record)
            }
            Ok(_) => Err(gone()),
            Err(cause) => Err(answer::store(&cause, self.message.id())),
        }
    }

    /// On whose behalf members are queried.
    pub(super) fn scope(&self) -> Scope {
        Scope {
            session_router: self.request.core.session_router.clone(),
            session: self.session.clone(),
            forwarded: self.request.fields.forwarded.clone(),
            revision: self.revision,
            caller: Arc::clone(&self.request.identity),
            policy: Arc::clone(&self.request.core.policy),
        }
    }

    /// Relays the unchanged message to a member.
    pub(super) async fn relay(&self, member: &Member, moved: &[RebindNotice]) -> Reply {
        self.pass_message(member, self.body, self.message, moved)
            .await
    }

    /// Relays a rewritten message to a member.
    pub(super) async fn relay_text(
        &self,
        member: &Member,
        text: String,
        moved: &[RebindNotice],
    ) -> Reply {
        let memory = self.request.usage.messages();
        let body = match into_held(text.into(), self.body, memory) {
            Ok(body) => body,
            Err(cause) => return answer::no_room(cause, self.message.id()),
        };
        match Message::parse(&body, Sender::Client) {
            Ok(message) => self.pass_message(member, &body, &message, moved).await,
            Err(cause) => {
                tracing::error!(%cause, "a rewritten request is invalid");
                self.refuse(ErrorKind::Internal)
            }
        }
    }

    async fn pass_message(
        &self,
        member: &Member,
        body: &Bytes,
        message: &Message<'_>,
        moved: &[RebindNotice],
    ) -> Reply {
        let request = member_request(self.request, &self.session);
        let route = async |body: &Bytes, message: &Message<'_>| {
            self.serve_member(&request, member, body, message).await
        };
        let reply = serve_in_order(&request.at(member), body, message, route).await;
        if !reply.status.is_success() {
            return name_member(reply, member.id().as_str());
        }
        relay_reply(reply, member.id().as_str(), moved)
    }

    async fn serve_member(
        &self,
        request: &Request,
        member: &Member,
        body: &Bytes,
        message: &Message<'_>,
    ) -> Reply {
        match member {
            Member::Upstream(server) => {
                upstream_server::post(&request.at(server), body, message, self.revision).await
            }
            Member::Code(server) => {
                // No binding is resolved for code, which would have checked the session.
                if let Err(reply) = self.check_session().await {
                    return reply;
                }
                let active_bindings = request.core.session_router.active_bindings();
                let _in_flight =
                    active_bindings.begin(&self.session, &server.id, InFlightKind::Call);
                let request = Request {
                    // The session id in them is the group's, which means nothing to the code server.
                    fields: RequestFields::default(),
                    ..request.clone()
                };
                code::post(&request.at(server), message, self.revision).await
            }
        }
    }

    pub(super) fn refuse(&self, kind: ErrorKind) -> Reply {
        answer::plain(kind, self.message.id())
    }

    pub(super) fn refuse_params(&self, detail: impl std::fmt::Display) -> Reply {
        answer::detailed(ErrorKind::ParamsRefused, self.message.id(), detail)
    }
}

/// The request as it is for a member: in the session of the group.
pub(super) fn member_request(request: &Request, session: &Session) -> Request {
    Request {
        session: SessionSource::Given(session.clone()),
        ..request.clone()
    }
}

pub(super) async fn check_session(request: &Request, session: &Session) -> Result<(), StoreError> {
    let touch = TouchRequest {
        principal: session.principal.clone(),
        ttl: None,
        content_hash: None,
        labels: BTreeMap::new(),
        reported: None,
    };
    let store = request.core.session_router.store();
    store.touch(&session.key, &touch).await.map(|_| ())
}
