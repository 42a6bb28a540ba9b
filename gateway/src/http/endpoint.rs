//! The MCP endpoint of one server: what every request has to be, and which way it goes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{ConnectInfo, Path, Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::header::ALLOW;
use http::{HeaderMap, HeaderValue, Method as HttpMethod, StatusCode};
use mooring_session::names::{Principal, SessionId};
use tokio_util::sync::CancellationToken;

use super::agent::AgentVisit;
use super::code::CodeVisit;
use super::group::GroupVisit;
use super::target::Target;
use super::{App, agent, answer, batch, code, door, group, upstream};
use crate::identity::identify;
use mooring_code::server::Caller;
use mooring_metrics as metrics;
use mooring_protocol::envelope::Sender;
use mooring_protocol::header::{MCP_SESSION_ID, X_MCP_SESSION_ID};
use mooring_protocol::{
    EnvelopeError, ErrorBody, ErrorKind, Kind, Lane, Message, Method, Revision, VersionError,
};
use mooring_router::affinity::{Closed, Session};
use mooring_upstream::Server;

/// A request that passed every check that needs neither its body nor its session.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) app: Arc<App>,
    pub(super) target: Target,
    pub(super) principal: Principal,
    /// The principal's teams.
    pub(super) teams: Teams,
    pub(super) headers: HeaderMap,
    /// The session, where it began before its client introduced itself.
    pub(super) begun: Option<Session>,
    /// What tells the client from others of its session, where there may be others.
    pub(super) lane: Option<Lane>,
    /// Cancelled when the client no longer waits for the reply.
    pub(super) client_gone: CancellationToken,
}

/// Which way it goes.
enum Way {
    Upstream(Visit),
    Code(CodeVisit),
    Agent(AgentVisit),
    Group(GroupVisit),
}

/// A request for an upstream server.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) app: Arc<App>,
    pub(super) server: Arc<Server>,
    pub(super) principal: Principal,
    pub(super) headers: HeaderMap,
    /// The session that an `initialize` opens; none where it begins one.
    pub(super) begun: Option<Session>,
    /// What tells the client from others of its session, where there may be others.
    pub(super) lane: Option<Lane>,
    /// Cancelled when the client no longer waits for the reply.
    pub(super) client_gone: CancellationToken,
}

impl Visit {
    /// The session that it names.
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
    let target = app.aimed_at(id);
    serve(app, target, peer, request).await
}

/// Every other path.
pub(super) async fn nowhere() -> Response {
    answer::error(
        &ErrorBody::new(ErrorKind::ServerNotFound)
            .detail("the MCP endpoints are /mcp and /servers/{id}/mcp"),
    )
}

async fn serve(
    app: Arc<App>,
    target: Result<Target, ErrorBody<'static>>,
    peer: SocketAddr,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    let (principal, teams) = match caller(&app, peer, &head.headers) {
        Ok(caller) => caller,
        Err(error) => return answer::error(&error),
    };
    let target = match target {
        Ok(target) => target,
        Err(error) => return answer::error(&error),
    };
    let arrival = Arrival {
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
        HttpMethod::POST => post(arrival, body).await,
        HttpMethod::GET => get(arrival).await,
        HttpMethod::DELETE => delete(arrival).await,
        _ => {
            let mut reply = answer::plain(ErrorKind::MethodNotAllowed, None);
            let allowed = HeaderValue::from_static("POST, GET, DELETE");
            reply.headers_mut().insert(ALLOW, allowed);
            reply
        }
    }
}

/// The teams of who asks.
pub(super) type Teams = Arc<[String]>;

/// Who asks, and in which teams they are.
pub(super) fn caller(
    app: &App,
    peer: SocketAddr,
    headers: &HeaderMap,
) -> Result<(Principal, Teams), ErrorBody<'static>> {
    let identity = identify(&app.auth, peer.ip(), headers).map_err(answer::unidentified)?;
    // Identities are checked against the same limits.
    let principal = Principal::parse(identity.principal.as_bytes())
        .map_err(|_| ErrorBody::new(ErrorKind::Unauthenticated))?;
    Ok((principal, identity.teams.into()))
}

async fn post(arrival: Arrival, body: axum::body::Body) -> Response {
    if !door::is_json(&arrival.headers) {
        return answer::plain(ErrorKind::UnsupportedMediaType, None);
    }
    if !door::accepts_both(&arrival.headers) {
        return answer::plain(ErrorKind::NotAcceptable, None);
    }
    let body = match arrival.app.request_bodies.read(body).await {
        Ok(body) => body,
        Err(error) => return answer::error(&error.into()),
    };
    // A legacy client that disconnects has not cancelled (MCP 2025-11-25, transports): what it asked for is
    // finished, whoever still listens. The task outlives the connection.
    let _gone_with_this_future = arrival.client_gone.clone().drop_guard();
    let task = tokio::spawn(post_body(arrival, body));
    task.await
        .unwrap_or_else(|_| answer::plain(ErrorKind::Internal, None))
}

/// One message, or a batch of them.
async fn post_body(arrival: Arrival, body: Bytes) -> Response {
    match Message::parse(&body, Sender::Client) {
        Err(EnvelopeError::Batch) => batch::post(arrival, &body).await,
        _ => post_message(arrival, body).await,
    }
}

