//! The MCP endpoint of a group: several servers, one session.
//!
//! Requests for one member are served like at that member's own endpoint, over the group's session record. Requests for
//! all members are sent to all and answered here. Invariant: a request is answered once, and nothing is invented for a
//! member that did not answer: it is reported as missing.

mod calls;
mod listen;
mod lists;
mod member_reply;
mod one_way;
mod open;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use mooring_session::record::SessionState;
use mooring_session::rules::TouchRequest;
use mooring_session::view::RecordView;

use self::member_reply::{name_member, relay_reply};
use super::code::CodeContext;
use super::endpoint::{RequestContext, UpstreamContext, is_initialize};
use super::hooked_call::serve_hooked;
use super::request_body::into_held;
use super::{answer, code, stateful};
use crate::group::{Group, Member, Scope};
use mooring_protocol::{
    ErrorBody, ErrorKind, Kind, Listing, Message, Method, Reply, Revision, Sender, call,
};
use mooring_router::affinity::{InFlightKind, RebindNotice, Session};
use mooring_store::StoreError;
use mooring_upstream::Server;

pub(super) use self::listen::get;

/// A request for a group.
pub(super) type GroupContext = RequestContext<Arc<Group>>;

/// Serves one message.
pub(super) async fn post(
    context: &GroupContext,
    body: &Bytes,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    if is_initialize(message) {
        return open::initialize(context, message, revision).await;
    }
    let session = match context.session() {
        Ok(session) => session,
        Err(kind) => return answer::plain(kind, message.id()),
    };
    let group_message = GroupMessage {
        context,
        session,
        body,
        message,
        revision,
    };
    match (message.kind(), message.method()) {
        (Kind::Result | Kind::Error, _) | (Kind::Notification, Method::Progress) => {
            group_message.answer_member().await
        }
        // The gateway has completed the members' handshakes itself.
        (Kind::Notification, Method::Initialized) => match group_message.check_session().await {
            Ok(()) => Reply::empty(StatusCode::ACCEPTED),
            Err(reply) => reply,
        },
        (Kind::Notification, _) => group_message.notify_bound_members().await,
        (Kind::Request, method) => group_message.request(method).await,
    }
}

/// A message of a session of the group.
#[derive(Debug)]
struct GroupMessage<'a> {
    context: &'a GroupContext,
    session: Session,
    body: &'a Bytes,
    message: &'a Message<'a>,
    revision: Revision,
}

impl GroupMessage<'_> {
    async fn request(&self, method: Method) -> Reply {
        if let Some(listing) = Listing::of(method) {
            return self.list(listing).await;
        }
        match method {
            Method::Ping => match (self.check_session().await, self.message.id()) {
                (Ok(()), Some(id)) => Reply::json(StatusCode::OK, call::empty_result(id.as_json())),
                (Ok(()), None) => answer::plain(ErrorKind::InvalidRequest, None),
                (Err(reply), _) => reply,
            },
            Method::ToolsCall => self.to_named(Listing::Tools).await,
            Method::PromptsGet => self.to_named(Listing::Prompts).await,
            Method::CompletionComplete => self.complete().await,
            Method::ResourcesRead | Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => {
                self.to_resource(method).await
            }
            Method::LoggingSetLevel => self.set_level().await,
            // For a method that it does not know, the group cannot tell which member is meant.
            _ => match self.check_session().await {
                Ok(()) => self.refuse(ErrorKind::MethodNotFound),
                Err(reply) => reply,
            },
        }
    }

    /// Extends the session's TTL. Fails unless the session is live and the caller's.
    async fn check_session(&self) -> Result<(), Reply> {
        check_session(self.context, &self.session)
            .await
            .map_err(|cause| answer::store(&cause, self.message.id()))
    }

    /// The session's record, if it is live and the caller's.
    async fn record(&self) -> Result<RecordView, Reply> {
        let gone = || answer::plain(ErrorKind::SessionNotFound, self.message.id());
        match self
            .context
            .app
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
    fn scope(&self) -> Scope {
        Scope {
            session_router: self.context.app.session_router.clone(),
            session: self.session.clone(),
            headers: Arc::new(self.context.headers.clone()),
            revision: self.revision,
            caller: Arc::clone(&self.context.identity),
            policy: Arc::clone(&self.context.app.policy),
        }
    }

    /// Relays the unchanged message to a member.
    async fn relay(&self, member: &Member, moved: &[RebindNotice]) -> Reply {
        self.pass_message(member, self.body, self.message, moved)
            .await
    }

    /// Relays a rewritten message to a member.
    async fn relay_text(&self, member: &Member, text: String, moved: &[RebindNotice]) -> Reply {
        let memory = self.context.usage.messages();
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
        let route = self.context.call_route(member.id());
        let serve = async |body: &Bytes, message: &Message<'_>| {
            self.serve_member(member, body, message).await
        };
        let reply = serve_hooked(
            &self.context.app,
            &self.context.usage,
            route,
            body,
            message,
            serve,
        )
        .await;
        if !reply.status.is_success() {
            return name_member(reply, member.id());
        }
        relay_reply(reply, member.id(), moved)
    }

    async fn serve_member(&self, member: &Member, body: &Bytes, message: &Message<'_>) -> Reply {
        match member {
            Member::Upstream(server) => {
                let context = member_context(self.context, server);
                stateful::post(&context, body, message, self.revision).await
            }
            Member::Code(server) => {
                // No binding is resolved for code, which would have checked the session.
                if let Err(reply) = self.check_session().await {
                    return reply;
                }
                let session_router = &self.context.app.session_router;
                let _in_flight = session_router.active_bindings().begin(
                    &self.session,
                    &server.id,
                    InFlightKind::Call,
                );
                let context = CodeContext {
                    // The session id in them is the group's, which means nothing to the code server.
                    headers: HeaderMap::new(),
                    ..self.context.clone().at(Arc::clone(server))
                };
                code::post(&context, message, self.revision).await
            }
        }
    }

    fn refuse(&self, kind: ErrorKind) -> Reply {
        answer::plain(kind, self.message.id())
    }

    fn refuse_params(&self, detail: impl std::fmt::Display) -> Reply {
        let body = ErrorBody::new(ErrorKind::ParamsRefused).answering(self.message.id());
        answer::error(&body.detail(detail))
    }
}

/// The same request at an upstream member.
fn member_context(context: &GroupContext, server: &Arc<Server>) -> UpstreamContext {
    UpstreamContext {
        begun: None,
        ..context.clone().at(Arc::clone(server))
    }
}

async fn check_session(context: &GroupContext, session: &Session) -> Result<(), StoreError> {
    let touch = TouchRequest {
        principal: session.principal.clone(),
        ttl: None,
        content_hash: None,
        labels: BTreeMap::new(),
        reported: None,
    };
    let store = context.app.session_router.store();
    store.touch(&session.key, &touch).await.map(|_| ())
}
