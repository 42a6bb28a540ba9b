//! How calls from the sandbox reach other servers: the way of a client's message, so that affinity, order, loss and
//! forwarding are decided in one place.

use std::error::Error;
use std::fmt;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use http::{HeaderValue, StatusCode};

use mooring_store::Session;

/// Sends requests to upstream servers on behalf of one principal.
pub trait Upstreams: fmt::Debug + Send + Sync {
    /// Sends a message of a code session to this server. The server is bound in the session if it was not yet. A message
    /// of the reply has at most `message_bytes_max`.
    fn send(
        &self,
        session: &Session,
        server: &str,
        text: Bytes,
        message_bytes_max: usize,
    ) -> BoxFuture<'static, UpstreamReply>;

    /// Stores the initialize params by which the session's servers are bound.
    fn save_initialize_params(
        &self,
        session: &Session,
    ) -> BoxFuture<'static, Result<(), Box<dyn Error + Send + Sync>>>;

    /// Sends a message of the gateway's own, as a client of its own at this server: to list its tools. Without a session
    /// id it has to be an `initialize`. A message of the reply has at most `message_bytes_max`.
    fn visit(
        &self,
        server: &str,
        session_id: Option<&HeaderValue>,
        text: Bytes,
        message_bytes_max: usize,
    ) -> BoxFuture<'static, UpstreamReply>;

    /// Ends a visit.
    fn leave(&self, server: &str, session_id: &HeaderValue) -> BoxFuture<'static, ()>;
}

/// The reply to a message.
pub struct UpstreamReply {
    /// Whether the server answered, or the gateway in its place.
    pub status: StatusCode,
    /// The session that the reply began.
    pub session_id: Option<HeaderValue>,
    /// Its messages. What is not an event is passed on as it is, message or not.
    pub messages: BoxStream<'static, Result<Box<str>, ReplyError>>,
}

/// Why the rest of a reply cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReplyError {
    /// The connection was lost.
    #[error("{0}")]
    Lost(Box<str>),
    /// A message is too long.
    #[error("{0}")]
    TooLong(Box<str>),
}
