//! Servers of kind `agent`: a command-line agent that is run once for each call, and that takes up an earlier
//! conversation by an id of its own.
//!
//! [`folder`] says where it may work, [`process`] runs it, and [`output`] finds the id and the answer in what it printed.
//! [`conversations`] keeps that id in the store, under the name that a client gives ([`parent`]); [`server`] is the MCP
//! side.
//!
//! Invariant: a program is run by an argument vector, never through a shell, and nothing that a caller sends becomes more
//! than one argument.

pub mod conversations;
pub mod folder;
pub mod lock;
pub mod output;
pub mod parent;
pub mod place;
pub mod process;
pub mod prompt;
pub mod server;
pub mod session_file;
