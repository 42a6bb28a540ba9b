//! The MCP wire layer: bytes in, bytes out, and what the gateway has to know about them.
//!
//! Invariant: what the gateway does not understand it does not touch. A message is looked at as raw
//! JSON and changed by splicing spans of the original text, so unknown fields, key order, number
//! spelling and white space survive byte for byte. Nothing here knows HTTP handlers, stores or
//! settings, and nothing here waits.

pub mod arguments;
pub mod call;
pub mod envelope;
pub mod error;
pub mod event;
pub mod header;
pub mod ids;
pub mod listing;
pub mod mark;
pub mod marker;
pub mod method;
pub mod renaming;
pub mod reply;
pub mod rewrite;
pub mod stream;
pub mod tool_server;
pub mod version;

mod keys;
mod splice;

pub use envelope::{EnvelopeError, Kind, Message, Sender};
pub use error::{ErrorBody, ErrorKind};
pub use event::{Event, EventError, EventParser};
pub use ids::{Epoch, Id, IdError, Lane, RequestOrigin, ServerRequestId};
pub use listing::Listing;
pub use mark::Rebound;
pub use marker::Marker;
pub use method::Method;
pub use reply::{ByteStream, EventStream, Reply, ReplyBody, ReplyError, ReplyMessages};
pub use rewrite::{Downward, RewriteError, Upward, rewrite_down, rewrite_up, with_id};
pub use stream::{StreamError, StreamRewriter};
pub use tool_server::ToolServer;
pub use version::{Revision, VersionError};

#[cfg(test)]
mod tests;
