//! The one stream onto which everything for a client goes: that of a client of HTTP+SSE, and standard output.
//!
//! Such a client sends its messages one by one, and none of them has a reply of its own. Each is served as if it had come
//! over Streamable HTTP, and what would be the reply to that is written here.
//!
//! Invariant: each request is answered once on the stream, also where it fails, or the stream ends.

mod open_stream;
mod queue;
mod wire;

pub use open_stream::{NegotiatedSession, OpenStream};
pub use queue::StreamOver;
pub use wire::Wire;
