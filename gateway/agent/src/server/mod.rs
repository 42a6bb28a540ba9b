//! The MCP side of servers of kind `agent`, which the gateway serves itself.
//!
//! [`protocol`] answers requests that need no run. [`call`] finds the conversation, runs the program, and stores the id
//! that resumes it. [`run_registry`] has the running runs of this gateway, so that a client can cancel them.
//!
//! Invariant: no state of a client is kept here, so any gateway continues any conversation.

mod agent_server;
mod answer;
mod call;
mod failure;
mod protocol;
mod request;
mod run_registry;
mod servers;

pub use self::agent_server::{AgentServer, CallContext, Progress};
pub use self::call::Call;
pub use self::run_registry::RequestName;
pub use self::servers::AgentServers;
