//! The transport of a message to a server: a client of an instance over HTTP, or a connection that a gateway owns.
//! Transports of such connections are [`Link`](super::connection::link::Link)s.

use super::{Client, Instance, Outgoing, ReplySource, SendError};
use mooring_protocol::Reply;

/// Sends one message to a server as to a Streamable HTTP endpoint, and returns its reply, whose body may still be
/// arriving.
pub trait MessageTransport: ReplySource + Sync {
    /// Sends the message.
    ///
    /// # Errors
    /// See [`SendError`], which says whether the message may have been delivered.
    fn send(&self, outgoing: &Outgoing) -> impl Future<Output = Result<Reply, SendError>> + Send;
}

/// An instance, over pooled connections.
#[derive(Clone, Copy, Debug)]
pub struct InstanceTransport<'a> {
    /// The client to send with.
    pub client: &'a Client,
    /// The destination.
    pub instance: &'a Instance,
}

impl ReplySource for InstanceTransport<'_> {
    fn distrust(&self) {
        self.client.distrust_connections(self.instance);
    }
}

impl MessageTransport for InstanceTransport<'_> {
    async fn send(&self, outgoing: &Outgoing) -> Result<Reply, SendError> {
        let Self { client, instance } = self;
        client.send(instance, outgoing).await
    }
}
