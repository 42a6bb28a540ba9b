//! Runs as the host sees them: what comes out, what ends them, and that nothing of them is left.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what it expects by failing"
)]

mod access;
mod deno;
mod ending;
mod host;
mod limits;
mod outcome;
mod refused_calls;
mod support;
mod warm;

/// What is tested here.
const TIER: mooring_sandbox::Tier = mooring_sandbox::Tier::Strict;
