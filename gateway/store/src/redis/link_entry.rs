//! What is checked of a server before a link uses it.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::command_connection::CommandConnection;
use super::down_reason::DownReason;

/// What is checked of a server before it is used.
#[derive(Debug)]
pub(super) struct LinkEntry {
    /// The prefixes of this gateway's keys.
    pub(super) heads: Vec<String>,
    /// What else has to hold.
    pub(super) checks: Vec<Arc<dyn EntryCheck>>,
}

/// A check of a server over a new connection.
pub(super) trait EntryCheck: std::fmt::Debug + Send + Sync {
    /// Whether the server can be used.
    fn check<'a>(
        &'a self,
        connection: &'a CommandConnection,
    ) -> BoxFuture<'a, Result<(), DownReason>>;
}
