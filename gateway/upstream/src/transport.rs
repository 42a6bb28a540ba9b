//! The transport of one message to a server: an instance over HTTP, or a connection that a worker owns.

use super::{Client, Instance, Outgoing, SendError};
use mooring_protocol::Reply;

/// Sends one message to a server, as a Streamable HTTP endpoint takes it, and returns its reply, whose body may still arrive.
pub trait MessageTransport: Sync {
    /// Sends the message.
    ///
    /// # Errors
    /// See [`SendError`], which says whether it can have been delivered.
    fn send(&self, outgoing: &Outgoing) -> impl Future<Output = Result<Reply, SendError>> + Send;
}

/// One instance, over connections that are kept.
#[derive(Clone, Copy, Debug)]
pub struct InstanceTransport<'a> {
    /// Sends.
    pub client: &'a Client,
    /// Where to.
    pub instance: &'a Instance,
}

impl MessageTransport for InstanceTransport<'_> {
    async fn send(&self, outgoing: &Outgoing) -> Result<Reply, SendError> {
        let Self { client, instance } = self;
        client.send(instance, outgoing.to(instance)).await
    }
}
