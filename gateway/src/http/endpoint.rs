//! The MCP endpoint of one server: the checks of every request, and its route.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method as HttpMethod, StatusCode};
use mooring_session::names::{NameError, SessionId};
use tokio_util::sync::CancellationToken;

use super::caller::{CallerRefusal, RequestHead, RequestSender};
use super::detachable_future::DetachableFuture;
use super::hooked_call::{answered, serve_hooked};
use super::priming::{ResumedStream, StreamOwner};
use super::reply::to_http;
use super::request_entry::{RequestEntry, RequestKind};
use super::stateful::is_stateful;
use super::target::ServerTarget;
use super::visible_tools::VisibleTools;
use super::{App, agent, answer, batch, code, group, host_origin_guard, stateful, stateless};
use crate::hooks::CallRoute;
use mooring_identity::Identity;
use mooring_protocol::envelope::Sender;
use mooring_protocol::header::{LAST_EVENT_ID, MCP_SESSION_ID, X_MCP_SESSION_ID, X_REQUEST_ID};
use mooring_protocol::{
    EnvelopeError, ErrorBody, ErrorKind, Kind, Lane, Message, Method, Reply, Revision, VersionError,
};
use mooring_router::affinity::{CloseOutcome, Session};
use mooring_upstream::Server;
use mooring_usage::{CallPermit, SHORT_BYTES_MAX, UserUsage, for_same_user, run_beside};

/// A request that passed every check that needs neither body nor session, for a server of kind `S`.
#[derive(Clone, Debug)]
pub(super) struct RequestContext<S = ServerTarget> {
    pub(super) app: Arc<App>,
    /// The server in the request's path, whose sessions it may name: a group where `server` is one of its members.
    pub(super) endpoint: ServerTarget,
    pub(super) server: S,
    pub(super) identity: Arc<Identity>,
    pub(super) headers: HeaderMap,
    /// The session that an `initialize` opens; if none, it creates one.
    pub(super) begun: Option<Session>,
    /// Tells the clients of one session apart, where there may be several.
    pub(super) lane: Option<Lane>,
    /// Cancelled when the client no longer waits for the reply.
    pub(super) client_gone: CancellationToken,
    /// The usage of its user.
    pub(super) usage: Arc<UserUsage>,
    /// Counts it among the calls of its sender; none if it is no call, or part of another one.
    pub(super) call: Option<Arc<CallPermit>>,
    /// Its entry for metrics and the log; none for a request that begins inside the gateway.
    pub(super) entry: Option<Arc<RequestEntry>>,
}

/// A request for an upstream server.
pub(super) type UpstreamContext = RequestContext<Arc<Server>>;

impl<S> RequestContext<S> {
    /// The same request for this server.
    pub(super) fn at<T>(self, server: T) -> RequestContext<T> {
        RequestContext {
            app: self.app,
            endpoint: self.endpoint,
            server,
            identity: self.identity,
            headers: self.headers,
            begun: self.begun,
            lane: self.lane,
            client_gone: self.client_gone,
            usage: self.usage,
            call: self.call,
            entry: self.entry,
        }
    }

    /// The caller and the server, for hooks.
    pub(super) fn call_route<'a>(&'a self, server: &'a str) -> CallRoute<'a> {
        CallRoute {
            caller: &self.identity,
            session_digest: self.session().ok().map(|session| session.digest),
            server,
        }
    }

    /// The session of its headers; none that was opened at another server.
    pub(super) fn session(&self) -> Result<Session, ErrorKind> {
        let prefix = &self.app.session_router.options().key_prefix;
        let id = session_id(&self.headers)?;
        if !Session::is_id_of(&id, self.endpoint.id()) {
            return Err(ErrorKind::SessionNotFound);
        }
        Ok(self.of_caller(Session::named(prefix, id, self.identity.principal.clone())))
    }

    /// A new session of its caller.
    pub(super) fn mint_session(&self) -> Result<Session, NameError> {
        let prefix = &self.app.session_router.options().key_prefix;
        let principal = self.identity.principal.clone();
        let session = Session::mint(prefix, principal, self.endpoint.id())?;
        Ok(self.of_caller(session))
    }

    /// The session, as its caller uses it.
    pub(super) fn of_caller(&self, session: Session) -> Session {
        if let Some(entry) = &self.entry {
            entry.note_session(&session.digest);
        }
        session.of_caller(
            &self.identity.teams,
            self.identity.token.as_ref(),
            &self.usage,
        )
    }
}

