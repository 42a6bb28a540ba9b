//! From worker to worker: requests for a connection that lives in another worker, and their replies as they arrive.
//!
//! Every worker listens on an address of its own, which its beats announce. There is one route, `POST /peer/v1`: an
//! envelope and the message in, frames out; `fleet` says what they look like and why they can be trusted.
//!
//! Invariant: a failure says whether anything can have been delivered, and whatever is not authentic is neither served nor
//! passed on.

mod body;
mod client;
pub mod fleet;
mod framed;
mod intake;
mod listener;
mod metrics;
mod service;

use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use mooring_session::time::Millis;

pub use body::{PeerBody, PeerBodyError};
pub use client::{Forgery, PeerClient, PeerError};
pub use listener::{ListenerOptions, listen};
pub use metrics::describe_metrics;
pub use service::PeerService;

/// The one path of the listener.
const PATH: &str = "/peer/v1";
/// What is sent, both ways.
const CONTENT: HeaderValue = HeaderValue::from_static("application/vnd.mooring.peer");

/// The wall clock, in milliseconds since 1970.
fn unix_now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| Millis::from(elapsed).get())
}

#[cfg(test)]
mod tests;
