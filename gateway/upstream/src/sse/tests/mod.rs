//! Links to servers that really listen: one that keeps to the protocol, and those that do not.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod connecting;
mod fake;
mod posting;
mod streaming;
