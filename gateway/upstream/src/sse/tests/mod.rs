//! Links to real servers: a conforming one, and others.
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
