//! The requests that the gateway sends to instances, with their headers.
//!
//! Invariant: the client's credentials, cookies and session id are never sent. Upstream credentials come from the
//! server's settings or are made by the gateway; the session id is sent only as a digest.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use mooring_session::names::{InstanceName, UpstreamSession};

use super::credential::RequestCredential;
use super::credential_header::CredentialHeader;
use super::forwarded_fields::ForwardedFields;
use super::http::HttpRequest;
use super::message_span::describe_message;
use super::send_permit::SendPermit;
use super::timed_exchange::TimedExchange;
use super::{Caller, Instance, SendError, Server};
use mooring_protocol::header::{
    MCP_PROTOCOL_VERSION, MCP_SESSION_ID, TRACEPARENT, X_MCP_SESSION_ID,
};
use mooring_protocol::{Message, Method as McpMethod, Sender, with_traceparent};
use mooring_traces::{Span, SpanKind, TraceScope, attribute};
use mooring_usage::MemoryShare;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const JSON_OR_EVENTS: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
/// The gateway's name in requests.
pub(crate) const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("mooring/", env!("CARGO_PKG_VERSION")));

/// How many a call usually has besides those of its server.
const HEADERS_OF_A_CALL: usize = 8;

/// A request to an instance, without its URI.
#[derive(Clone, Debug)]
pub struct Outgoing {
    method: Method,
    /// The method of its message, if it is timed: that of a client.
    timed_as: Option<McpMethod>,
    headers: HeaderMap,
    body: Bytes,
    /// A further credential, which may have to be fetched first.
    credential: Option<RequestCredential>,
    /// At whose expense its reply is held.
    memory: Option<Arc<MemoryShare>>,
    permit: Option<SendPermit>,
}

impl Outgoing {
    /// A POST of one message.
    #[must_use]
    pub fn post(server: &Server, body: Bytes) -> Self {
        let mut outgoing = Self::bare(server, Method::POST, JSON_OR_EVENTS);
        outgoing.headers.insert(CONTENT_TYPE, JSON);
        Self { body, ..outgoing }
    }

    /// A GET of the general stream, or of the events after a given one.
    #[must_use]
    pub fn listen(server: &Server) -> Self {
        Self::bare(server, Method::GET, EVENTS)
    }

    /// A DELETE of an upstream session.
    #[must_use]
    pub fn delete(server: &Server) -> Self {
        Self::bare(server, Method::DELETE, JSON_OR_EVENTS)
    }

    fn bare(server: &Server, method: Method, accept: HeaderValue) -> Self {
        let mut headers = server.headers.clone();
        headers.reserve(HEADERS_OF_A_CALL);
        headers.insert(ACCEPT, accept);
        headers.insert(USER_AGENT, AGENT);
        Self::forwarded(method, headers, Bytes::new())
    }

    /// A request that a peer has forwarded.
    #[must_use]
    pub fn forwarded(method: Method, headers: HeaderMap, body: Bytes) -> Self {
        Self {
            method,
            timed_as: None,
            headers,
            body,
            credential: None,
            memory: None,
            permit: None,
        }
    }

    /// It is sent only while this permit is valid.
    pub fn set_permit(&mut self, permit: SendPermit) {
        self.permit = Some(permit);
    }

    /// Checks that it may be sent now.
    ///
    /// # Errors
    /// [`SendError::TurnLost`]
    pub fn check_permit(&self) -> Result<(), SendError> {
        match &self.permit {
            Some(permit) if !permit.permit_sending() => Err(SendError::TurnLost),
            _ => Ok(()),
        }
    }

    /// The same request, whose time to the last byte of the reply is measured as that of a message of this method.
    #[must_use]
    pub const fn timed_as(mut self, method: McpMethod) -> Self {
        self.timed_as = Some(method);
        self
    }

    /// Begins to measure its exchange with an instance, and to trace it; none for a request of the gateway itself. The
    /// server gets the span of the exchange as the parent of its own: in the header and, if the client has named its trace
    /// in `_meta`, there too.
    #[must_use]
    pub fn begin_exchange(
        &mut self,
        server: &Server,
        instance: &InstanceName,
    ) -> Option<TimedExchange> {
        let method = self.timed_as?;
        let span = self.begin_span(server, instance, method);
        // A trace that is not recorded and began here is not recorded elsewhere either.
        if let Some(scope) = span.scope().or_else(TraceScope::current) {
            let traceparent = scope.traceparent();
            if span.is_recorded()
                && let Some(body) = with_traceparent(&self.body, &traceparent)
            {
                self.body = body;
            }
            if let Ok(value) = HeaderValue::try_from(traceparent) {
                self.headers.insert(TRACEPARENT, value);
            }
        }
        let (server, instance) = (server.id.as_str(), instance.as_str());
        Some(TimedExchange::begin(server, instance, method, span))
    }

