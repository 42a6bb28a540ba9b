//! Clients of HTTP+SSE (MCP 2024-11-05): the open streams of this gateway.
//!
//! A client opens a stream, which begins its session, and receives the URL to POST to. A POST may arrive at any
//! gateway; an owned binding in the session's record names the gateway that has the stream, and that one serves it as a
//! request like any other. The reply is written as events of the stream (`client_stream`).

mod clients;
mod delivery;
mod events;
mod opening;
mod streams;

pub use self::clients::LegacyClients;
pub use self::delivery::{RIGHTS, StreamMessage};
pub use self::events::StreamEvents;
