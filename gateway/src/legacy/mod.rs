//! Clients of HTTP+SSE (MCP 2024-11-05): the streams that are open at this worker.
//!
//! A client opens a stream, which begins its session, and is told where to POST. A POST may arrive at any worker of the
//! fleet; an owned binding in the session's record names the worker that holds the stream, and that one serves it, as if a
//! client of Streamable HTTP had POSTed it. What would be the reply to that becomes events of the stream
//! ([`crate::client_stream`]).

mod events;
mod streams;

pub use events::StreamEvents;
pub use streams::{StreamSlot, Streams};
