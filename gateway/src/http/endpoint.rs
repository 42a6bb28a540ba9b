//! The MCP endpoint of one server: the checks of every request, and its route.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{ConnectInfo, Path, Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method as HttpMethod, StatusCode};
use mooring_session::names::{Principal, SessionId};
use tokio_util::sync::CancellationToken;

use super::agent::AgentContext;
use super::code::CodeContext;
use super::group::GroupContext;
use super::reply::to_http;
use super::target::ServerTarget;
use super::{App, agent, answer, batch, code, group, host_origin_guard, upstream};
use crate::identity::identify;
use mooring_code::server::Caller;
use mooring_metrics as metrics;
use mooring_protocol::envelope::Sender;
use mooring_protocol::header::{MCP_SESSION_ID, X_MCP_SESSION_ID};
use mooring_protocol::{
    EnvelopeError, ErrorBody, ErrorKind, Kind, Lane, Message, Method, Reply, Revision, VersionError,
};
use mooring_router::affinity::{CloseOutcome, Session};
use mooring_upstream::Server;

/// A request that passed every check that needs neither body nor session.
#[derive(Clone, Debug)]
pub(super) struct RequestContext {
    pub(super) app: Arc<App>,
    pub(super) target: ServerTarget,
    pub(super) principal: Principal,
    /// The principal's teams.
    pub(super) teams: Teams,
    pub(super) headers: HeaderMap,
    /// The session, if it began before `initialize`.
    pub(super) begun: Option<Session>,
    /// Tells the clients of one session apart, where there may be several.
    pub(super) lane: Option<Lane>,
    /// Cancelled when the client no longer waits for the reply.
    pub(super) client_gone: CancellationToken,
}

/// The route of a request, by its server's kind.
enum Route {
    Upstream(UpstreamContext),
    Code(CodeContext),
    Agent(AgentContext),
    Group(GroupContext),
}

/// A request for an upstream server.
#[derive(Debug)]
pub(super) struct UpstreamContext {
    pub(super) app: Arc<App>,
    pub(super) server: Arc<Server>,
    pub(super) principal: Principal,
    pub(super) headers: HeaderMap,
    /// The session that an `initialize` opens; if none, it creates one.
    pub(super) begun: Option<Session>,
    /// Tells the clients of one session apart, where there may be several.
    pub(super) lane: Option<Lane>,
    /// Cancelled when the client no longer waits for the reply.
    pub(super) client_gone: CancellationToken,
}

impl UpstreamContext {
    /// The session of its headers.
    pub(super) fn session(&self) -> Result<Session, ErrorKind> {
        named_session(&self.app, &self.headers, &self.principal)
    }
}

/// `/mcp`, of the default server, and `/servers/{id}/mcp`.
pub(super) async fn mcp(
    State(app): State<Arc<App>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    id: Option<Path<String>>,
    request: Request,
) -> Response {
    let target = app.target_of_path(id);
    to_http(serve(app, target, peer, request).await)
}

/// Every unknown path.
pub(super) async fn unknown_path() -> Response {
    to_http(answer::error(
        &ErrorBody::new(ErrorKind::ServerNotFound)
            .detail("the MCP endpoints are /mcp and /servers/{id}/mcp"),
    ))
}

async fn serve(
    app: Arc<App>,
    target: Result<ServerTarget, ErrorBody<'static>>,
    peer: SocketAddr,
    request: Request,
) -> Reply {
    let (head, body) = request.into_parts();
    let (principal, teams) = match caller(&app, peer, &head.headers) {
        Ok(caller) => caller,
        Err(error) => return answer::error(&error),
    };
    let target = match target {
        Ok(target) => target,
        Err(error) => return answer::error(&error),
    };
    let context = RequestContext {
        app,
        target,
        principal,
        teams,
        headers: head.headers,
        begun: None,
        lane: None,
        client_gone: CancellationToken::new(),
    };
    match head.method {
        HttpMethod::POST => post(context, body).await,
        HttpMethod::GET => get(context).await,
        HttpMethod::DELETE => delete(context).await,
        _ => Reply {
            allow: Some("POST, GET, DELETE"),
            ..answer::plain(ErrorKind::MethodNotAllowed, None)
        },
    }
}

