//! The MCP endpoint of one server: reads requests of Streamable HTTP for the pipeline, and checks what HTTP needs.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method as HttpMethod};

use super::app::App;
use super::caller::{CallerRefusal, RequestHead, RequestSender};
use super::continuity_keys;
use super::detachable_future::DetachableFuture;
use super::host_origin_guard;
use super::priming::{ResumedStream, StreamOwner};
use super::reply::to_http;
use super::request_fields::read_fields;
use mooring_identity::Identity;
use mooring_pipeline::{
    ClientTransport, Operation, Request as McpRequest, RequestEntry, RequestKind,
    RequestServer as _, ServerTarget, SessionSource, answer, serve_batch, serve_posted,
};
use mooring_protocol::envelope::Sender;
use mooring_protocol::header::X_REQUEST_ID;
use mooring_protocol::{EnvelopeError, ErrorBody, ErrorKind, Kind, Message, Reply};
use mooring_usage::{CallPermit, SHORT_BYTES_MAX, run_beside};

/// `/mcp`, of the default server, and `/servers/{id}/mcp`.
pub(super) async fn mcp(
    State(app): State<Arc<App>>,
    Extension(sender): Extension<Arc<RequestSender>>,
    id: Option<Path<String>>,
    request: Request,
) -> Response {
    let id = id.as_ref().map(|Path(id)| id.as_str());
    let (head, body) = request.into_parts();
    serve(&app, id, &sender, &head, body).await
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
    to_http(answer::detailed(
        ErrorKind::ServerNotFound,
        None,
        "the MCP endpoints are /mcp and /servers/{id}/mcp",
    ))
}

/// Serves a request to the endpoint of this server, or of the default one.
pub(super) async fn serve(
    app: &Arc<App>,
    id: Option<&str>,
    sender: &RequestSender,
    head: &Parts,
    body: Body,
) -> Response {
    serve_caller(app, id, sender, head, body, None).await
}

/// The same of a caller who is known already, if there is one.
pub(super) async fn serve_caller(
    app: &Arc<App>,
    id: Option<&str>,
    sender: &RequestSender,
    head: &Parts,
    body: Body,
    caller: Option<Arc<Identity>>,
) -> Response {
    let mut fields = read_fields(&head.headers);
    fields.transport = ClientTransport::Http(Some(head.version));
    fields.is_from_foreign_page =
        !host_origin_guard::is_from_own_page(app, &head.headers, &head.uri);
    let entry = fields.begin_entry(&app.core.request_log);
    let request_id = entry.id().clone();
    let head_of = RequestHead::of(sender, head);
    let identified = match caller {
        Some(caller) => Ok(caller),
        None => app.identify(head_of).await,
    };
    let reply = match admit_identified(app, id, head_of, Some(&entry), identified) {
        Ok((identity, server)) => {
            let kind = match head.method {
                HttpMethod::GET => RequestKind::Stream,
                HttpMethod::DELETE => RequestKind::Deletion,
                _ => RequestKind::Unknown,
            };
            entry.note_server(server.id(), kind);
            let session = SessionSource::Fields(Arc::clone(&sender.latest_session));
            let request = McpRequest {
                entry: Some(Arc::clone(&entry)),
                ..McpRequest::new(&app.core, server.id(), identity, fields, session)
            };
            request.usage.charge_task().await;
            match head.method {
                HttpMethod::POST => post(app, request, server, &head.headers, body).await,
                HttpMethod::GET => Box::pin(get(request, &server, &head.headers)).await,
                HttpMethod::DELETE => {
                    mooring_pipeline::serve(&request, &server, Operation::Deletion).await
                }
                _ => Reply {
                    allow: Some("POST, GET, DELETE"),
                    ..answer::plain(ErrorKind::MethodNotAllowed, None)
                },
            }
        }
        Err(refusal) => *refusal,
    };
    let mut reply = entry.watch(reply);
    let key_change = reply.session_key.take();
    let mut response = to_http(reply);
    if let Some(change) = key_change {
        continuity_keys::write(&change, app.is_secure(head_of), response.headers_mut());
    }
    response.headers_mut().insert(X_REQUEST_ID, request_id);
    response
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
    admit_identified(app, id, head, entry, identified)
}

