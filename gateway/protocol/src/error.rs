//! The gateway's own JSON-RPC errors: one table of kinds, codes and statuses.
//!
//! Codes: JSON-RPC 2.0 has -32700 to -32600, MCP reserves -32020 to -32099 (2026-07-28), and -32000 to -32019 are free
//! for implementations; -32042 is that of MCP 2025-11-25. Invariant: every body is a valid JSON-RPC error object with the id of the request it answers,
//! or null if there is none, and contains no secret.

use bytes::Bytes;
use http::StatusCode;

use super::envelope::EnvelopeError;
use super::ids::Id;
use super::rewrite::RewriteError;
use super::splice::quoted;
use super::version::VersionError;

/// The kinds of errors that the gateway answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(test, derive(strum::VariantArray))]
#[non_exhaustive]
pub enum ErrorKind {
    /// The body is not JSON.
    Parse,
    /// The body is JSON, but not an accepted message.
    InvalidRequest,
    /// A field that the gateway reads is invalid.
    InvalidParams,
    /// The server does not support this method.
    MethodNotFound,
    /// A server of the gateway itself refuses the tool, the cursor or the params.
    ParamsRefused,
    /// A header is missing, malformed, or differs from the field that it repeats (MCP 2026-07-28).
    HeaderMismatch,
    /// The server does not support this method, in a revision that answers so with a status (MCP 2026-07-28).
    MethodUnknown,
    /// The revision is not served.
    UnsupportedVersion,
    /// The request needs a session id and has none.
    SessionMissing,
    /// Unknown, expired, ended, or another principal's; the client must initialize again.
    SessionNotFound,
    /// The session in which a request without one was to be served has ended; nothing has run (MCP 2026-07-28).
    SessionEnded,
    /// The session already has an open GET stream.
    StreamConflict,
    /// A response to a request that is not open, or that belongs to a lost upstream session.
    AnswerUnexpected,
    /// No server has this name.
    ServerNotFound,
    /// The endpoint does not support the HTTP method.
    MethodNotAllowed,
    /// The request has no principal, or comes from a peer that is not trusted to name one.
    Unauthenticated,
    /// The request has more than one credential, or one where it must not be.
    CredentialsInvalid,
    /// No caller can be authenticated at present.
    AuthenticationUnavailable,
    /// The principal lacks the permission.
    Forbidden,
    /// The Origin header is not allowed.
    OriginForbidden,
    /// The Host header is not one of the gateway's.
    HostMisdirected,
    /// The Accept header lacks a type that the reply may have.
    NotAcceptable,
    /// The Content-Type is not application/json.
    UnsupportedMediaType,
    /// The body is longer than the limit.
    BodyTooLarge,
    /// A limit on sessions or requests is reached.
    TooManyRequests,
    /// The store is unreachable, and the session is not known here.
    StoreUnavailable,
    /// No instance of the server was reachable; the call has not run.
    UpstreamUnavailable,
    /// The instance did not answer in time; the call may have run.
    UpstreamTimeout,
    /// The instance sent something that is not MCP.
    UpstreamInvalid,
    /// The server refused with an HTTP status, without a message for the client.
    UpstreamRefused,
    /// A hook did not let the call, or its result, through.
    CallRefused,
    /// A hook whose answer is needed gave none.
    HookUnavailable,
    /// The user has not stored the credential that the server needs; nothing has run.
    CredentialMissing,
    /// The user has to open an address before the request can be served (MCP 2025-11-25); nothing has run.
    UrlElicitationRequired,
    /// The call was interrupted before its answer arrived: it may have run and was not sent again.
    OutcomeUnknown,
    /// The gateway is stopping.
    ShuttingDown,
    /// The gateway is at its limit of connections or request bodies.
    Overloaded,
    /// Earlier calls of the session at the server did not finish within this call's wait limit. It has not run.
    TurnBusy,
    /// A server-to-client request over a shared upstream session, which belongs to no single client.
    NoSingleClient,
    /// A defect of the gateway.
    Internal,
}

