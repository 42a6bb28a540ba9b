//! The names of the HTTP headers of MCP and the gateway, in lower case as HTTP/2 requires.

use http::HeaderName;

/// The session id (MCP 2025-03-26, Streamable HTTP, session management).
pub const MCP_SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The alias of [`MCP_SESSION_ID`] that is accepted downstream; upstream it carries a digest.
pub const X_MCP_SESSION_ID: HeaderName = HeaderName::from_static("x-mcp-session-id");
/// The revision that was negotiated (MCP 2025-06-18).
pub const MCP_PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The method of the message, repeated (MCP 2026-07-28, transports, "Standard Request Headers").
pub const MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// The tool, prompt, resource or task of the message, repeated.
pub const MCP_NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The key of the session that requests without one share.
pub const MOORING_SESSION: HeaderName = HeaderName::from_static("mooring-session");
/// The event after which a stream is resumed (WHATWG server-sent events).
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// The id of one request, which a client or a proxy may choose: in the reply, in the log, and upstream.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Set to `1` on replies that were served without the shared store.
pub const MOORING_DEGRADED: HeaderName = HeaderName::from_static("mooring-degraded");
/// Tells nginx not to buffer a stream.
pub const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// The sender's trace and its span in it (W3C Trace Context).
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// What the systems of a trace say beside it (W3C Trace Context).
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
