//! The readers of replies, built from the gateway's own sources, with the doors through which the targets drive them.

// What these sources take from other crates of the workspace.
extern crate self as mooring_protocol;
#[path = "../../protocol/src/header.rs"]
pub mod header;

pub mod http_response;
pub mod memory;
#[path = "../../upstream/src/read_share.rs"]
mod read_share;
pub mod redis_reply;
