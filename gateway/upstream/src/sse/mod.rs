//! A server of HTTP+SSE (MCP 2024-11-05) as a [`Link`](crate::connection::link::Link): one event stream for all that the server says, and a POST for
//! each message to it.
//!
//! Invariant: the session is the stream. Where the stream ends, or the server says that it does not know the session,
//! the link is down, and nothing opens it again: what the server kept for it is gone.

mod connect;
mod endpoint;
mod event_stream;
mod post;
mod sending;
#[cfg(test)]
mod tests;

pub use connect::{ConnectError, connect};
pub use endpoint::EndpointError;
