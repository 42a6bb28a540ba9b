//! Upstream servers, hooks and proxies whose replies get out of step with the requests, at every kind of server: no user
//! ever gets the reply to a request that was not theirs, and clients that use one id for every request get their own
//! replies too.
//!
//! Invariant: what spoils replies counts them, and an attack in which too few were spoiled fails its test.

mod attack;
mod by_code;
mod duplex;
mod echo;
mod hooks;
mod http;
mod one_id;
mod peers;
mod sse;
