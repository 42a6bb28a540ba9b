//! The MCP wire layer: parses and rewrites messages, and returns what the gateway needs to know about them.
//!
//! Invariant: parts that the gateway does not understand stay unchanged. A message is inspected as raw JSON and changed
//! by replacing spans of the original text, so unknown fields, key order, number spelling and white space are preserved
//! byte for byte. This crate depends on no HTTP handlers, stores or settings, and never blocks.

pub mod arguments;
pub mod bridge;
pub mod call;
pub mod envelope;
pub mod error;
pub mod event;
pub mod header;
pub mod held;
pub mod ids;
pub mod listing;
pub mod mark;
pub mod marker;
pub mod method;
pub mod modern;
pub mod renaming;
pub mod repeated_keys;
pub mod reply;
pub mod response_outcome;
pub mod rewrite;
pub mod stream;
pub mod tool_server;
pub mod version;
pub mod watched_reply;

mod cut_message;
mod keys;
mod session_note;
mod splice;
mod trace_meta;

pub use cut_message::{CutMessage, request_id, response_id};
pub use envelope::{EnvelopeError, Kind, Message, Sender};
pub use error::{ErrorBody, ErrorKind};
pub use event::{Event, EventParser, EventTooLong};
pub use ids::{
    Epoch, Id, IdError, Lane, PendingRequest, RequestOrigin, RequestTag, ServerRequestId,
};
pub use listing::Listing;
pub use mark::Rebound;
pub use marker::Marker;
pub use method::Method;
pub use reply::{
    ByteStream, EventStream, HeldText, Reply, ReplyBody, ReplyError, ReplyMessages,
    SessionKeyChange,
};
pub use response_outcome::ResponseOutcome;
pub use rewrite::{
    Downward, RewriteError, Upward, rewrite_down, rewrite_up, with_id, with_request_id,
};
pub use stream::{StreamError, StreamRewriter};
pub use tool_server::ToolServer;
pub use trace_meta::with_traceparent;
pub use version::{Revision, VersionError};
pub use watched_reply::{BodyEnd, CompleteWith, ReplySummary};

#[cfg(test)]
mod tests;
