//! What the tests of the stores share: requests in short, random operations, and a Redis of their own.

pub(crate) mod differential;
mod every_store;
pub(super) mod operations;
pub(crate) mod requests;
mod scenarios;
pub(crate) mod server;
mod side;
pub(crate) mod turns;
mod wishes;

/// The machine's clocks, for a store that a test makes for itself.
pub(crate) fn system_clock() -> super::clock::Clock {
    super::clock::Clock::system()
}