/// The caller's teams.
pub(super) type Teams = Arc<[String]>;

/// The caller's principal and teams.
pub(super) fn caller(
    app: &App,
    peer: SocketAddr,
    headers: &HeaderMap,
) -> Result<(Principal, Teams), ErrorBody<'static>> {
    let identity = identify(&app.auth, peer.ip(), headers).map_err(answer::identity_error)?;
    // `identify` enforces the same limits, so this does not fail.
    let principal = Principal::parse(identity.principal.as_bytes())
        .map_err(|_| ErrorBody::new(ErrorKind::Unauthenticated))?;
    Ok((principal, identity.teams.into()))
}

async fn post(context: RequestContext, body: axum::body::Body) -> Reply {
    if !host_origin_guard::is_json(&context.headers) {
        return answer::plain(ErrorKind::UnsupportedMediaType, None);
    }
    if !host_origin_guard::accepts_both(&context.headers) {
        return answer::plain(ErrorKind::NotAcceptable, None);
    }
    let body = match context.app.request_bodies.read(body).await {
        Ok(body) => body,
        Err(error) => return answer::error(&error.into()),
    };
    // A disconnect is not a cancellation for older revisions (MCP 2025-11-25, transports): the request runs to its end
    // in a task that outlives the connection.
    let _gone_with_this_future = context.client_gone.clone().drop_guard();
    let task = tokio::spawn(post_body(context, body));
    task.await
        .unwrap_or_else(|_| answer::plain(ErrorKind::Internal, None))
}

/// Serves one message, or a batch.
async fn post_body(context: RequestContext, body: Bytes) -> Reply {
    match Message::parse(&body, Sender::Client) {
        Err(EnvelopeError::Batch) => batch::post(context, &body).await,
        _ => post_message(context, body).await,
    }
}

/// Serves one message.
pub(super) async fn post_message(context: RequestContext, body: Bytes) -> Reply {
    let message = match Message::parse(&body, Sender::Client) {
        Ok(message) => message,
        Err(cause) => return answer::error(&ErrorBody::from(&cause)),
    };
    if message.kind() == Kind::Request && message.method() == Method::ServerDiscover {
        // A client that also speaks 2026-07-28 sends this first. An error code of that revision, also the one for an
        // unsupported revision, would identify the gateway as a server of that revision; "method not found" makes the
        // client initialize.
        return answer::plain(ErrorKind::MethodNotFound, message.id());
    }
    match check_revision(&message, &context.headers) {
        Err(cause) => answer::error(&ErrorBody::from(&cause).answering(message.id())),
        Ok(revision) => serve_message(context, &body, &message, revision).await,
    }
}

/// Serves one message in this revision.
pub(super) async fn serve_message(
    context: RequestContext,
    body: &Bytes,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    let started = Instant::now();
    let server_id: Box<str> = context.target.id().into();
    let reply = match context.route() {
        Route::Upstream(context) => upstream::post(&context, body, message, revision).await,
        Route::Code(context) => code::post(&context, message, revision).await,
        Route::Agent(context) => agent::post(&context, message, revision).await,
        Route::Group(context) => group::post(&context, body, message, revision).await,
    };
    let method = message.method().label();
    metrics::request(&server_id, method, started.elapsed());
    reply
}

pub(super) async fn get(context: RequestContext) -> Reply {
    if !host_origin_guard::accepts_events(&context.headers) {
        return answer::error(
            &ErrorBody::new(ErrorKind::NotAcceptable).detail("a GET needs text/event-stream"),
        );
    }
    if let Err(cause) = Revision::of_headers(&context.headers) {
        return answer::error(&ErrorBody::from(&cause));
    }
    match context.route() {
        Route::Upstream(context) => upstream::get(&context).await,
        Route::Code(_) | Route::Agent(_) => answer::only_post(),
        Route::Group(context) => group::get(&context).await,
    }
}

