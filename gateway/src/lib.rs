//! The stateless MCP gateway as clients see it: listeners, paths, commands and the wiring of the other crates.
//!
//! [`http`] checks and answers requests; [`group`] merges several servers into one; [`client_stream`] and [`legacy`]
//! are streams to clients without per-request replies. `mooring-router` decides where a message goes.

mod background;
pub mod certificates;
pub mod cli;
pub mod client;
mod client_network;
pub mod client_stream;
pub mod digest_command;
pub mod group;
mod hooks;
pub mod http;
pub mod keys_command;
pub mod legacy;
pub mod logs;
pub mod policy;
mod serve;
pub mod sessions_command;
pub mod vault;

pub use serve::{
    CheckOutcome, Diagnosis, ServeError, SettingsCheck, StdioOptions, check_files, diagnose,
    end_runtime, refuse_problems, runtime, serve, serve_stdio,
};
