//! Code servers: an agent's code runs in a sandbox, and what it writes stays on the shared volume.
//!
//! [`server`] answers clients; [`shell`] and [`patterns`] look at code before it runs; [`place`] says where a session is,
//! and [`volume`] keeps its files; `reaper` cleans up after sessions that are over.
//!
//! Invariant: nothing of an agent's runs outside the sandbox, and nothing of one principal's is seen by another.

pub(crate) mod bridge;
pub(crate) mod calls;
pub(crate) mod catalog;
pub mod patterns;
pub mod place;
pub(crate) mod proxy;
pub(crate) mod reaper;
pub(crate) mod records;
pub(crate) mod replay;
pub mod server;
pub mod shell;
pub(crate) mod skills;
pub(crate) mod stubs;
pub(crate) mod tokens;
pub mod volume;
