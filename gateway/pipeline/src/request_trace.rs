//! The span of a client's message, from its arrival to the last byte of its reply.
//!
//! Its parent is the context in the message's `_meta` (SEP-414), else that of its HTTP request: a message is one operation,
//! over however many requests it comes. Where both are there, the second is linked.

use std::time::{Instant, SystemTime};

use super::request::{ClientTransport, Request};
use mooring_protocol::{Message, Revision};
use mooring_traces::{RemoteContext, RequestTrace, Span, Tracer, attribute};
use mooring_upstream::describe_message;

/// Begins the span of this message. A response of the client is part of its server's request, and has none.
pub(crate) fn begin_trace(
    tracer: &Tracer,
    request: &Request,
    message: &Message<'_>,
    revision: Revision,
    arrived: Instant,
) -> RequestTrace {
    if message.kind().is_response() {
        return RequestTrace::default();
    }
    let params = &message.params;
    let of_message = params
        .traceparent()
        .and_then(|traceparent| RemoteContext::parse(&traceparent, params.tracestate().as_deref()));
    let of_transport = request.fields.forwarded.trace_context();
    let parent = of_message.as_ref().or(of_transport.as_ref());
    let now = SystemTime::now();
    let started = now.checked_sub(arrived.elapsed()).unwrap_or(now);
    let mut trace = tracer.begin_request(parent, message.method().label(), started);
    if trace.span.is_recorded() {
        describe_message(&mut trace.span, message);
        describe_request(&mut trace.span, request, revision);
        if let (Some(_), Some(of_transport)) = (of_message, of_transport) {
            trace.span.link_remote(&of_transport);
        }
    }
    trace
}

fn describe_request(span: &mut Span, request: &Request, revision: Revision) {
    span.note(attribute::MCP_PROTOCOL_VERSION, revision.as_str());
    if let Some(Ok(id)) = request
        .fields
        .forwarded
        .request_id
        .as_ref()
        .map(|id| id.to_str())
    {
        span.note_text(attribute::REQUEST_ID, id);
    }
    match request.fields.transport {
        ClientTransport::Pipe => span.note(attribute::NETWORK_TRANSPORT, "pipe"),
        ClientTransport::Http(version) => {
            span.note(attribute::NETWORK_TRANSPORT, "tcp");
            span.note(attribute::NETWORK_PROTOCOL_NAME, "http");
            match version {
                Some(http::Version::HTTP_10) => {
                    span.note(attribute::NETWORK_PROTOCOL_VERSION, "1.0")
                }
                Some(http::Version::HTTP_11) => {
                    span.note(attribute::NETWORK_PROTOCOL_VERSION, "1.1")
                }
                Some(http::Version::HTTP_2) => span.note(attribute::NETWORK_PROTOCOL_VERSION, "2"),
                _ => {}
            }
        }
    }
}