/// The JSON-RPC code, the HTTP status and the message of a kind.
struct Row {
    code: i32,
    status: StatusCode,
    message: &'static str,
}

const fn row(code: i32, status: StatusCode, message: &'static str) -> Row {
    Row {
        code,
        status,
        message,
    }
}

impl ErrorKind {
    const fn row(self) -> Row {
        use StatusCode as S;
        match self {
            Self::Parse => row(-32700, S::BAD_REQUEST, "parse error"),
            Self::InvalidRequest => row(-32600, S::BAD_REQUEST, "invalid request"),
            Self::InvalidParams => row(-32602, S::BAD_REQUEST, "invalid params"),
            // These two answer a valid HTTP request, as an MCP server would.
            Self::MethodNotFound => row(-32601, S::OK, "method not found"),
            Self::ParamsRefused => row(-32602, S::OK, "invalid params"),
            Self::HeaderMismatch => row(-32020, S::BAD_REQUEST, "header mismatch"),
            Self::MethodUnknown => row(-32601, S::NOT_FOUND, "method not found"),
            Self::UnsupportedVersion => row(-32022, S::BAD_REQUEST, "unsupported protocol version"),
            Self::SessionMissing => row(
                -32000,
                S::BAD_REQUEST,
                "the Mcp-Session-Id header is missing",
            ),
            Self::SessionNotFound => {
                row(-32001, S::NOT_FOUND, "session not found: initialize again")
            }
            // Also for the body that clients read of a 200.
            Self::SessionEnded => row(
                -32001,
                S::OK,
                "the session of this request has ended, and its state is gone",
            ),
            Self::StreamConflict => {
                row(-32000, S::CONFLICT, "the session has a GET stream already")
            }
            Self::AnswerUnexpected => row(-32003, S::BAD_REQUEST, "no open request has this id"),
            Self::ServerNotFound => row(-32004, S::NOT_FOUND, "no server has this name"),
            Self::MethodNotAllowed => row(-32000, S::METHOD_NOT_ALLOWED, "method not allowed"),
            Self::Unauthenticated => row(-32005, S::UNAUTHORIZED, "not authenticated"),
            Self::CredentialsInvalid => row(-32005, S::BAD_REQUEST, "not authenticated"),
            Self::AuthenticationUnavailable => {
                row(-32005, S::SERVICE_UNAVAILABLE, "not authenticated")
            }
            Self::Forbidden => row(-32006, S::FORBIDDEN, "forbidden"),
            Self::OriginForbidden => row(-32000, S::FORBIDDEN, "the Origin is not allowed"),
            Self::HostMisdirected => row(
                -32000,
                S::MISDIRECTED_REQUEST,
                "the Host is not served here",
            ),
            Self::NotAcceptable => row(
                -32000,
                S::NOT_ACCEPTABLE,
                "the Accept header must list application/json and text/event-stream",
            ),
            Self::UnsupportedMediaType => row(
                -32000,
                S::UNSUPPORTED_MEDIA_TYPE,
                "the Content-Type must be application/json",
            ),
            Self::BodyTooLarge => row(-32000, S::PAYLOAD_TOO_LARGE, "the body is too large"),
            Self::TooManyRequests => row(-32007, S::TOO_MANY_REQUESTS, "too many requests"),
            Self::StoreUnavailable => row(
                -32008,
                S::SERVICE_UNAVAILABLE,
                "the session store is not available",
            ),
            Self::UpstreamUnavailable => row(
                -32009,
                S::SERVICE_UNAVAILABLE,
                "no instance of the server could be reached",
            ),
            Self::UpstreamTimeout => row(
                -32010,
                S::GATEWAY_TIMEOUT,
                "the server did not answer in time; the call may have run",
            ),
            Self::UpstreamInvalid => {
                row(-32011, S::BAD_GATEWAY, "the server sent an invalid reply")
            }
            Self::UpstreamRefused => row(-32015, S::BAD_GATEWAY, "the server refused the request"),
            // Clients read the body of a 200 as the answer to their request, but most do not show the body of other
            // statuses.
            Self::OutcomeUnknown => row(
                -32012,
                S::OK,
                "the call was interrupted before its answer came; it may have run and was not sent again",
            ),
            Self::CallRefused => row(-32016, S::OK, "a hook did not let the call through"),
            Self::HookUnavailable => row(
                -32017,
                S::OK,
                "a hook that decides about the call did not answer",
            ),
            Self::CredentialMissing => row(-32018, S::OK, "a credential is missing"),
            Self::UrlElicitationRequired => row(
                -32042,
                S::OK,
                "this server needs a credential of yours: store it on the page, then try again",
            ),
            Self::NoSingleClient => row(
                -32601,
                S::OK,
                "no client of this session can be asked: the gateway shares it",
            ),
            Self::TurnBusy => row(
                -32014,
                S::SERVICE_UNAVAILABLE,
                "earlier calls of the session have not finished in time; this one has not run",
            ),
            Self::Overloaded => row(
                -32015,
                S::SERVICE_UNAVAILABLE,
                "the gateway is at a limit of its own: try again later",
            ),
            Self::ShuttingDown => row(-32013, S::SERVICE_UNAVAILABLE, "the gateway is stopping"),
            Self::Internal => row(-32603, S::INTERNAL_SERVER_ERROR, "internal error"),
        }
    }

