//! What the tests of the stores share: requests in short, random operations, and a Redis of their own.

mod differential;
mod every_store;
pub(super) mod operations;
pub(super) mod requests;
mod scenarios;
pub(super) mod server;
mod side;
mod turns;
mod wishes;
