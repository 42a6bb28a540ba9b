//! HTTP+SSE of MCP 2024-11-05: `GET .../sse` opens a client's stream, `POST .../messages` sends a message to its server.
//!
//! Invariant: a POST is served only by the gateway that has the stream. If no gateway has it, the reply is 404, upon
//! which the client starts over. The session id in the query is a secret and never logged.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::{Method as HttpMethod, Uri};
use mooring_session::names::SessionId;

use super::app::App;
use super::caller::{RequestHead, RequestSender};
use super::endpoint::admit;
use super::host_origin_guard;
use super::reply::{event_stream, to_http};
use super::request_fields::read_fields_for_stream;
use mooring_pipeline::legacy::StreamMessage;
use mooring_pipeline::{RequestEntry, RequestFields, RequestKind, RequestServer as _, answer};
use mooring_protocol::{ErrorBody, ErrorKind, Reply};
use mooring_router::affinity::Session;
use mooring_usage::for_same_user;

/// The query parameter with the session id.
const SESSION_PARAMETER: &str = "sessionId";
/// Suffix of the paths that open a stream.
const STREAM_PATH: &str = "/sse";
const MESSAGES_PATH: &str = "/messages";

/// `/sse`, of the default server, and `/servers/{id}/sse`: opens a stream.
pub(super) async fn stream(
    State(app): State<Arc<App>>,
    Extension(sender): Extension<Arc<RequestSender>>,
    id: Option<Path<String>>,
    request: Request,
) -> Response {
    open_stream(app, &sender, id, request)
        .await
        .unwrap_or_else(|refusal| to_http(*refusal))
}

async fn open_stream(
    app: Arc<App>,
    sender: &RequestSender,
    id: Option<Path<String>>,
    request: Request,
) -> Result<Response, Box<Reply>> {
    // Newer clients try a POST first, and recognize an older server by this reply.
    if request.method() != HttpMethod::GET {
        return Err(not_allowed("GET"));
    }
    let (head, _) = request.into_parts();
    let id = id.as_ref().map(|Path(id)| id.as_str());
    let (identity, server) = admit(&app, id, RequestHead::of(sender, &head), None).await?;
    let server = server.id().clone();
    if !host_origin_guard::accepts_events(&head.headers) {
        return Err(refused(
            &ErrorBody::new(ErrorKind::NotAcceptable).detail("a stream needs text/event-stream"),
        ));
    }
    let path = head.uri.path();
    let before = path.strip_suffix(STREAM_PATH).unwrap_or_default();
    let endpoint = format!("{before}{MESSAGES_PATH}?{SESSION_PARAMETER}=");
    // If the client disconnects while its session begins, the session must still be cleaned up.
    let opening = app.legacy.clone().open(server, identity, endpoint);
    match tokio::spawn(for_same_user(opening)).await {
        Ok(opened) => opened.map(event_stream),
        Err(_) => Err(Box::new(answer::plain(ErrorKind::Internal, None))),
    }
}

/// `/messages`, of the default server, and `/servers/{id}/messages`: takes a message.
pub(super) async fn messages(
    State(app): State<Arc<App>>,
    Extension(sender): Extension<Arc<RequestSender>>,
    id: Option<Path<String>>,
    request: Request,
) -> Response {
    let mut fields = read_fields_for_stream(request.headers());
    fields.is_from_foreign_page =
        !host_origin_guard::is_from_own_page(&app, request.headers(), request.uri());
    let entry = fields.begin_entry(&app.core.request_log);
    let reply = match take_message(app, &sender, id, request, fields, &entry).await {
        // What was taken has an entry of its own, where its stream is.
        Ok(reply) if reply.status.is_success() => reply,
        Ok(reply) => entry.watch(reply),
        Err(refusal) => entry.watch(*refusal),
    };
    to_http(reply)
}

