//! Servers as child processes: one process per session, with MCP over stdin and stdout, one JSON-RPC message per line.
//! Programs that run once and only print are children too, see [`Traffic`].
//!
//! Invariant: no process outlives its connection, whichever process is killed, because two supervisors watch each
//! child: see [`supervisor`]. [`Children`] starts them, `course` runs one connection, and `input`, `output` and
//! `stderr` are its pipes.

mod command;
mod course;
mod error;
mod find;
mod input;
mod label;
mod launcher;
mod lines;
mod output;
mod program;
mod protocol;
mod reports;
mod start;
mod stderr;
mod strays;
pub mod supervisor;
#[cfg(test)]
pub(crate) mod tests;

pub use command::{ChildLimits, ChildSpec, Environment, ProcessLimits, Traffic};
pub use error::StartError;
pub use label::Label;
pub use launcher::Launcher;
pub use lines::{Lines, LongLinePolicy};
pub use program::StartedProgram;
pub use protocol::StartFailure;
pub use start::{Child, ChildSlot, Children};
pub use stderr::RecentLines;
