//! From gateway to gateway: requests for a connection that lives in another one, and their replies as they arrive.
//!
//! Every gateway listens on an address of its own, which its beats announce. It speaks HTTP/1.1 inside mutual TLS 1.3 with
//! the certificates of [`fleet`], so requests and replies are authentic, whole, in order and unreadable to anybody else.
//!
//! Invariant: a failure says whether anything can have been delivered, and nothing is served for, or sent to, anybody
//! without a key of the fleet.

mod client;
pub mod fleet;
mod forward;
mod listener;
mod metrics;
mod refusal;
mod service;

pub use client::{PeerClient, PeerError, ReplyAbandoned};
pub use forward::{Forward, HeaderTooLarge, Operation, Verdict};
pub use listener::{ListenerOptions, listen};
pub use metrics::describe_metrics;
pub(crate) use refusal::REFUSAL_REASONS;
pub use service::PeerService;

#[cfg(test)]
mod tests;
