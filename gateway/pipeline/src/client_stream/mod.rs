//! The single stream that carries everything to a client: that of a client of HTTP+SSE, and standard output.
//!
//! Such a client sends its messages one by one, and none of them has a reply of its own. Each is served as a request like
//! any other, and its reply is written to this stream.
//!
//! Invariant: each request is answered exactly once on the stream, also if it fails, or the stream ends.

mod answering;
mod initialize;
mod open_stream;
mod queue;
mod reading;
mod stream_context;
mod wire;

pub(crate) use self::answering::{answer_request, listen, serve_message};
pub(crate) use self::initialize::{initialize, negotiated_by, revision_for};
pub(crate) use self::open_stream::OpenStream;
pub(crate) use self::stream_context::StreamContext;
pub(crate) use self::wire::Wire;