async fn take_message(
    app: Arc<App>,
    sender: &RequestSender,
    id: Option<Path<String>>,
    request: Request,
    fields: RequestFields,
    entry: &RequestEntry,
) -> Result<Reply, Box<Reply>> {
    if request.method() != HttpMethod::POST {
        return Err(not_allowed("POST"));
    }
    let (head, body) = request.into_parts();
    let id = id.as_ref().map(|Path(id)| id.as_str());
    let (identity, server) = admit(&app, id, RequestHead::of(sender, &head), Some(entry)).await?;
    let server = server.id().clone();
    entry.note_server(&server, RequestKind::Unknown);
    // The reply has no content, so Accept is not checked.
    if !host_origin_guard::is_json(&head.headers) {
        return Err(refused(&ErrorBody::new(ErrorKind::UnsupportedMediaType)));
    }
    let id = session_id(&head.uri).map_err(|error| refused(&error))?;
    let prefix = &app.core.session_router.options().key_prefix;
    let session = Session::named(prefix, id, identity.principal.clone());
    let usage = app.core.usages.of(&identity.principal);
    usage.charge_task().await;
    // For as long as its body is read: what the message asks for is counted where its stream is.
    let call = usage.begin_message();
    let call = call.map_err(|cause| Box::new(answer::too_many_calls(cause, None)))?;
    let body = app.request_bodies.read(body, usage.messages()).await;
    drop(call);
    let body = body.map_err(|error| refused(&error.into()))?;
    // A message is delivered also if the client disconnects before the reply.
    let message = StreamMessage {
        key: session.key.clone(),
        principal: session.principal.clone(),
        rights: identity.rights_digest(),
        server,
        epoch: None,
        fields,
        body,
    };
    let clients = app.legacy.clone();
    let delivering = tokio::spawn(for_same_user(async move {
        clients.deliver(session, message).await
    }));
    let delivered = delivering.await;
    Ok(delivered.unwrap_or_else(|_| answer::plain(ErrorKind::Internal, None)))
}

fn refused(error: &ErrorBody<'_>) -> Box<Reply> {
    Box::new(answer::error(error))
}

/// The session id in the query.
fn session_id(uri: &Uri) -> Result<SessionId, ErrorBody<'static>> {
    let query = uri.query().unwrap_or_default();
    let mut values = url::form_urlencoded::parse(query.as_bytes())
        .filter(|(name, _)| name == SESSION_PARAMETER)
        .map(|(_, value)| value);
    let invalid = |detail: &str| ErrorBody::new(ErrorKind::InvalidRequest).detail(detail);
    let value = values
        .next()
        .ok_or_else(|| invalid("the query must name the session, as sessionId"))?;
    if values.any(|other| other != value) {
        return Err(invalid("the query names two sessions"));
    }
    // A value that cannot be a session id belongs to no session.
    SessionId::parse(value.as_bytes()).map_err(|_| ErrorBody::new(ErrorKind::SessionNotFound))
}

fn not_allowed(allowed: &'static str) -> Box<Reply> {
    Box::new(Reply {
        allow: Some(allowed),
        ..answer::plain(ErrorKind::MethodNotAllowed, None)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn the_query_names_one_session() {
        let status = |uri: &'static str| {
            session_id(&Uri::from_static(uri))
                .map(|id| id.as_str().to_owned())
                .map_err(|error| error.status().as_u16())
        };
        assert_eq!(status("/messages?sessionId=a1"), Ok("a1".to_owned()));
        assert_eq!(
            status("/messages?x=1&sessionId=a%31&y"),
            Ok("a1".to_owned())
        );
        assert_eq!(
            status("/messages?sessionId=a&sessionId=a"),
            Ok("a".to_owned())
        );
        for (uri, expected) in [
            ("/messages", 400),
            ("/messages?", 400),
            ("/messages?session_id=a", 400),
            ("/messages?sessionId=a&sessionId=b", 400),
            ("/messages?sessionId=", 404),
            ("/messages?sessionId=a%20b", 404),
        ] {
            assert_eq!(status(uri), Err(expected), "{uri}");
        }
    }
}
