//! Connects: opens the event stream and waits for the endpoint event, after which there is a link.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};

use super::endpoint::{EndpointError, resolve};
use super::event_stream::{ServerEvent, StreamEnd, next_event};
use super::post::Poster;
use super::sending::send_all;
use crate::answer_in_place::error_in_place_of_long;
use crate::connection::link::{Link, LinkEnd, TransportEnd, pair};
use crate::request::AGENT;
use crate::{Client, Instance, SendError};
use mooring_protocol::{EventStream, ReplyBody};
use mooring_traces::without_scope;
use mooring_usage::for_same_user;
use tokio::sync::mpsc;

/// Messages queued per direction of a link.
const MESSAGES_MAX: usize = 64;

/// Why there is no link. No message was delivered.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The request for the stream got no response.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The server refused the stream.
    #[error("the server answered the request for its event stream with HTTP status {}", .0.as_u16())]
    Status(StatusCode),
    /// The response is not an event stream: the server does not speak HTTP+SSE, or not at this URL.
    #[error("the server answered the request for its event stream with another type of content")]
    NotEvents,
    /// The server did not name its endpoint in time.
    #[error("the server sent no endpoint event within {} ms", .0.as_millis())]
    NoEndpoint(Duration),
    /// The stream ended before the endpoint event.
    #[error("{0}, before its endpoint event")]
    Stream(#[from] StreamEnd),
    /// The endpoint is not allowed.
    #[error("the endpoint event of the server cannot be followed: {0}")]
    Endpoint(#[from] EndpointError),
}

impl ConnectError {
    /// Whether another instance may succeed: this one is unreachable, unhealthy or not ready. Deliberate answers would
    /// be the same elsewhere.
    #[must_use]
    pub fn should_try_another_instance(&self) -> bool {
        match self {
            Self::Send(_) | Self::NoEndpoint(_) | Self::Stream(_) => true,
            Self::Status(status) => {
                status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
            }
            Self::NotEvents | Self::Endpoint(_) => false,
        }
    }
}

/// Opens a session at `instance`, with at most `endpoint_within` from the request to its `endpoint` event. Every
/// request of the session carries `headers`, the server's own, which include credentials.
///
/// # Errors
/// See [`ConnectError`].
pub async fn connect(
    client: &Client,
    instance: &Arc<Instance>,
    headers: &HeaderMap,
    endpoint_within: Duration,
) -> Result<Link, ConnectError> {
    let mut headers = headers.clone();
    headers.insert(USER_AGENT, AGENT);
    let opening = open(client, instance, &headers);
    let (events, endpoint) = tokio::time::timeout(endpoint_within, opening)
        .await
        .unwrap_or(Err(ConnectError::NoEndpoint(endpoint_within)))?;
    let poster = Poster {
        client: client.clone(),
        instance: Arc::clone(instance),
        endpoint,
        headers,
    };
    let (link, transport_end) = pair(MESSAGES_MAX);
    let driving = drive(transport_end, events, poster);
    tokio::spawn(for_same_user(without_scope(driving)));
    Ok(link)
}

async fn open(
    client: &Client,
    instance: &Instance,
    headers: &HeaderMap,
) -> Result<(EventStream, Uri), ConnectError> {
    let mut request = Request::new(Bytes::new());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = instance.uri.clone();
    *request.headers_mut() = headers.clone();
    let own = request.headers_mut();
    own.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    own.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let reply = client.send_request(instance, &request).await?;
    if !reply.status.is_success() {
        return Err(ConnectError::Status(reply.status));
    }
    let ReplyBody::Events(mut events) = reply.body else {
        return Err(ConnectError::NotEvents);
    };
    loop {
        match next_event(&mut events).await? {
            ServerEvent::Endpoint(named) => {
                let endpoint = resolve(&instance.uri, &named)?;
                return Ok((events, endpoint));
            }
            // The protocol requires the endpoint first; an earlier message answers nothing.
            ServerEvent::Message(_) | ServerEvent::TooLong(_) => {
                tracing::debug!(instance = %instance.name, "dropped a message before the endpoint event");
            }
        }
    }
}

/// Carries messages in both directions, independently, until the link is down.
async fn drive(transport_end: TransportEnd, mut events: EventStream, poster: Poster) {
    let TransportEnd {
        mut outgoing,
        incoming,
        ending,
        stop,
        gone,
    } = transport_end;
    let end = tokio::select! {
        biased;
        () = stop.cancelled() => LinkEnd::Closed,
        end = receive(&mut events, &incoming, &poster.instance) => end,
        end = send_all(&poster, &mut outgoing, &incoming) => end,
    };
    tracing::debug!(instance = %poster.instance.name, %end, "event stream of a server ended");
    ending.set(end);
    // The order matters: the reason, the end of the messages, the connection, then `gone`.
    drop((outgoing, incoming));
    drop((events, poster));
    drop(gone);
}

/// Passes messages on until the stream ends. An answer that is too long is replaced by an error.
async fn receive(
    events: &mut EventStream,
    incoming: &mpsc::Sender<Bytes>,
    instance: &Instance,
) -> LinkEnd {
    loop {
        let message = match next_event(events).await {
            Ok(ServerEvent::Message(message)) => Some(message),
            Ok(ServerEvent::TooLong(event)) => {
                let (bytes, bytes_max) = (event.message.bytes, event.event_bytes_max);
                tracing::warn!(instance = %instance.name, bytes, bytes_max, "dropped a message of a server that is too long");
                error_in_place_of_long(&event.message, bytes_max)
            }
            Ok(ServerEvent::Endpoint(_)) => {
                tracing::debug!("ignored a second endpoint event");
                None
            }
            Err(end) => return end.into(),
        };
        if let Some(message) = message
            && incoming.send(message).await.is_err()
        {
            return LinkEnd::Closed;
        }
    }
}