pub(super) async fn delete(context: RequestContext) -> Reply {
    match context.route() {
        // The upstream sessions are deleted even if the client does not wait for the reply.
        Route::Upstream(context) => tokio::spawn(async move { upstream::delete(&context).await })
            .await
            .unwrap_or_else(|_| answer::plain(ErrorKind::Internal, None)),
        Route::Code(_) | Route::Agent(_) => answer::only_post(),
        Route::Group(context) => tokio::spawn(async move { group::delete(&context).await })
            .await
            .unwrap_or_else(|_| answer::plain(ErrorKind::Internal, None)),
    }
}

impl RequestContext {
    fn route(self) -> Route {
        match self.target {
            ServerTarget::Upstream(server) => Route::Upstream(UpstreamContext {
                app: self.app,
                server,
                principal: self.principal,
                headers: self.headers,
                begun: self.begun,
                lane: self.lane,
                client_gone: self.client_gone,
            }),
            ServerTarget::Code(server) => Route::Code(CodeContext {
                app: self.app,
                server,
                caller: Caller {
                    principal: self.principal,
                    teams: self.teams,
                },
                headers: self.headers,
            }),
            ServerTarget::Agent(server) => Route::Agent(AgentContext {
                server,
                principal: self.principal,
                headers: self.headers,
            }),
            ServerTarget::Group(group) => Route::Group(GroupContext {
                app: self.app,
                group,
                principal: self.principal,
                teams: self.teams,
                headers: self.headers,
                begun: self.begun,
                lane: self.lane,
                client_gone: self.client_gone,
            }),
        }
    }
}

/// The revision of the message: negotiated from that of its `initialize`, otherwise the header's. Messages of
/// 2026-07-28 are refused.
fn check_revision(message: &Message<'_>, headers: &HeaderMap) -> Result<Revision, VersionError> {
    if message.params.is_modern() {
        let name = message.params.modern_version().unwrap_or_default();
        return Err(VersionError::Unsupported(name.into_owned()));
    }
    if is_initialize(message) {
        let asked = message.params.protocol_version().unwrap_or_default();
        return Ok(Revision::negotiated(&asked));
    }
    Revision::of_headers(headers)
}

pub(super) fn is_initialize(message: &Message<'_>) -> bool {
    message.kind() == Kind::Request && message.method() == Method::Initialize
}

/// The session id in a request's headers, under its own name or the alias.
pub(super) fn session_id(headers: &HeaderMap) -> Result<SessionId, ErrorKind> {
    let mut values = headers
        .get_all(MCP_SESSION_ID)
        .iter()
        .chain(headers.get_all(X_MCP_SESSION_ID));
    let value = values.next().ok_or(ErrorKind::SessionMissing)?;
    if values.any(|other| other != value) {
        return Err(ErrorKind::InvalidRequest);
    }
    // A value that cannot be a session id belongs to no session.
    SessionId::parse(value.as_bytes()).map_err(|_| ErrorKind::SessionNotFound)
}

/// The session of a request's headers, for this principal.
pub(super) fn named_session(
    app: &App,
    headers: &HeaderMap,
    principal: &Principal,
) -> Result<Session, ErrorKind> {
    let prefix = &app.session_router.options().key_prefix;
    Ok(Session::named(
        prefix,
        session_id(headers)?,
        principal.clone(),
    ))
}

/// Ends a session at its client's request.
pub(super) async fn end(app: &App, session: &Session) -> Reply {
    match app.session_router.close(session).await {
        Ok(CloseOutcome::Now) => Reply::empty(StatusCode::NO_CONTENT),
        Ok(CloseOutcome::AlreadyClosed) => answer::plain(ErrorKind::SessionNotFound, None),
        Err(cause) => answer::store(&cause, None),
    }
}

/// Adds the session id to the reply's headers.
pub(super) fn with_session_id(reply: Reply, id: &str) -> Reply {
    Reply {
        session_id: HeaderValue::from_str(id).ok(),
        ..reply
    }
}
