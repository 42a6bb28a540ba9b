//! Requests that begin inside the gateway: calls of code, and requests for lists of tools. They are served like every
//! other request.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use mooring_session::names::Principal;
use tokio_util::sync::CancellationToken;

use super::endpoint::{RequestContext, UpstreamContext, delete, dispatch};
use super::hooked_call::serve_hooked;
use super::target::ServerTarget;
use super::visible_tools::VisibleTools;
use super::{App, answer, stateful};
use crate::hooks::CallRoute;
use mooring_code::calls::Upstreams;
use mooring_identity::Identity;
use mooring_protocol::envelope::Sender;
use mooring_protocol::header::{MCP_PROTOCOL_VERSION, MCP_SESSION_ID};
use mooring_protocol::{ErrorBody, ErrorKind, Message, Reply, Revision, call};
use mooring_router::affinity::{InitializeRequest, Session};
use mooring_usage::for_same_user;

/// The servers of this gateway, for code of one caller and for the catalog.
pub(super) struct NestedServers {
    app: Arc<App>,
    caller: Arc<Identity>,
}

impl fmt::Debug for NestedServers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("NestedServers")
    }
}

impl Upstreams for NestedServers {
    fn send(&self, session: &Session, server: &str, text: Bytes) -> BoxFuture<'static, Reply> {
        let Some(server) = self.app.servers.get(server).cloned() else {
            return unknown();
        };
        let caller = Arc::clone(&self.caller);
        let session = session.clone();
        let context = UpstreamContext {
            usage: self.app.usages.of(&caller.principal),
            // Part of the call that runs the code.
            call: None,
            app: Arc::clone(&self.app),
            endpoint: ServerTarget::Upstream(Arc::clone(&server)),
            server,
            identity: caller,
            headers: HeaderMap::new(),
            begun: None,
            lane: None,
            client_gone: CancellationToken::new(),
            entry: None,
        };
        let session = context.of_caller(session);
        // The session is stateful whatever the server's setting: code has no other.
        run_to_completion(async move {
            match Message::parse(&text, Sender::Client) {
                Ok(message) => match tools_of(&context).refuse_call(&message) {
                    Some(refusal) => refusal,
                    None => call_in(&context, session, &text, &message).await,
                },
                Err(cause) => answer::error(&ErrorBody::from(&cause)),
            }
        })
    }

    fn may_call(&self, server: &str, tool: &str) -> bool {
        self.app.policy.may_call(&self.caller, server, tool)
    }

    fn save_initialize_params(
        &self,
        session: &Session,
    ) -> BoxFuture<'static, Result<(), Box<dyn Error + Send + Sync>>> {
        let (router, session) = (self.app.session_router.clone(), session.clone());
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
    ) -> BoxFuture<'static, Reply> {
        let Some(context) = self.visitor(server, session_id) else {
            return unknown();
        };
        run_to_completion(async move {
            match Message::parse(&text, Sender::Client) {
                Ok(message) => dispatch(context, &text, &message, Revision::OFFERED).await,
                Err(cause) => answer::error(&ErrorBody::from(&cause)),
            }
        })
    }

    fn leave(&self, server: &str, session_id: &HeaderValue) -> BoxFuture<'static, ()> {
        match self.visitor(server, Some(session_id)) {
            Some(context) => delete(context).map(drop).boxed(),
            None => std::future::ready(()).boxed(),
        }
    }

    fn answer_wait(&self, server: &str, limit: Duration) -> Duration {
        let server = self.app.servers.get(server);
        server.map_or(limit, |server| server.lateness.wait(limit, Instant::now()))
    }

    fn note_answer(&self, server: &str, is_in_time: bool) {
        match (self.app.servers.get(server), is_in_time) {
            (Some(server), true) => server.lateness.note_answer(),
            (Some(server), false) => server.lateness.note_late(Instant::now()),
            (None, _) => {}
        }
    }
}

impl NestedServers {
    /// For code that runs for this caller.
    pub(super) fn of_caller(app: &Arc<App>, caller: &Arc<Identity>) -> Self {
        Self {
            app: Arc::clone(app),
            caller: Arc::clone(caller),
        }
    }

    /// For the gateway itself, which only lists tools.
    pub(super) fn of_gateway(app: &Arc<App>) -> Self {
        Self::of_caller(app, &Arc::new(Identity::of(Principal::gateway())))
    }

    fn visitor(&self, server: &str, session_id: Option<&HeaderValue>) -> Option<RequestContext> {
        let app = Arc::clone(&self.app);
        let server = ServerTarget::Upstream(app.servers.get(server).cloned()?);
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
        let identity = Arc::new(Identity::of(Principal::gateway()));
        Some(RequestContext {
            usage: app.usages.of(&identity.principal),
            call: None,
            app,
            endpoint: server.clone(),
            server,
            identity,
            headers,
            begun: None,
            lane: None,
            client_gone: CancellationToken::new(),
            entry: None,
        })
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

/// Sends a message of a code session, if it is a call as the hooks decide.
async fn call_in(
    context: &UpstreamContext,
    session: Session,
    text: &Bytes,
    message: &Message<'_>,
) -> Reply {
    let route = CallRoute {
        session_digest: Some(session.digest.clone()),
        ..context.call_route(context.server.id.as_str())
    };
    let serve = async |text: &Bytes, message: &Message<'_>| {
        stateful::post_in(context, session, text, message).await
    };
    serve_hooked(&context.app, &context.usage, route, text, message, serve).await
}

fn tools_of(context: &UpstreamContext) -> VisibleTools<'_> {
    VisibleTools::of(&context.app, &context.identity, context.server.id.as_str())
}

fn unknown() -> BoxFuture<'static, Reply> {
    std::future::ready(answer::plain(ErrorKind::ServerNotFound, None)).boxed()
}
