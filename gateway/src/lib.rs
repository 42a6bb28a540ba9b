//! The stateless MCP gateway as clients see it: listeners, paths, commands and the wiring of the crates beside this one.
//!
//! [`http`] checks and answers requests; [`group`] makes one server of several; [`client_stream`] and [`legacy`] are streams
//! to clients without per-request replies. Where a message goes is `mooring-router`'s to decide.

mod background;
pub mod cli;
pub mod client;
pub mod client_stream;
pub mod group;
pub mod http;
pub mod identity;
pub mod legacy;
pub mod logs;
mod serve;
pub mod sessions_command;

pub use serve::{
    CheckOutcome, Diagnosis, ServeError, SettingsCheck, StdioOptions, check_files, diagnose,
    refuse_problems, serve, serve_stdio,
};
