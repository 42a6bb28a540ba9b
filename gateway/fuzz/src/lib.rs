//! The readers of replies, built from the gateway's own sources, with the doors through which the targets drive them.

pub mod http_response;
pub mod memory;
pub mod redis_reply;