fn admit_identified(
    app: &App,
    id: Option<&str>,
    head: RequestHead<'_>,
    entry: Option<&RequestEntry>,
    identified: Result<Arc<Identity>, CallerRefusal>,
) -> Result<(Arc<Identity>, ServerTarget), Box<Reply>> {
    let identity = identified.map_err(|CallerRefusal { error, challenge }| {
        Box::new(Reply {
            challenge,
            ..answer::error(&answer::identity_error(error))
        })
    })?;
    match app.directory.admit(id, &identity, entry) {
        Ok(server) => {
            head.sender.admit();
            Ok((identity, server))
        }
        Err(refusal) => {
            let scopes = refusal.scopes_missing;
            Err(Box::new(Reply {
                challenge: scopes.and_then(|scopes| app.scope_challenge(scopes, head)),
                ..refusal.reply
            }))
        }
    }
}

async fn post(
    app: &App,
    mut request: McpRequest,
    server: ServerTarget,
    headers: &HeaderMap,
    body: Body,
) -> Reply {
    if !host_origin_guard::is_json(headers) {
        return answer::plain(ErrorKind::UnsupportedMediaType, None);
    }
    if !host_origin_guard::accepts_both(headers) {
        return answer::plain(ErrorKind::NotAcceptable, None);
    }
    // Counted before its body is read, so that no user reads more bodies at once.
    match request.usage.begin_message() {
        Ok(call) => request.call = Some(Arc::new(call)),
        Err(cause) => return answer::too_many_calls(cause, None),
    }
    let read = app.request_bodies.read(body, request.usage.messages());
    let body = match read.await {
        Ok(body) => body,
        Err(error) => return answer::error(&error.into()),
    };
    if let Some(entry) = &request.entry {
        entry.note_body(body.len());
    }
    // A disconnect is not a cancellation for older revisions (MCP 2025-11-25, transports): the request runs to its end
    // even if the connection does not.
    let _gone_with_this_future = request.client_gone.clone().drop_guard();
    let call = request.call.clone();
    let is_long = body.len() > SHORT_BYTES_MAX;
    let served = post_body(request, server, body);
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
async fn post_body(request: McpRequest, server: ServerTarget, body: Bytes) -> Reply {
    let parsed = Message::parse(&body, Sender::Client);
    let is_one_way = (parsed.as_ref()).is_ok_and(|message| message.kind() != Kind::Request);
    if !is_one_way && let Some(Err(cause)) = request.call.as_ref().map(|call| call.check_call()) {
        return answer::too_many_calls(cause, parsed.as_ref().ok().and_then(Message::id));
    }
    match parsed {
        Err(EnvelopeError::Batch) => Box::pin(serve_batch(request, server, &body)).await,
        parsed => {
            let reply = serve_posted(&request, &server, &body, parsed).await;
            StreamOwner::of(&request).prime(reply, Some(&body))
        }
    }
}

async fn get(mut request: McpRequest, server: &ServerTarget, headers: &HeaderMap) -> Reply {
    request.note_session();
    let owner = StreamOwner::of(&request);
    let stream = match may_listen(&request, headers) {
        Ok(()) => owner.resume(request.fields.forwarded.last_event_id.as_ref()),
        Err(error) => ResumedStream::Settled(answer::error(&error)),
    };
    let reply = match stream {
        ResumedStream::ByServer => {
            mooring_pipeline::serve(&request, server, Operation::Stream).await
        }
        ResumedStream::Settled(reply) => reply,
        ResumedStream::Request(resumed) => {
            request.fields.forwarded.last_event_id = Some(resumed.last_event_id.clone());
            resumed.complete(mooring_pipeline::serve(&request, server, Operation::Stream).await)
        }
    };
    owner.prime(reply, None)
}

fn may_listen(request: &McpRequest, headers: &HeaderMap) -> Result<(), ErrorBody<'static>> {
    if !host_origin_guard::accepts_events(headers) {
        let error = ErrorBody::new(ErrorKind::NotAcceptable);
        return Err(error.detail("a GET needs text/event-stream"));
    }
    let revision = request.fields.revision.as_ref();
    revision.map(drop).map_err(ErrorBody::from)
}
