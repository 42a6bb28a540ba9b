//! The abuse list: what hostile code tries, each with a control that it works outside the sandbox.
//!
//! An attack is a few lines of Python or TypeScript that do something or raise. The same lines are run outside, where
//! they have to succeed (else the attack is broken and proves nothing), and inside, where they have to be refused; as
//! root and as an ordinary user, in the strict tier and in the degraded one. After every run inside: no secret in what
//! it wrote, and no process, mount, control group, descriptor or file of it left; and the next run works.
//!
//! Each has a number, by which tests and their messages name it. Nothing here is skipped: a machine that lacks something
//! fails. Root is needed, because half of this is what root has to show.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a failed step of a test ends the test, and scenes say what they find"
)]

mod aftermath;
mod arena;
mod attack;
mod bridge;
mod disk;
mod driver;
mod filesystem_deno;
mod filesystem_in;
mod kernel;
mod memory;
mod network;
mod output;
mod outside;
mod pipeline;
mod planted;
mod platform;
mod processes;
mod raw_http;
mod resources;
mod shared_limits;
mod who;
