//! Turns and events: tables of single situations, and random runs against what is promised.
//!
//! [`fixture`] is a node with its queues, its events and its two clocks; [`queues`], [`leases`], [`held`], [`delegated`], [`withdrawn`] and
//! [`mail`] are the tables; [`random_runs`] is the model.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod delegated;
mod fixture;
mod held;
mod leases;
mod mail;
mod queues;
mod random_runs;
mod withdrawn;
