//! The single stream that carries everything to a client: that of a client of HTTP+SSE, and standard output.
//!
//! Such a client sends its messages one by one, and none of them has a reply of its own. Each is served as if it had
//! arrived over Streamable HTTP, and its reply is written to this stream.
//!
//! Invariant: each request is answered exactly once on the stream, also if it fails, or the stream ends.

mod open_stream;
mod queue;
mod wire;

pub use open_stream::{CallRefusal, NegotiatedSession, OpenStream, StreamCall};
pub use queue::StreamOver;
pub use wire::Wire;