    /// The JSON-RPC error code.
    #[must_use]
    pub const fn code(self) -> i32 {
        self.row().code
    }

    /// The HTTP status of the reply.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        self.row().status
    }
}

impl From<&EnvelopeError> for ErrorKind {
    fn from(error: &EnvelopeError) -> Self {
        match error {
            EnvelopeError::Utf8(_) | EnvelopeError::Json(_) => Self::Parse,
            _ => Self::InvalidRequest,
        }
    }
}

impl From<&RewriteError> for ErrorKind {
    fn from(error: &RewriteError) -> Self {
        match error {
            RewriteError::UnknownRequest | RewriteError::UnknownProgressToken => {
                Self::AnswerUnexpected
            }
            RewriteError::Token { .. } => Self::InvalidParams,
            RewriteError::Splice => Self::Internal,
        }
    }
}

/// A builder for error replies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorBody<'a> {
    kind: ErrorKind,
    id: Option<Id<'a>>,
    detail: Option<String>,
    data_json: Option<String>,
}

impl<'a> ErrorBody<'a> {
    /// An error of this kind that answers no particular request.
    #[must_use]
    pub fn new(kind: ErrorKind) -> Self {
        Self {
            kind,
            id: None,
            detail: None,
            data_json: None,
        }
    }

    /// Sets the id of the answered request, as the client wrote it.
    #[must_use]
    pub fn answering(mut self, id: Option<Id<'a>>) -> Self {
        self.id = id;
        self
    }

    /// Adds details for the caller, which must not contain secrets.
    #[must_use]
    pub fn detail(mut self, detail: impl std::fmt::Display) -> Self {
        self.detail = Some(detail.to_string());
        self
    }

    /// Sets the error's `data`, as JSON text.
    #[must_use]
    pub fn data_json(mut self, data_json: String) -> Self {
        self.data_json = Some(data_json);
        self
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The HTTP status. An error that answers no request is no success: the sender of a notification learns from the
    /// status alone that it was not delivered (MCP 2025-11-25, transports).
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self.kind.status() {
            status if self.id.is_none() && status.is_success() => StatusCode::BAD_GATEWAY,
            status => status,
        }
    }

    /// The body.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let Row { code, message, .. } = self.kind.row();
        let id = self.id.map_or("null", |id| id.as_json());
        let message = match &self.detail {
            Some(detail) => quoted(&format!("{message}: {detail}")),
            None => quoted(message),
        };
        let data = match &self.data_json {
            Some(data) => format!(r#","data":{data}"#),
            None => String::new(),
        };
        Bytes::from(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}{data}}}}}"#
        ))
    }
}

