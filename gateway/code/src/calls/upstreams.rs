//! The way from a call in the sandbox to the servers: the one that a client's message takes, so that affinity, order, loss
//! and forwarding are decided in one place.

use std::fmt;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Response};

use mooring_router::affinity::Session;
use mooring_router::dispatch::ReplyBody;

/// Sends requests to upstream servers on behalf of one principal.
pub trait Upstreams: fmt::Debug + Send + Sync {
    /// A message of a code session for this server, and the reply a client would get. The server is bound in the session
    /// where it was not yet.
    fn send(
        &self,
        session: &Session,
        server: &str,
        text: Bytes,
    ) -> BoxFuture<'static, Response<ReplyBody>>;

    /// A message of the gateway's own, as a client of its own at this server: to see which tools there are. Without a
    /// session id it has to be an `initialize`.
    fn visit(
        &self,
        server: &str,
        session_id: Option<&HeaderValue>,
        text: Bytes,
    ) -> BoxFuture<'static, Response<ReplyBody>>;

    /// Ends a visit.
    fn leave(&self, server: &str, session_id: &HeaderValue) -> BoxFuture<'static, ()>;
}
