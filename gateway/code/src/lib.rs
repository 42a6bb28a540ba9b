//! Code servers: an agent's code runs in a sandbox, and what it writes stays on the shared volume.
//!
//! [`server`] answers clients; [`shell`] and [`patterns`] look at code before it runs; [`place`] says where a session is,
//! and [`volume`] keeps its files; `reaper` cleans up after sessions that are over.
//!
//! Invariant: nothing of an agent's runs outside the sandbox, and nothing of one principal's is seen by another.

pub mod bridge;
pub mod calls;
pub mod catalog;
mod patterns;
pub mod place;
pub mod proxy;
pub mod reaper;
pub mod records;
pub mod replay;
pub mod server;
mod shell;
pub mod skills;
pub mod tokens;
pub mod volume;
