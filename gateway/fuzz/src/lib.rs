//! The readers of replies, built from the gateway's own sources, with the doors through which the targets drive them.

// What these sources take from other crates of the workspace.
extern crate self as mooring_protocol;
extern crate self as mooring_usage;
#[path = "../../protocol/src/header.rs"]
pub mod header;

pub mod http_response;
pub mod memory;
pub mod redis_reply;
#[path = "../../usage/src/transfer_share.rs"]
mod transfer_share;
pub use transfer_share::TransferShare;
