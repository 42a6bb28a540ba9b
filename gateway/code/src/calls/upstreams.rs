//! How calls from the sandbox reach other servers: the way of a client's message, so that affinity, order, loss and
//! forwarding are decided in one place.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::HeaderValue;

use mooring_protocol::Reply;
use mooring_store::Session;

/// Sends requests to upstream servers on behalf of one caller.
pub trait Upstreams: fmt::Debug + Send + Sync {
    /// Sends a message of a code session to this server. The server is bound in the session if it was not yet.
    fn send(&self, session: &Session, server: &str, text: Bytes) -> BoxFuture<'static, Reply>;

    /// Whether the caller may call this tool.
    fn may_call(&self, server: &str, tool: &str) -> bool;

    /// Stores the initialize params by which the session's servers are bound.
    fn save_initialize_params(
        &self,
        session: &Session,
    ) -> BoxFuture<'static, Result<(), Box<dyn Error + Send + Sync>>>;

    /// Sends a message of the gateway's own, as a client of its own at this server: to list its tools. Without a session
    /// id it has to be an `initialize`.
    fn visit(
        &self,
        server: &str,
        session_id: Option<&HeaderValue>,
        text: Bytes,
    ) -> BoxFuture<'static, Reply>;

    /// Deletes the session that was opened to list tools.
    fn leave(&self, server: &str, session_id: &HeaderValue) -> BoxFuture<'static, ()>;

    /// How long an answer of this server is waited for, `limit` at most: less if it recently failed to answer any
    /// caller.
    fn answer_wait(&self, server: &str, limit: Duration) -> Duration;

    /// Records whether this server answered within such a wait.
    fn note_answer(&self, server: &str, is_in_time: bool);
}
