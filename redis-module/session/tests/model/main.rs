//! The rules against an independent history: whatever many workers do in whatever order, what the contract promises
//! holds after every single command.
//!
//! [`node`] runs commands as the module does, over the fields of a hash; [`history`] remembers, and [`invariants`]
//! judge. [`random_commands`] are sequences without any sense; [`codec`] is the stored form alone. The simulation of a
//! fleet of gateways, `gateway/delivery/tests/simulation`, uses the same node, history and invariants.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

#[path = "../support/mod.rs"]
mod support;

mod codec;
mod history;
#[allow(dead_code, reason = "the simulation of a fleet uses more of it")]
mod invariants;
#[allow(dead_code, reason = "the simulation of a fleet uses more of it")]
mod node;
mod random_commands;