/// `/mcp`, of the default server, and `/servers/{id}/mcp`.
pub(super) async fn mcp(
    State(app): State<Arc<App>>,
    Extension(sender): Extension<Arc<RequestSender>>,
    id: Option<Path<String>>,
    request: Request,
) -> Response {
    let id = id.as_ref().map(|Path(id)| id.as_str());
    mcp_at(&app, id, &sender, request).await
}

/// The same for a path that was read already.
pub(super) async fn mcp_at(
    app: &Arc<App>,
    id: Option<&str>,
    sender: &RequestSender,
    request: Request,
) -> Response {
    serve(app, id, sender, request).await
}

/// The server's id in the path of an endpoint; `Some(None)` for the default server. Not if the path has escapes, which
/// the router decodes.
pub(super) fn plain_id(path: &str) -> Option<Option<&str>> {
    if path == "/mcp" {
        return Some(None);
    }
    let id = path.strip_prefix("/servers/")?.strip_suffix("/mcp")?;
    (!id.is_empty() && !id.contains(['/', '%'])).then_some(Some(id))
}

/// Every unknown path.
pub(super) async fn unknown_path() -> Response {
    to_http(answer::error(
        &ErrorBody::new(ErrorKind::ServerNotFound)
            .detail("the MCP endpoints are /mcp and /servers/{id}/mcp"),
    ))
}

async fn serve(
    app: &Arc<App>,
    id: Option<&str>,
    sender: &RequestSender,
    mut request: Request,
) -> Response {
    let entry = RequestEntry::begin(&app.request_log, request.headers_mut());
    let request_id = entry.id().clone();
    let reply = serve_entry(Arc::clone(app), id, sender, request, &entry).await;
    let mut response = to_http(entry.watch(reply));
    response.headers_mut().insert(X_REQUEST_ID, request_id);
    response
}

async fn serve_entry(
    app: Arc<App>,
    id: Option<&str>,
    sender: &RequestSender,
    request: Request,
    entry: &Arc<RequestEntry>,
) -> Reply {
    let (head, body) = request.into_parts();
    let admitted = admit(&app, id, RequestHead::of(sender, &head), Some(entry)).await;
    let (identity, target) = match admitted {
        Ok(admitted) => admitted,
        Err(refusal) => return *refusal,
    };
    let usage = app.usages.of(&identity.principal);
    usage.charge_task().await;
    let kind = match head.method {
        HttpMethod::GET => RequestKind::Stream,
        HttpMethod::DELETE => RequestKind::Deletion,
        _ => RequestKind::Unknown,
    };
    entry.note_server(target.id(), kind);
    let context = RequestContext {
        usage,
        app,
        endpoint: target.clone(),
        server: target,
        identity,
        headers: head.headers,
        begun: None,
        lane: None,
        client_gone: CancellationToken::new(),
        call: None,
        entry: Some(Arc::clone(entry)),
    };
    match head.method {
        HttpMethod::POST => post(context, body).await,
        HttpMethod::GET => {
            let owner = StreamOwner::of(&context);
            owner.prime(Box::pin(get(context)).await, None)
        }
        HttpMethod::DELETE => Box::pin(delete(context)).await,
        _ => Reply {
            allow: Some("POST, GET, DELETE"),
            ..answer::plain(ErrorKind::MethodNotAllowed, None)
        },
    }
}

/// Who sends the request, and the server in its path.
///
/// # Errors
/// The reply to a caller that is not authenticated, sends too many requests, or may not use the server.
pub(super) async fn admit(
    app: &App,
    id: Option<&str>,
    head: RequestHead<'_>,
    entry: Option<&RequestEntry>,
) -> Result<(Arc<Identity>, ServerTarget), Box<Reply>> {
    let identified = app.identify(head).await;
    let identity = identified.map_err(|CallerRefusal { error, challenge }| {
        Box::new(Reply {
            challenge,
            ..answer::error(&answer::identity_error(error))
        })
    })?;
    if let Some(entry) = entry {
        entry.note_user(&identity.principal);
    }
    app.count_requests(&identity, 1)
        .map_err(|wait| Box::new(answer::too_many_requests(wait)))?;
    match app.target_of_path(id, &identity) {
        Ok(target) => {
            head.sender.admit();
            Ok((identity, target))
        }
        Err(refusal) => {
            let scopes = refusal.scopes_missing;
            Err(Box::new(Reply {
                challenge: scopes.and_then(|scopes| app.scope_challenge(scopes, head)),
                ..answer::error(&refusal.error)
            }))
        }
    }
}

