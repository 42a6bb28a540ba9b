//! What the tests of the stores share: requests in short, random operations, and a Redis of their own.

mod differential;
pub(super) mod operations;
pub(super) mod requests;
pub(super) mod server;
