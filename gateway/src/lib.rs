//! The stateless MCP gateway as clients see it: listeners, paths, commands and the wiring of the other crates.
//!
//! [`http`] reads requests and writes replies; `mooring-pipeline` serves them, and `mooring-router` decides where a
//! message goes.

mod added_servers;
mod app_tasks;
mod background;
pub mod cli;
pub mod client;
mod client_network;
pub mod digest_command;
pub mod http;
pub mod keys_command;
pub mod logs;
pub mod reload;
mod serve;
pub mod sessions_command;
pub mod vault;

pub use serve::{
    CheckOutcome, Diagnosis, ReloadSource, ServeError, SettingsCheck, StdioOptions, check_files,
    diagnose, end_runtime, refuse_problems, runtime, serve, serve_stdio,
};
