//! Requests between gateways, for connections that another gateway owns, and their streamed replies.
//!
//! Every gateway has a private listener, whose address is in its heartbeats. It speaks HTTP/1.1 over mutual TLS 1.3
//! with the certificates of [`fleet`], so requests and replies are authenticated, complete, in order and encrypted.
//!
//! Invariant: an error says whether the request may have been delivered, and nothing is accepted from or sent to a
//! process without a key of the fleet.

mod client;
mod figures;
pub mod fleet;
mod forward;
mod listener;
mod metrics;
mod refusal;
mod service;

pub use client::{PeerClient, PeerError, ReplyAbandoned};
pub use figures::FiguresError;
pub use forward::{Forward, HeaderTooLarge, Operation, Verdict};
pub use listener::{ListenerOptions, listen};
pub use metrics::describe_metrics;
pub use service::PeerService;

#[cfg(test)]
mod tests;
