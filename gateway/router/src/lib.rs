//! The session router: which instance serves a session's message, in which order, and how the message gets there.
//!
//! [`affinity`] owns sessions, bindings and turns; [`dispatch`] delivers a message to what they name and passes the reply
//! on; [`pooled`] keeps the upstream sessions that the clients of a stateless server share.
//!
//! Invariant: nothing here knows where a message came from: no listener, no path, no client library.

pub mod affinity;
pub mod dispatch;
pub mod pooled;
