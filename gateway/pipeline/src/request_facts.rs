//! What is known of a request, for metrics and the log.

use std::sync::Arc;
use std::time::Duration;

use mooring_session::names::{InstanceName, Principal, ServerName};

use mooring_metrics::{ExchangeOutcome, ExchangeTimer};
use mooring_protocol::{Method, ReplySummary};
use mooring_traces::Span;

/// What is known of a request.
#[derive(Debug, Default)]
pub(crate) struct RequestFacts {
    /// Who sent it.
    pub(crate) user: Option<Principal>,
    /// The server in its path.
    pub(crate) server: Option<ServerName>,
    /// What it is.
    pub(crate) kind: RequestKind,
    /// The tool that it calls.
    pub(crate) tool: Option<Box<str>>,
    /// The digest of its session.
    pub(crate) session: Option<Arc<str>>,
    /// The instance that answered it.
    pub(crate) instance: Option<InstanceName>,
    /// The bytes of its message.
    pub(crate) bytes: u64,
    /// Measures a message for a server.
    pub(crate) timer: Option<ExchangeTimer>,
    /// Traces it.
    pub(crate) span: Span,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestKind {
    /// Not known, because it was refused before or cannot be read.
    #[default]
    Unknown,
    /// A message that has a response.
    Request(Method),
    /// Any other message.
    OneWay(Method),
    /// Several messages, each of which has an entry of its own too.
    Batch,
    /// A GET of a stream, which its client ends.
    Stream,
    /// The end of a session.
    Deletion,
}

impl RequestKind {
    /// Its name for the log.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Request(method) | Self::OneWay(method) => method.label(),
            Self::Batch => "batch",
            Self::Stream => "GET",
            Self::Deletion => "DELETE",
        }
    }
}

/// A request whose reply has ended.
#[derive(Debug)]
pub(crate) struct EndedRequest<'a> {
    /// Its id, or that of the request in whose place it is made.
    pub(crate) id: &'a str,
    /// What is known of a request.
    pub(crate) facts: RequestFacts,
    /// The summary of its reply.
    pub(crate) reply: &'a ReplySummary,
    /// How it ended.
    pub(crate) outcome: ExchangeOutcome,
    /// The time to the first byte of its reply, if that has a body.
    pub(crate) first_byte: Option<Duration>,
    /// The time to the last one.
    pub(crate) took: Duration,
}
