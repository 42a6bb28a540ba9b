//! The Redis module as operators and clients meet it: a real server, raw RESP.
//!
//! A binary of its own, so that a change of the module links no gateway and no rmcp. What gateways do with the module is
//! in tests/tests/it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod access;
mod arrivals;
mod caps;
mod clock_steps;
mod cluster;
mod crash;
mod data;
mod delegations;
mod differential;
mod documentation;
mod edited;
mod errors;
mod expired_events;
mod forgetting;
mod grammar;
mod hostile;
mod indexes;
mod keyspace;
mod known_epochs;
mod listing;
mod loading;
mod memcheck;
mod metadata;
mod oom;
mod pages;
mod persistence;
mod placement;
mod propagation;
mod rate;
mod reaping;
mod replica_indexes;
mod replication;
mod replies;
mod resp;
mod scale;
mod servers;
mod stream;
mod traffic;
mod transactions;
mod transitions;
mod truth;
mod turns;
mod unloading;
mod upgrade;
mod waiting;
mod wakes;
