//! The rules against an independent history: whatever many workers do in whatever order, what the contract promises
//! holds after every single command.
//!
//! [`node`] runs commands as the module does, over the fields of a hash; [`history`] remembers, and [`invariants`]
//! judge. [`simulation`] runs a [`fleet`] of gateways, whose requests are [`task`]s, over a faulty [`network`] and
//! virtual time; [`random_commands`] are sequences without any sense; [`codec`] is the stored form alone.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

#[path = "../support/mod.rs"]
mod support;

mod codec;
mod fleet;
mod history;
mod invariants;
mod network;
mod node;
mod random_commands;
mod simulation;
mod task;
