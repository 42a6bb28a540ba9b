//! The messages of a group's clients: each is for one member, for all, or for the group itself.
//!
//! Requests for one member are served like at that member's own endpoint, over the group's session record. Requests for
//! all members are sent to all and answered here. Invariant: a request is answered once, and nothing is invented for a
//! member that did not answer: it is reported as missing.

use bytes::Bytes;
use http::StatusCode;

use super::message::{GroupMessage, GroupRequest};
use super::open;
use crate::answer;
use crate::request::is_initialize;
use mooring_protocol::{ErrorKind, Kind, Listing, Message, Method, Reply, Revision, call};

/// Serves one message.
pub(crate) async fn post(
    request: &GroupRequest<'_>,
    body: &Bytes,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    if is_initialize(message) {
        return open::initialize(request, message, revision).await;
    }
    let session = match request.session() {
        Ok(session) => session,
        Err(kind) => return answer::plain(kind, message.id()),
    };
    let group_message = GroupMessage {
        request,
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
        (Kind::Request, method) => group_message.serve_request(method).await,
    }
}

impl GroupMessage<'_> {
    async fn serve_request(&self, method: Method) -> Reply {
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
}
