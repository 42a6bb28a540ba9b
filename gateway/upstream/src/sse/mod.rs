//! A server over HTTP+SSE (MCP 2024-11-05) as a [`Link`](crate::connection::link::Link): one event stream for all
//! messages of the server, and a POST for each message to it.
//!
//! Invariant: the session is the stream. If the stream ends or the server does not know the session, the link is down
//! and is not reopened, because the server's state is gone.

mod connect;
mod endpoint;
mod event_stream;
mod post;
mod sending;
#[cfg(test)]
mod tests;

pub use connect::{ConnectError, connect};
pub use endpoint::EndpointError;
