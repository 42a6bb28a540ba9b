//! HTTP+SSE of MCP 2024-11-05, on both sides: one event stream for all that the server says, and a POST for each message
//! of the client.
//!
//! Invariant: the session is the stream. Nothing of it can be resumed, so its end is the end of the session.

pub mod downstream;
pub mod upstream;
