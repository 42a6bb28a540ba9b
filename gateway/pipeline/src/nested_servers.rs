//! Requests that begin inside the gateway: calls of code, which pass the same steps as those of clients from that of the
//! tool on, and visits for lists of tools, which go to their server at once.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::HeaderValue;
use mooring_session::names::{Principal, SessionId};

use super::order::serve_in_order;
use super::request::{Request, RequestFields, SessionSource};
use super::serving_core::ServingCore;
use super::{answer, stateful, upstream_server};
use mooring_code::calls::Upstreams;
use mooring_identity::Identity;
use mooring_protocol::envelope::Sender;
use mooring_protocol::{
    CompleteWith, EnvelopeError, ErrorBody, ErrorKind, Message, Reply, Revision, call,
};
use mooring_router::affinity::{InitializeRequest, Session};
use mooring_traces::{Span, SpanKind, TraceScope, in_scope};
use mooring_upstream::{Server, describe_message, note_reply};
use mooring_usage::for_same_user;

/// The servers of this gateway, for code of one caller and for the catalog.
pub struct NestedServers {
    core: Arc<ServingCore>,
    caller: Arc<Identity>,
}

impl fmt::Debug for NestedServers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("NestedServers")
    }
}

impl Upstreams for NestedServers {
    fn send(&self, session: &Session, server: &str, text: Bytes) -> BoxFuture<'static, Reply> {
        let source = SessionSource::Given(session.clone());
        let caller = Arc::clone(&self.caller);
        let Some((request, server)) =
            self.request(server, caller, RequestFields::default(), source)
        else {
            return unknown();
        };
        run_to_completion(async move {
            let message = match Message::parse(&text, Sender::Client) {
                Ok(message) => message,
                Err(cause) => return unreadable(&cause),
            };
            let request = request.at(&server);
            let route = async |body: &Bytes, message: &Message<'_>| {
                stateful::post(&request, body, message, Revision::OFFERED).await
            };
            let mut span = Span::begin(message.method().label(), SpanKind::Internal);
            describe_message(&mut span, &message);
            let scope = span.scope().or_else(TraceScope::current);
            let reply = in_scope(scope, serve_in_order(&request, &text, &message, route)).await;
            match span.is_recorded() {
                true => reply.watched(CompleteWith::Response, move |summary| {
                    note_reply(&mut span, summary);
                }),
                false => reply,
            }
        })
    }

    fn may_call(&self, server: &str, tool: &str) -> bool {
        self.core.policy.may_call(&self.caller, server, tool)
    }

    fn save_initialize_params(
        &self,
        session: &Session,
    ) -> BoxFuture<'static, Result<(), Box<dyn Error + Send + Sync>>> {
        let (router, session) = (self.core.session_router.clone(), session.clone());
        let saving = async move {
            let request = InitializeRequest {
                transport: Some("code"),
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
    ) -> BoxFuture<'static, Reply> {
        let Some((request, server)) = self.visit_of(server, session_id) else {
            return unknown();
        };
        run_to_completion(async move {
            match Message::parse(&text, Sender::Client) {
                Ok(message) => {
                    let request = request.at(&server);
                    upstream_server::post(&request, &text, &message, Revision::OFFERED).await
                }
                Err(cause) => unreadable(&cause),
            }
        })
    }

    fn leave(&self, server: &str, session_id: &HeaderValue) -> BoxFuture<'static, ()> {
        match self.visit_of(server, Some(session_id)) {
            Some((request, server)) => async move {
                upstream_server::end_session(&request.at(&server)).await;
            }
            .boxed(),
            None => std::future::ready(()).boxed(),
        }
    }

    fn answer_wait(&self, server: &str, limit: Duration) -> Duration {
        let server = self.core.servers.get(server);
        server.map_or(limit, |server| server.lateness.wait(limit, Instant::now()))
    }

    fn note_answer(&self, server: &str, is_in_time: bool) {
        match (self.core.servers.get(server), is_in_time) {
            (Some(server), true) => server.lateness.note_answer(),
            (Some(server), false) => server.lateness.note_late(Instant::now()),
            (None, _) => {}
        }
    }
}

impl NestedServers {
    /// For code that runs for this caller.
    #[must_use]
    pub fn of_caller(core: &Arc<ServingCore>, caller: &Arc<Identity>) -> Self {
        Self {
            core: Arc::clone(core),
            caller: Arc::clone(caller),
        }
    }

    /// For the gateway itself, which only lists tools.
    #[must_use]
    pub fn of_gateway(core: &Arc<ServingCore>) -> Self {
        Self::of_caller(core, &Arc::new(Identity::of(Principal::gateway())))
    }

    /// A request of the gateway's own: in the session that it has opened before, or in none, as an `initialize`.
    fn visit_of(
        &self,
        server: &str,
        session_id: Option<&HeaderValue>,
    ) -> Option<(Request, Arc<Server>)> {
        let session = match session_id {
            None => Err(ErrorKind::SessionMissing),
            // A value that cannot be a session id belongs to no session.
            Some(id) => SessionId::parse(id.as_bytes()).map_err(|_| ErrorKind::SessionNotFound),
        };
        let mut fields = RequestFields {
            session,
            ..RequestFields::default()
        };
        fields.forwarded.revision = Some(Revision::OFFERED);
        let gateway = Arc::new(Identity::of(Principal::gateway()));
        let source = SessionSource::Fields(Arc::default());
        self.request(server, gateway, fields, source)
    }

    fn request(
        &self,
        server: &str,
        identity: Arc<Identity>,
        fields: RequestFields,
        session: SessionSource,
    ) -> Option<(Request, Arc<Server>)> {
        let server = self.core.servers.get(server).cloned()?;
        // The limits of calls apply to the call that runs the code.
        let request = Request::new(&self.core, &server.id, identity, fields, session);
        Some((request, server))
    }
}

/// Runs the request to its end even if the caller stops waiting, so that no binding is left half made.
fn run_to_completion(
    work: impl Future<Output = Reply> + Send + 'static,
) -> BoxFuture<'static, Reply> {
    let task = tokio::spawn(for_same_user(work));
    task.map(|done| done.unwrap_or_else(|_| answer::plain(ErrorKind::Internal, None)))
        .boxed()
}

fn unreadable(cause: &EnvelopeError) -> Reply {
    answer::error(&ErrorBody::from(cause))
}

fn unknown() -> BoxFuture<'static, Reply> {
    std::future::ready(answer::plain(ErrorKind::ServerNotFound, None)).boxed()
}
