//! Servers that are child processes: a process per session, whose standard input and output speak MCP, one JSON-RPC
//! message a line. Programs that run once and only print are children too, see [`Traffic`].
//!
//! Invariant: no process outlives its connection, whatever is killed. Two supervisors stand between a gateway and each
//! child: see [`supervisor`]. From the outside in: [`Children`] starts them, `course` follows one connection, `input`,
//! `output` and `stderr` are its pipes.

mod child;
mod command;
mod course;
mod error;
mod find;
mod input;
mod launcher;
mod lines;
mod output;
mod program;
mod protocol;
mod start;
mod stderr;
mod strays;
pub mod supervisor;
#[cfg(test)]
pub(crate) mod tests;

pub use child::{Child, Label};
pub use command::{ChildLimits, ChildSpec, Environment, ProcessLimits, Traffic};
pub use error::StartError;
pub use launcher::Launcher;
pub use lines::{Lines, LongLinePolicy};
pub use program::StartedProgram;
pub use protocol::StartFailure;
pub use start::{ChildSlot, Children};
pub use stderr::RecentLines;
