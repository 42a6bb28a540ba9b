//! The index of a database against a naive model, and against a number of sessions that no call may look at whole.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

#[path = "../support/mod.rs"]
mod support;

mod bounds;
mod due;
mod model;
mod random_traffic;
mod sessions;