impl App {
    /// Counts requests of this caller.
    ///
    /// # Errors
    /// How long the caller has to wait before these requests.
    pub(super) fn count_requests(&self, caller: &Identity, count: u32) -> Result<(), Duration> {
        let Some(rates) = &self.request_rates else {
            return Ok(());
        };
        rates.take(&caller.principal, count, Instant::now())
    }
}

async fn post(mut context: RequestContext, body: axum::body::Body) -> Reply {
    if !host_origin_guard::is_json(&context.headers) {
        return answer::plain(ErrorKind::UnsupportedMediaType, None);
    }
    if !host_origin_guard::accepts_both(&context.headers) {
        return answer::plain(ErrorKind::NotAcceptable, None);
    }
    // Counted before its body is read, so that no user reads more bodies at once.
    match context.usage.begin_message() {
        Ok(call) => context.call = Some(Arc::new(call)),
        Err(cause) => return answer::too_many_calls(cause, None),
    }
    let read = (context.app.request_bodies).read(body, context.usage.messages());
    let body = match read.await {
        Ok(body) => body,
        Err(error) => return answer::error(&error.into()),
    };
    if let Some(entry) = &context.entry {
        entry.note_body(body.len());
    }
    // A disconnect is not a cancellation for older revisions (MCP 2025-11-25, transports): the request runs to its end
    // even if the connection does not.
    let _gone_with_this_future = context.client_gone.clone().drop_guard();
    let call = context.call.clone();
    let is_long = body.len() > SHORT_BYTES_MAX;
    let served = post_body(context, body);
    let reply = match is_long {
        true => Box::pin(run_beside(served)).await,
        false => DetachableFuture::new(served).await,
    };
    let reply = reply.unwrap_or_else(|| answer::plain(ErrorKind::Internal, None));
    counted_until_written(reply, call)
}

/// The reply, with which its call ends: one that is not read counts as well. The stream of an upstream's reply counts by
/// itself.
fn counted_until_written(reply: Reply, call: Option<Arc<CallPermit>>) -> Reply {
    match call.filter(|call| Arc::strong_count(call) == 1) {
        Some(call) => Reply {
            body: reply.body.guarded_by(call),
            ..reply
        },
        None => reply,
    }
}

/// Serves one message, or a batch. The futures of rare requests are boxed: a call's own would otherwise be as large.
async fn post_body(context: RequestContext, body: Bytes) -> Reply {
    let parsed = Message::parse(&body, Sender::Client);
    let is_one_way = (parsed.as_ref()).is_ok_and(|message| message.kind() != Kind::Request);
    if !is_one_way && let Some(Err(cause)) = context.call.as_ref().map(|call| call.check_call()) {
        return answer::too_many_calls(cause, parsed.as_ref().ok().and_then(Message::id));
    }
    match parsed {
        Err(EnvelopeError::Batch) => Box::pin(batch::post(context, &body)).await,
        parsed => {
            let owner = StreamOwner::of(&context);
            let reply = post_message(context, &body, parsed).await;
            owner.prime(reply, Some(&body))
        }
    }
}

/// Serves one message, which was parsed from `body`.
pub(super) async fn post_message(
    context: RequestContext,
    body: &Bytes,
    parsed: Result<Message<'_>, EnvelopeError>,
) -> Reply {
    let message = match parsed {
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
        Ok(revision) => serve_message(context, body, &message, revision).await,
    }
}

/// Serves one message in this revision, with the tools that its sender may use.
pub(super) async fn serve_message(
    context: RequestContext,
    body: &Bytes,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    if let Some(entry) = &context.entry {
        entry.note_message(context.server.id(), message);
    }
    let visible = VisibleTools::of(&context.app, &context.identity, context.server.id());
    if let Some(refusal) = visible.refuse_call(message) {
        return refusal;
    }
    let filter = match message.method() {
        Method::ToolsList => visible.list_filter(),
        _ => None,
    };
    let reply = match (context.app.hooks.is_empty(), &context.server) {
        // Members ask the hooks themselves.
        (true, _) | (false, ServerTarget::Group(_)) => {
            dispatch(context, body, message, revision).await
        }
        (false, _) => Box::pin(dispatch_hooked(context, body, message, revision)).await,
    };
    match filter {
        Some(filter) => Box::pin(filter.apply(reply)).await,
        None => reply,
    }
}

/// Serves one message as the hooks decide.
async fn dispatch_hooked(
    context: RequestContext,
    body: &Bytes,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    let (asked, server) = (context.clone(), context.server.clone());
    let serve = async |body: &Bytes, message: &Message<'_>| {
        dispatch(context, body, message, revision).await
    };
    serve_hooked(
        &asked.app,
        &asked.usage,
        asked.call_route(server.id()),
        body,
        message,
        serve,
    )
    .await
}