/// One message.
pub(super) async fn post_message(arrival: Arrival, body: Bytes) -> Response {
    let message = match Message::parse(&body, Sender::Client) {
        Ok(message) => message,
        Err(cause) => return answer::error(&ErrorBody::from(&cause)),
    };
    if message.kind() == Kind::Request && message.method() == Method::ServerDiscover {
        // A client of 2026-07-28 asks this first. Any error that only that revision has, also that the revision is not
        // served, would say that this is such a server; this one says to initialize.
        return answer::plain(ErrorKind::MethodNotFound, message.id());
    }
    match check_revision(&message, &arrival.headers) {
        Err(cause) => answer::error(&ErrorBody::from(&cause).answering(message.id())),
        Ok(revision) => serve_message(arrival, &body, &message, revision).await,
    }
}

/// One message of a client that speaks this revision.
pub(super) async fn serve_message(
    arrival: Arrival,
    body: &Bytes,
    message: &Message<'_>,
    revision: Revision,
) -> Response {
    let started = Instant::now();
    let server_id: Box<str> = arrival.target.id().into();
    let reply = match arrival.way() {
        Way::Upstream(visit) => upstream::post(&visit, body, message, revision).await,
        Way::Code(visit) => code::post(&visit, message, revision).await,
        Way::Agent(visit) => agent::post(&visit, message, revision).await,
        Way::Group(visit) => group::post(&visit, body, message, revision).await,
    };
    let method = message.method().label();
    metrics::request(&server_id, method, started.elapsed());
    reply
}

pub(super) async fn get(arrival: Arrival) -> Response {
    if !door::accepts_events(&arrival.headers) {
        return answer::error(
            &ErrorBody::new(ErrorKind::NotAcceptable).detail("a GET needs text/event-stream"),
        );
    }
    if let Err(cause) = Revision::of_headers(&arrival.headers) {
        return answer::error(&ErrorBody::from(&cause));
    }
    match arrival.way() {
        Way::Upstream(visit) => upstream::get(&visit).await,
        Way::Code(_) | Way::Agent(_) => answer::only_post(),
        Way::Group(visit) => group::get(&visit).await,
    }
}

pub(super) async fn delete(arrival: Arrival) -> Response {
    match arrival.way() {
        // A client that does not wait for the answer still wants its upstream sessions deleted.
        Way::Upstream(visit) => tokio::spawn(async move { upstream::delete(&visit).await })
            .await
            .unwrap_or_else(|_| answer::plain(ErrorKind::Internal, None)),
        Way::Code(_) | Way::Agent(_) => answer::only_post(),
        Way::Group(visit) => tokio::spawn(async move { group::delete(&visit).await })
            .await
            .unwrap_or_else(|_| answer::plain(ErrorKind::Internal, None)),
    }
}

impl Arrival {
    fn way(self) -> Way {
        match self.target {
            Target::Upstream(server) => Way::Upstream(Visit {
                app: self.app,
                server,
                principal: self.principal,
                headers: self.headers,
                begun: self.begun,
                lane: self.lane,
                client_gone: self.client_gone,
            }),
            Target::Code(server) => Way::Code(CodeVisit {
                app: self.app,
                server,
                caller: Caller {
                    principal: self.principal,
                    teams: self.teams,
                },
                headers: self.headers,
            }),
            Target::Agent(server) => Way::Agent(AgentVisit {
                server,
                principal: self.principal,
                headers: self.headers,
            }),
            Target::Group(group) => Way::Group(GroupVisit {
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

/// Which revision the message belongs to: its own claim first, the header as a check.
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

/// The session id that a request carries, under its own name or the alias.
pub(super) fn session_id(headers: &HeaderMap) -> Result<SessionId, ErrorKind> {
    let mut values = headers
        .get_all(MCP_SESSION_ID)
        .iter()
        .chain(headers.get_all(X_MCP_SESSION_ID));
    let value = values.next().ok_or(ErrorKind::SessionMissing)?;
    if values.any(|other| other != value) {
        return Err(ErrorKind::InvalidRequest);
    }
    // What cannot be an id of the gateway's is no session of its.
    SessionId::parse(value.as_bytes()).map_err(|_| ErrorKind::SessionNotFound)
}

/// The session that a request of this principal names.
pub(super) fn named_session(
    app: &App,
    headers: &HeaderMap,
    principal: &Principal,
) -> Result<Session, ErrorKind> {
    let prefix = &app.affinity.options().key_prefix;
    Ok(Session::named(
        prefix,
        session_id(headers)?,
        principal.clone(),
    ))
}

/// Ends a session whose client is done.
pub(super) async fn end(app: &App, session: &Session) -> Response {
    match app.affinity.close(session).await {
        Ok(Closed::Now) => answer::empty(StatusCode::NO_CONTENT),
        Ok(Closed::Before) => answer::plain(ErrorKind::SessionNotFound, None),
        Err(cause) => answer::store(&cause, None),
    }
}

/// Gives the client its session id.
pub(super) fn with_session_id(mut reply: Response, id: &str) -> Response {
    if let Ok(mut value) = HeaderValue::from_str(id) {
        value.set_sensitive(true);
        reply.headers_mut().insert(MCP_SESSION_ID, value.clone());
        reply.headers_mut().insert(X_MCP_SESSION_ID, value);
    }
    reply
}
