//! Servers of kind `agent`: a command-line agent that runs once per call and resumes earlier conversations by its own
//! id.
//!
//! [`folder`] checks its working directory, [`process`] runs it, and [`output`] extracts id and answer from its output.
//! [`conversations`] stores the id under the name that the client gives ([`parent`]); [`server`] is the MCP side.
//!
//! Invariant: a program is run with an argument vector, never through a shell, and nothing that a caller sends becomes
//! more than one argument.

pub mod conversations;
mod folder;
mod lock;
mod output;
pub mod parent;
pub mod place;
mod process;
pub mod server;
pub mod session_file;