/// Serves one message that the policy allows.
pub(super) async fn dispatch(
    context: RequestContext,
    body: &Bytes,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    match context.server.clone() {
        ServerTarget::Upstream(server) => {
            let context = context.at(server);
            if is_stateful(&context, is_initialize(message)) {
                stateful::post(&context, body, message, revision).await
            } else {
                Box::pin(stateless::post(&context, body, message, revision)).await
            }
        }
        ServerTarget::Code(server) => {
            let context = context.at(server);
            Box::pin(code::post(&context, message, revision)).await
        }
        ServerTarget::Agent(server) => {
            let context = context.at(server);
            Box::pin(agent::post(&context, message, revision)).await
        }
        ServerTarget::Group(group) => {
            let context = context.at(group);
            Box::pin(group::post(&context, body, message, revision)).await
        }
    }
}

pub(super) async fn get(context: RequestContext) -> Reply {
    let visible = VisibleTools::of(&context.app, &context.identity, context.server.id());
    // A client may resume the events of a list.
    let filter = visible.list_filter();
    // Answers to calls can be among the events too.
    let members = match &context.server {
        ServerTarget::Group(group) => group.ids(),
        ServerTarget::Upstream(_) | ServerTarget::Code(_) | ServerTarget::Agent(_) => Vec::new(),
    };
    let route = context.call_route(context.server.id());
    let calls = context.app.hooks.of_unknown_calls(route, &members);
    let bytes_max = context.app.relay.message_bytes_max;
    let mut reply = get_unfiltered(context).await;
    if let Some(filter) = filter {
        reply = filter.apply(reply).await;
    }
    match calls {
        Some(calls) => answered(calls, reply, bytes_max).await,
        None => reply,
    }
}

async fn get_unfiltered(context: RequestContext) -> Reply {
    if !host_origin_guard::accepts_events(&context.headers) {
        return answer::error(
            &ErrorBody::new(ErrorKind::NotAcceptable).detail("a GET needs text/event-stream"),
        );
    }
    if let Err(cause) = Revision::of_headers(&context.headers) {
        return answer::error(&ErrorBody::from(&cause));
    }
    match StreamOwner::of(&context).resume(context.headers.get(LAST_EVENT_ID)) {
        ResumedStream::ByServer => get_stream(context).await,
        ResumedStream::Settled(reply) => reply,
        ResumedStream::Request(request) => {
            let mut context = context;
            let last_event_id = request.last_event_id.clone();
            context.headers.insert(LAST_EVENT_ID, last_event_id);
            request.complete(get_stream(context).await)
        }
    }
}

async fn get_stream(context: RequestContext) -> Reply {
    match context.server.clone() {
        ServerTarget::Upstream(server) => {
            let context = context.at(server);
            match is_stateful(&context, false) {
                true => stateful::get(&context).await,
                false => stateless::get(),
            }
        }
        ServerTarget::Code(_) | ServerTarget::Agent(_) => answer::only_post(),
        ServerTarget::Group(group) => group::get(&context.at(group)).await,
    }
}

/// Ends the session at its client's request, even if the client does not wait for the reply.
pub(super) async fn delete(context: RequestContext) -> Reply {
    match context.server.clone() {
        ServerTarget::Code(_) | ServerTarget::Agent(_) => return answer::only_post(),
        ServerTarget::Upstream(server) => {
            let context = context.clone().at(server);
            if !is_stateful(&context, false) {
                return stateless::delete(&context);
            }
        }
        ServerTarget::Group(_) => {}
    }
    let session = match context.session() {
        Ok(session) => session,
        Err(kind) => return answer::plain(kind, None),
    };
    let closing = tokio::spawn(for_same_user(async move {
        context.app.session_router.close(&session).await
    }));
    match closing.await {
        Ok(Ok(CloseOutcome::Now)) => Reply::empty(StatusCode::NO_CONTENT),
        Ok(Ok(CloseOutcome::AlreadyClosed)) => answer::plain(ErrorKind::SessionNotFound, None),
        Ok(Err(cause)) => answer::store(&cause, None),
        Err(_) => answer::plain(ErrorKind::Internal, None),
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

/// Adds the session id to the reply's headers.
pub(super) fn with_session_id(reply: Reply, id: &str) -> Reply {
    Reply {
        session_id: HeaderValue::from_str(id).ok(),
        ..reply
    }
}
