//! The settings of one connection.

use std::sync::Arc;
use std::time::Duration;

use mooring_usage::MemoryShare;

/// Identity and limits of one connection.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// Most events kept for resumes, over all streams.
    pub events_max: usize,
    /// Most bytes of events kept for resumes, over all streams.
    pub event_bytes_max: usize,
    /// Longest message of the server, in bytes. Also the limit of bytes queued for slow readers, and of bytes queued to
    /// the server.
    pub message_bytes_max: usize,
    /// Time limit for the client's answer to a server-to-client request.
    pub client_answer_timeout: Duration,
    /// The epoch of the binding that the connection belongs to.
    pub epoch: u64,
    /// At whose expense long events are held until a client has read them; none if it is not known.
    pub memory: Option<Arc<MemoryShare>>,
    /// The server's id, for the log.
    pub server: Arc<str>,
    /// The digest of the session's id, for the log.
    pub session: Arc<str>,
}