impl From<&EnvelopeError> for ErrorBody<'_> {
    fn from(error: &EnvelopeError) -> Self {
        let body = Self::new(ErrorKind::from(error));
        match error {
            // The parser's message contains the position.
            EnvelopeError::Json(source) => body.detail(source),
            other => body.detail(other),
        }
    }
}

impl From<&RewriteError> for ErrorBody<'_> {
    fn from(error: &RewriteError) -> Self {
        Self::new(ErrorKind::from(error)).detail(error)
    }
}

impl From<&VersionError> for ErrorBody<'_> {
    fn from(error: &VersionError) -> Self {
        Self::new(ErrorKind::UnsupportedVersion)
            .detail(error)
            .data_json(error.data())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]
    use std::collections::BTreeSet;

    use strum::VariantArray as _;

    use super::*;
    use crate::envelope::{Message, Sender};
    use crate::version::Revision;

    fn json(body: &ErrorBody<'_>) -> serde_json::Value {
        serde_json::from_slice(&body.to_bytes()).unwrap()
    }

    /// A kind that the page does not explain, or a row that no kind has, fails.
    #[test]
    fn the_page_explains_every_kind_and_no_other() {
        const PAGE: &str = include_str!("../../../docs/errors.md");
        let kinds = ErrorKind::VARIANTS.iter().map(|kind| {
            let Row {
                code,
                status,
                message,
            } = kind.row();
            format!("| {code} | {} | {message} ", status.as_str())
        });
        let kinds: BTreeSet<String> = kinds.collect();
        let rows = PAGE.lines().filter(|line| line.starts_with("| -32"));
        let rows: BTreeSet<String> = rows
            .map(|row| row.rsplitn(3, '|').last().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(kinds, rows);
    }

    #[test]
    fn a_body_echoes_the_id_and_escapes_details() {
        let body = ErrorBody::new(ErrorKind::UpstreamInvalid)
            .answering(Id::from_json(r#""\u0041""#).ok())
            .detail("a \"quoted\"\nword");
        assert!(
            body.to_bytes()
                .starts_with(br#"{"jsonrpc":"2.0","id":"\u0041","#)
        );
        assert_eq!(
            json(&body),
            serde_json::json!({"jsonrpc": "2.0", "id": "A", "error": {
                "code": -32011,
                "message": "the server sent an invalid reply: a \"quoted\"\nword",
            }})
        );
    }

    #[test]
    fn an_error_without_a_request_is_no_success() {
        let body = ErrorBody::new(ErrorKind::OutcomeUnknown);
        assert_eq!(body.status(), StatusCode::BAD_GATEWAY);
        let id = Id::from_json("1").ok();
        assert_eq!(body.answering(id).status(), StatusCode::OK);
        let body = ErrorBody::new(ErrorKind::StoreUnavailable);
        assert_eq!(body.status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn malformed_bodies_have_the_codes_of_json_rpc() {
        for (body, code) in [
            (&b"{"[..], -32700),
            (b"", -32700),
            (b"\xff", -32700),
            (b"[]", -32600),
            (b"7", -32600),
            (b"{}", -32600),
        ] {
            let error = Message::parse(body, Sender::Client).unwrap_err();
            let body = ErrorBody::from(&error);
            assert_eq!(body.status(), StatusCode::BAD_REQUEST);
            assert_eq!(json(&body)["error"]["code"], code);
            assert_eq!(json(&body)["id"], serde_json::Value::Null);
        }
    }

    #[test]
    fn unsupported_versions_list_the_served_ones() {
        let error = Revision::served("2026-07-28").unwrap_err();
        let body = ErrorBody::from(&error);
        assert_eq!(body.status(), StatusCode::BAD_REQUEST);
        assert_eq!(json(&body)["error"]["code"], -32022);
        assert_eq!(json(&body)["error"]["data"]["requested"], "2026-07-28");
        assert_eq!(json(&body)["error"]["data"]["supported"][3], "2025-11-25");
    }
}
