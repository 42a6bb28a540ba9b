//! The clients of HTTP+SSE, and the servers that they use.

use std::sync::Arc;

use super::streams::Streams;
use crate::directory::ServerDirectory;

/// The clients of HTTP+SSE whose streams are open at this gateway. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LegacyClients {
    pub(super) directory: Arc<ServerDirectory>,
    pub(super) streams: Streams,
}

impl LegacyClients {
    /// Clients of these servers; none yet.
    #[must_use]
    pub fn new(directory: Arc<ServerDirectory>) -> Self {
        Self {
            directory,
            streams: Streams::default(),
        }
    }

    /// Returns when all streams and their sessions have ended.
    pub async fn all_over(&self) {
        self.streams.all_over().await;
    }
}
