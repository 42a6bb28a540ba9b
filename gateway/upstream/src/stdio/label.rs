//! Names a child in logs.

use std::sync::Arc;

/// The server and session of a child, for logs.
#[derive(Clone, Debug)]
pub struct Label {
    /// The server's id.
    pub server: Arc<str>,
    /// The digest of the session id, never the id.
    pub session: Arc<str>,
}
