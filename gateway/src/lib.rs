//! The stateless MCP gateway: it asks the store where a session's calls go, and passes them on unchanged.
//!
//! From the outside in: [`http`] checks and answers, [`dispatch`] carries messages, [`affinity`] decides where they
//! go, [`store`] remembers, [`upstream`] reaches the servers, and [`mcp`] knows the protocol's bytes.

pub mod affinity;
pub mod agent;
mod background;
pub mod cli;
pub mod client;
pub mod code;
mod complaints;
pub mod connection;
mod digest;
pub mod dispatch;
pub mod downlink;
pub mod fleet;
pub mod group;
pub mod http;
pub mod identity;
pub mod legacy;
pub mod logs;
pub mod mcp;
pub mod metrics;
#[cfg(test)]
mod other_process;
pub mod peer;
pub mod pooled;
pub mod secret_file;
mod serve;
pub mod sessions_command;
pub mod settings;
pub mod stdio;
pub mod store;
pub mod upstream;

pub use serve::{
    CheckOutcome, Diagnosis, ServeError, SettingsCheck, StdioOptions, check_files, diagnose,
    refuse_problems, serve, serve_stdio,
};
