//! A request of MCP 2026-07-28, which has no sessions, at a server of an earlier revision, which has them.
//!
//! What only one of the two revisions has is added or taken out: the keys of `_meta` that say on every request what
//! `initialize` says once, `resultType` and the cache hints of results, and the codes of errors. Invariant: everything
//! else keeps its bytes, but for white space and the spelling of keys in a `_meta` or `arguments` from which a member was
//! taken. A message that cannot be read is not changed.

mod discovery;
mod object;
mod request;
mod response;
mod session_argument;

pub use discovery::discovery_result;
pub use request::{BridgeError, BridgedRequest, LogThreshold, bridge_request, initialize_params};
pub use response::{BegunSession, bridge_response};
pub use session_argument::unknown_session_result;

pub use crate::session_note::SESSION_ARGUMENT;

/// The beginning of the `_meta` keys that MCP itself defines.
const RESERVED_PREFIX: &str = "io.modelcontextprotocol/";
