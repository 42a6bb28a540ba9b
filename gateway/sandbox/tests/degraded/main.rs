//! The degraded tier: what it promises, as root and as an ordinary user, and that its trees are copies.
//!
//! It has to be asked for what the strict tier is asked for in `run`, `inside` and `abuse` where it promises the same;
//! here stands what is its own: no process leaves the group, the group is all that has to be killed, the disk is
//! watched, and nothing of the machine can be reached that only a namespace would hide.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod ending;
mod files;
mod host;
mod reach;
mod runtimes;
#[path = "../run/support.rs"]
#[allow(
    dead_code,
    reason = "shared with the tests of runs, which use more of it"
)]
mod support;

/// What is tested here.
const TIER: mooring_sandbox::Tier = mooring_sandbox::Tier::Degraded;
