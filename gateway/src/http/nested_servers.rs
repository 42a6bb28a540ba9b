//! Requests that begin inside the gateway: calls of code, and requests for the list of tools. They take the way of
//! every other request.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use mooring_session::names::Principal;
use tokio_util::sync::CancellationToken;

use super::endpoint::{RequestContext, UpstreamContext, delete, serve_message};
use super::target::ServerTarget;
use super::{App, answer, stateful};
use mooring_code::calls::{ReplyError, UpstreamReply, Upstreams};
use mooring_protocol::envelope::Sender;
use mooring_protocol::header::{MCP_PROTOCOL_VERSION, MCP_SESSION_ID};
use mooring_protocol::{ErrorBody, ErrorKind, Message, Revision, call};
use mooring_router::affinity::{InitializeRequest, Session};
use mooring_router::dispatch::{ReadError, ReplyBody, ReplyMessages};

/// In whose name the gateway looks at servers.
const VISITOR: &[u8] = b"mooring";

/// The servers of this gateway, as code and the catalog reach them.
pub(super) struct NestedServers(pub(super) Arc<App>);

impl fmt::Debug for NestedServers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Inside")
    }
}

impl Upstreams for NestedServers {
    fn send(
        &self,
        session: &Session,
        server: &str,
        text: Bytes,
        message_bytes_max: usize,
    ) -> BoxFuture<'static, UpstreamReply> {
        let reply = self.post(session, server, text);
        reply
            .map(move |reply| read(reply, message_bytes_max))
            .boxed()
    }

    fn save_initialize_params(
        &self,
        session: &Session,
    ) -> BoxFuture<'static, Result<(), Box<dyn Error + Send + Sync>>> {
        let (router, session) = (self.0.session_router.clone(), session.clone());
        let saving = async move {
            let request = InitializeRequest {
                params: &call::code_initialize_params(),
                revision: Revision::OFFERED.as_str(),
                text: Bytes::new(),
            };
            Ok(router.note_initialize(&session, &request).await?)
        };
        saving.boxed()
    }

    fn visit(
        &self,
        server: &str,
        session_id: Option<&HeaderValue>,
        text: Bytes,
        message_bytes_max: usize,
    ) -> BoxFuture<'static, UpstreamReply> {
        let reply = match self.visitor(server, session_id) {
            None => unknown(),
            Some(context) => on_its_own(async move {
                match Message::parse(&text, Sender::Client) {
                    Ok(message) => serve_message(context, &text, &message, Revision::OFFERED).await,
                    Err(cause) => answer::error(&ErrorBody::from(&cause)),
                }
            }),
        };
        reply
            .map(move |reply| read(reply, message_bytes_max))
            .boxed()
    }

    fn leave(&self, server: &str, session_id: &HeaderValue) -> BoxFuture<'static, ()> {
        match self.visitor(server, Some(session_id)) {
            Some(context) => delete(context).map(drop).boxed(),
            None => std::future::ready(()).boxed(),
        }
    }
}

impl NestedServers {
    /// Sends a message of a code session to this server; the reply that a client would get.
    pub(super) fn post(
        &self,
        session: &Session,
        server: &str,
        text: Bytes,
    ) -> BoxFuture<'static, http::Response<ReplyBody>> {
        let Some(server) = self.0.servers.get(server).cloned() else {
            return unknown();
        };
        let session = session.clone();
        let context = UpstreamContext {
            app: Arc::clone(&self.0),
            server,
            principal: session.principal.clone(),
            headers: HeaderMap::new(),
            begun: None,
            lane: None,
            client_gone: CancellationToken::new(),
        };
        // The session is kept whatever the server's setting is: code has no other.
        on_its_own(async move {
            match Message::parse(&text, Sender::Client) {
                Ok(message) => stateful::post_in(&context, session, &text, &message).await,
                Err(cause) => answer::error(&ErrorBody::from(&cause)),
            }
        })
    }

    fn visitor(&self, server: &str, session_id: Option<&HeaderValue>) -> Option<RequestContext> {
        let app = Arc::clone(&self.0);
        let target = ServerTarget::Upstream(app.servers.get(server).cloned()?);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        if let Ok(revision) = HeaderValue::from_str(Revision::OFFERED.as_str()) {
            headers.insert(MCP_PROTOCOL_VERSION, revision);
        }
        if let Some(id) = session_id {
            headers.insert(MCP_SESSION_ID, id.clone());
        }
        Some(RequestContext {
            app,
            target,
            principal: Principal::parse(VISITOR).ok()?,
            teams: Arc::default(),
            headers,
            begun: None,
            lane: None,
            client_gone: CancellationToken::new(),
        })
    }
}

/// What was begun is finished, whoever still waits: no half-made binding is left behind.
fn on_its_own(
    work: impl Future<Output = Response> + Send + 'static,
) -> BoxFuture<'static, http::Response<ReplyBody>> {
    let task = tokio::spawn(work);
    task.map(|done| {
        answer::to_be_read(done.unwrap_or_else(|_| answer::plain(ErrorKind::Internal, None)))
    })
    .boxed()
}

/// A reply as code reads it.
fn read(reply: http::Response<ReplyBody>, message_bytes_max: usize) -> UpstreamReply {
    let status = reply.status();
    let session_id = reply.headers().get(MCP_SESSION_ID).cloned();
    let messages = ReplyMessages::of(reply, message_bytes_max);
    let messages = stream::try_unfold(messages, |mut messages| async {
        match messages.next().await {
            Ok(next) => Ok(next.map(|message| (message, messages))),
            Err(error @ ReadError::Broke(_)) => Err(ReplyError::Lost(error.to_string().into())),
            Err(error) => Err(ReplyError::TooLong(error.to_string().into())),
        }
    });
    UpstreamReply {
        status,
        session_id,
        messages: messages.boxed(),
    }
}

fn unknown() -> BoxFuture<'static, http::Response<ReplyBody>> {
    std::future::ready(answer::to_be_read(answer::plain(
        ErrorKind::ServerNotFound,
        None,
    )))
    .boxed()
}