    fn begin_span(&self, server: &Server, instance: &InstanceName, method: McpMethod) -> Span {
        let mut span = Span::begin(method.label(), SpanKind::Client);
        if !span.is_recorded() {
            return span;
        }
        if let Ok(message) = Message::parse(&self.body, Sender::Gateway) {
            describe_message(&mut span, &message);
        }
        let texts = [
            (attribute::MCP_PROTOCOL_VERSION, MCP_PROTOCOL_VERSION),
            (attribute::MCP_SESSION_ID, X_MCP_SESSION_ID),
        ];
        for (attribute, header) in texts {
            if let Some(Ok(text)) = self.headers.get(header).map(HeaderValue::to_str) {
                span.note_text(attribute, text);
            }
        }
        span.note_text(attribute::SERVER, server.id.as_str());
        if server.is_program() {
            span.note(attribute::NETWORK_TRANSPORT, "pipe");
            return span;
        }
        span.note(attribute::NETWORK_TRANSPORT, "tcp");
        span.note(attribute::NETWORK_PROTOCOL_NAME, "http");
        span.note(attribute::NETWORK_PROTOCOL_VERSION, "1.1");
        if let Some(instance) = server.instance(instance) {
            let uri = &instance.uri;
            span.note_text(attribute::SERVER_ADDRESS, uri.host().unwrap_or_default());
            let of_scheme = match uri.scheme_str() {
                Some("https") => 443,
                _ => 80,
            };
            let port = uri.port_u16().unwrap_or(of_scheme);
            span.note(attribute::SERVER_PORT, i64::from(port));
        }
        span
    }

    /// Its HTTP method.
    #[must_use]
    pub const fn method(&self) -> &Method {
        &self.method
    }

    /// A further credential; none if its headers are sufficient.
    pub(crate) const fn credential(&self) -> Option<&RequestCredential> {
        self.credential.as_ref()
    }

    /// At whose expense its reply is held; none for a request of the gateway itself.
    #[must_use]
    pub const fn memory(&self) -> Option<&Arc<MemoryShare>> {
        self.memory.as_ref()
    }

    /// Its headers, which include upstream credentials other than fetched tokens and users' secrets.
    #[must_use]
    pub const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The message; empty for a GET and a DELETE.
    #[must_use]
    pub const fn body(&self) -> &Bytes {
        &self.body
    }

    /// Adds the fields of the client's request that go on.
    #[must_use]
    pub fn forwarding(mut self, client: &ForwardedFields) -> Self {
        client.add_to(&mut self.headers);
        self
    }

    /// Sets the protocol revision, for the gateway's own requests.
    #[must_use]
    pub fn revision(mut self, revision: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(revision) {
            self.headers.insert(MCP_PROTOCOL_VERSION, value);
        }
        self
    }

    /// Sets a header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sets whom the request is for: the digest of the session's id, which correlates the upstream's log with the
    /// gateway's, and the caller's identity, if the server gets it.
    #[must_use]
    pub fn on_behalf_of(mut self, server: &Server, caller: &Caller<'_>) -> Self {
        let digest = caller.session_digest.map(HeaderValue::from_str);
        if let Some(Ok(value)) = digest {
            self.headers.insert(X_MCP_SESSION_ID, value);
        }
        let credentials = server.caller_credentials.as_ref();
        if let Some(value) = credentials.and_then(|made| made.authorization(&server.id, caller)) {
            self.headers.insert(AUTHORIZATION, value);
        }
        self.credential = server.credential(caller, &self.method);
        self.memory = caller.memory.cloned();
        self
    }

    /// Sets the session id that the upstream assigned.
    #[must_use]
    pub fn upstream_session(mut self, upstream_session: Option<&UpstreamSession>) -> Self {
        self.set_upstream_session(upstream_session);
        self
    }

    /// Sets or removes the session id that the upstream assigned.
    pub fn set_upstream_session(&mut self, upstream_session: Option<&UpstreamSession>) {
        match upstream_session.map(|session| HeaderValue::from_str(session.as_str())) {
            Some(Ok(mut value)) => {
                value.set_sensitive(true);
                self.headers.insert(MCP_SESSION_ID, value);
            }
            // A session id is visible ASCII and so a valid header value. An absent id means no header.
            Some(Err(_)) | None => {
                self.headers.remove(MCP_SESSION_ID);
            }
        }
    }

    /// The HTTP request to `instance`, with this credential if there is one, in place of a static one.
    pub(crate) const fn to<'a>(
        &'a self,
        instance: &'a Instance,
        credential: Option<&'a CredentialHeader>,
    ) -> HttpRequest<'a> {
        HttpRequest {
            method: &self.method,
            uri: &instance.uri,
            headers: &self.headers,
            credential,
            body: &self.body,
            permit: self.permit.as_ref(),
        }
    }
}
