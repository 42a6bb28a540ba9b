//! What one run of code may use and see: its limits, the directories of its trees, and the isolation tier.
//!
//! Invariant: plain data with its bounds. Nothing here opens a file or makes a system call.

pub mod limits;
pub mod paths;
pub mod tier;
