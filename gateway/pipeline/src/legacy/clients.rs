//! The clients of HTTP+SSE, and the servers that they use.

use std::sync::Arc;

use mooring_session::names::ServerName;

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

    /// The same clients, whose further messages are for these servers.
    #[must_use]
    pub fn with_directory(&self, directory: Arc<ServerDirectory>) -> Self {
        Self {
            directory,
            streams: self.streams.clone(),
        }
    }

    /// Ends the streams of this server, which is no longer served.
    pub fn end_streams(&self, server: &ServerName) {
        self.streams.finish_of(server);
    }

    /// Returns when all streams and their sessions have ended.
    pub async fn all_over(&self) {
        self.streams.all_over().await;
    }
}
