//! The session router: which instance serves a session's message, in which order, and how the message reaches it.
//!
//! [`affinity`] owns sessions, bindings and turns; [`dispatch`] delivers a message over a binding and relays the reply;
//! [`pooled`] keeps the upstream sessions that clients of a stateless server share. [`Departure`] says whether this gateway
//! leaves the fleet.
//!
//! Invariant: nothing here depends on the client side: no listener, no path, no client library.

pub mod affinity;
mod departure;
pub mod dispatch;
mod in_flight_requests;
mod lock_stripes;
pub mod pooled;
mod request_tag;

pub use departure::{Departure, DeparturePhase};
pub use in_flight_requests::{InFlightRequest, InFlightRequests};
