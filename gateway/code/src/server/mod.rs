//! The MCP side of servers of kind `code`: what the gateway itself answers.
//!
//! A request comes here when it has passed the checks that all servers share. [`protocol`] answers what needs no
//! session; the [`tools`] do the work, each through [`session`], which brings together what the store says of a session
//! and what the volume has of it, and [`runs`], which runs code in the sandbox and keeps what it wrote.
//!
//! Invariant: no state of a client is kept here. A session follows from server, principal and language alone, so any
//! gateway serves any request.

mod answer;
mod code_server;
mod directories;
mod failure;
mod governed_server;
mod long_output;
mod mounted_cache;
mod mounting;
mod nested;
mod offer;
mod protocol;
mod replaying;
mod run;
mod runs;
mod servers;
mod services;
mod session;
mod state;
mod tokens;
mod tools;

pub use self::code_server::{CallContext, Caller, CodeServer};
pub use self::failure::Failure;
pub use self::governed_server::GovernedServer;
pub use self::replaying::Repeater;
pub use self::servers::CodeServers;
pub(crate) use self::services::CodeStorage;
pub use self::services::Services;
pub use self::services::{CodeServersError, SessionTtlGrowth};
pub use self::state::CodeState;
