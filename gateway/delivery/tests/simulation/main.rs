//! Gateways, upstream servers and clients in virtual time, around the real state machines and the real rules.
//!
//! [`fleet`] runs the events that [`network`] carries, and causes faults. A [`gateway`] drives the machines, against the
//! virtual Redis of the rules' own tests and virtual [`upstreams`]. [`clients`] judge what they are told. Invariants are
//! checked after every step; a failure names the seed that repeats it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests fail by panicking, and a failed test shows what it printed"
)]

#[path = "../../../../redis-module/session/tests/model/history.rs"]
mod history;
#[path = "../../../../redis-module/session/tests/model/invariants.rs"]
mod invariants;
#[path = "../../../../redis-module/session/tests/model/node.rs"]
mod node;
#[path = "../../../../redis-module/session/tests/support/mod.rs"]
mod support;

mod chance;
mod clients;
mod errands;
mod faults;
mod fleet;
mod gateway;
mod network;
mod requests;
mod seeds;
mod storms;
mod upstreams;
