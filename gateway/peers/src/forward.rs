//! A request from one gateway to another, and its form in HTTP: `{method} /peer/v2/{operation}`, session and binding in
//! header fields, the message as the body. The reply is the connection's, with one more field for the outcome: served,
//! or the reason why nothing was done.
//!
//! Session keys and principals are in base64: a principal may begin or end with a space.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, request};
use http_body_util::Full;
use mooring_session::names::{Principal, ServerName};
use mooring_traces::{RemoteContext, Span, SpanKind, attribute};
use strum::VariantArray as _;

const SESSION_KEY: HeaderName = HeaderName::from_static("mooring-peer-session");
const PRINCIPAL: HeaderName = HeaderName::from_static("mooring-peer-principal");
const SERVER: HeaderName = HeaderName::from_static("mooring-peer-server");
const EPOCH: HeaderName = HeaderName::from_static("mooring-peer-epoch");
/// `served`, or a [`Verdict`]. A reply without it is not from the peer service.
const OUTCOME: HeaderName = HeaderName::from_static("mooring-peer-outcome");
/// The span of the gateway that forwards (W3C Trace Context).
pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const SERVED: HeaderValue = HeaderValue::from_static("served");

/// Most header fields of the client that are forwarded. HTTP allows 100 in total.
const FIELDS_MAX: usize = 80;
/// Most bytes of these fields.
const FIELD_BYTES_MAX: usize = 64 * 1024;

/// Header fields of the connection between gateways, which are not forwarded.
const OF_THE_HOP: [HeaderName; 5] = [CONNECTION, CONTENT_LENGTH, DATE, HOST, TRANSFER_ENCODING];

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Serve a message, a stream or a deletion at a connection.
    Serve,
    /// Renew a connection that was lost.
    Renew,
    /// Move a binding away; the body names the instance that gets it, or is empty.
    Move,
    /// Close a connection.
    Close,
    /// Deliver a message to the stream of a legacy client.
    Stream,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 5] = [
        Self::Serve,
        Self::Renew,
        Self::Move,
        Self::Close,
        Self::Stream,
    ];

    /// What its span is named.
    const fn span_name(self) -> &'static str {
        match self {
            Self::Serve => "forward message",
            Self::Renew => "forward renewal",
            Self::Move => "forward move",
            Self::Close => "forward close",
            Self::Stream => "forward to stream",
        }
    }

    /// The path of its requests. A change of their layout needs another version.
    const fn path(self) -> &'static str {
        match self {
            Self::Serve => "/peer/v2/serve",
            Self::Renew => "/peer/v2/renew",
            Self::Move => "/peer/v2/move",
            Self::Close => "/peer/v2/close",
            Self::Stream => "/peer/v2/stream",
        }
    }

    /// The operation of this path.
    pub(super) fn of(path: &str) -> Result<Self, UnknownOperation> {
        Self::ALL
            .into_iter()
            .find(|operation| operation.path() == path)
            .ok_or(UnknownOperation)
    }
}

/// A request from one gateway to another, as sent and as received.
#[derive(Clone, PartialEq, Eq)]
pub struct Forward {
    /// The operation.
    pub operation: Operation,
    /// The key of the session's record: a secret.
    pub session_key: Box<str>,
    /// The principal of the session.
    pub principal: Principal,
    /// The server of the connection.
    pub server: ServerName,
    /// The epoch of the binding that names the receiving gateway as owner.
    pub epoch: u64,
    /// The method of the client's request.
    pub method: Method,
    /// The header fields that the connection needs.
    pub headers: HeaderMap,
    /// The message; empty if the method has none.
    pub body: Bytes,
}

impl fmt::Debug for Forward {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Forward")
            .field("operation", &self.operation)
            .field(
                "session",
                &mooring_secrets::digest::short(&self.session_key),
            )
            .field("server", &self.server)
            .field("epoch", &self.epoch)
            .field("method", &self.method)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Why a gateway did not serve a request. With every verdict, nothing was delivered to the server. Its word is used in
/// replies, logs and labels.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Verdict {
    /// It does not have that connection at that epoch.
    #[error("the gateway does not hold the connection")]
    NotHere,
    /// It is stopping and accepts no new requests.
    #[error("the gateway is stopping")]
    Draining,
    /// It cannot reach the store, so it may have lost the connection to another gateway.
    #[error("the gateway has fenced itself")]
    Fenced,
    /// It had the connection, which has ended.
    #[error("the connection has ended")]
    Ended,
    /// It does not support the operation.
    #[error("the gateway does not support the operation")]
    Unsupported,
}

/// The request does not fit into a message to a peer. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request's header is too large for a peer: over {FIELDS_MAX} fields or {FIELD_BYTES_MAX} bytes"
)]
pub struct HeaderTooLarge;

