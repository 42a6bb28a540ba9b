//! What the tests of several crates share. No other code depends on it.

pub mod processes;