/// The path has no known operation: the peer runs another release.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnknownOperation;

/// The head of a request is malformed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MalformedHead;

impl Forward {
    /// The HTTP request, without scheme and authority.
    pub(super) fn to_request(&self) -> Result<Request<Full<Bytes>>, HeaderTooLarge> {
        let bytes: usize = self
            .headers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len())
            .sum();
        if self.headers.len() > FIELDS_MAX || bytes > FIELD_BYTES_MAX {
            return Err(HeaderTooLarge);
        }
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.headers_mut() = self.headers.clone();
        let fields = [
            (SESSION_KEY, BASE64.encode(&*self.session_key)),
            (PRINCIPAL, BASE64.encode(self.principal.as_str())),
            (SERVER, self.server.as_str().to_owned()),
        ];
        for (name, text) in fields {
            // Base64 and names of servers are visible ASCII, so this does not fail.
            let mut value = HeaderValue::try_from(text).map_err(|_| HeaderTooLarge)?;
            value.set_sensitive(true);
            request.headers_mut().insert(name, value);
        }
        request.headers_mut().insert(EPOCH, self.epoch.into());
        Ok(request)
    }

    /// The span of the gateway that sends it; none if that records none.
    #[must_use]
    pub fn trace_context(&self) -> Option<RemoteContext> {
        RemoteContext::parse(self.headers.get(TRACEPARENT)?.to_str().ok()?, None)
    }

    /// Begins the span of the gateway that sends it, as part of what that traces.
    pub(super) fn begin_span(&self, kind: SpanKind) -> Span {
        let mut span = Span::begin(self.operation.span_name(), kind);
        self.describe(&mut span);
        span
    }

    /// Names the span after it, and says what it is.
    pub fn describe(&self, span: &mut Span) {
        span.rename(self.operation.span_name());
        span.note_text(attribute::SERVER, self.server.as_str());
        span.note_count(attribute::EPOCH, self.epoch);
        span.note(attribute::NETWORK_TRANSPORT, "tcp");
        span.note(attribute::NETWORK_PROTOCOL_NAME, "http");
        span.note(attribute::NETWORK_PROTOCOL_VERSION, "1.1");
    }

    /// The path of its request.
    pub(super) const fn path(&self) -> &'static str {
        self.operation.path()
    }

    /// Parses the head of a request. The body is read later.
    pub(super) fn from_head(
        operation: Operation,
        head: request::Parts,
    ) -> Result<Self, MalformedHead> {
        let mut headers = head.headers;
        let mut take = |name| {
            let value = headers.remove::<HeaderName>(name).ok_or(MalformedHead)?;
            Ok(value.as_bytes().to_vec())
        };
        let session_key = decode(&take(SESSION_KEY)?)?;
        let principal = decode(&take(PRINCIPAL)?)?;
        let (server, epoch) = (take(SERVER)?, take(EPOCH)?);
        let epoch = std::str::from_utf8(&epoch).ok();
        for name in OF_THE_HOP {
            headers.remove(name);
        }
        Ok(Self {
            operation,
            session_key: String::from_utf8(session_key)
                .map_err(|_| MalformedHead)?
                .into(),
            principal: Principal::parse(&principal).map_err(|_| MalformedHead)?,
            server: ServerName::parse(&server).map_err(|_| MalformedHead)?,
            epoch: epoch
                .and_then(|epoch| epoch.parse().ok())
                .ok_or(MalformedHead)?,
            method: head.method,
            headers,
            body: Bytes::new(),
        })
    }
}

fn decode(text: &[u8]) -> Result<Vec<u8>, MalformedHead> {
    BASE64.decode(text).map_err(|_| MalformedHead)
}

/// Sets the outcome: the reply is the connection's, or why there is none.
pub(super) fn set_outcome(headers: &mut HeaderMap, outcome: Result<(), Verdict>) {
    let word = match outcome {
        Ok(()) => SERVED,
        Err(verdict) => HeaderValue::from_static(verdict.into()),
    };
    headers.insert(OUTCOME, word);
}

/// Removes the outcome from a reply and returns it; none if the reply is not from the peer service.
pub(super) fn take_outcome<B>(reply: &mut Response<B>) -> Option<Result<(), Verdict>> {
    let outcome = reply.headers_mut().remove(OUTCOME)?;
    for name in OF_THE_HOP {
        reply.headers_mut().remove(name);
    }
    if outcome == SERVED {
        return Some(Ok(()));
    }
    let verdict = Verdict::VARIANTS
        .iter()
        .find(|verdict| outcome == <&str>::from(*verdict))?;
    Some(Err(*verdict))
}
