//! Asks the instances of a server whether they assign session ids, by handshakes in the gateway's own name.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use mooring_session::names::Principal;

use super::{
    Caller, Client, Completion, HandshakeError, InitializeHandshake, Instance, InstanceTransport,
    Outgoing, Server, Statefulness, discard, initialize,
};
use mooring_protocol::{Revision, call};

/// Replaces the session's digest in the gateway's own handshake.
const NO_SESSION: &str = "none";

/// Initializes every instance of `server` once in the gateway's own name, each within `limit`, to learn whether it is
/// stateful. `next_id` makes the request ids. Assigned sessions are deleted again.
pub async fn ask_statefulness(
    client: &Client,
    server: &Server,
    next_id: impl Fn() -> String,
    limit: Duration,
) {
    let requests = server.instances.iter().map(|instance| {
        let id = next_id();
        async move {
            if let Err(error) = ask_instance(client, server, instance, &id, limit).await {
                tracing::warn!(server = %server.id, instance = %instance.name, %error, "the instance could not be asked whether it assigns session ids");
            }
        }
    });
    join_all(requests).await;
    if server.statefulness() == Statefulness::Unknown {
        tracing::warn!(server = %server.id, affinity = "on", "not all instances of the server could be asked: its sessions are kept until they have answered a client");
    }
}

async fn ask_instance(
    client: &Client,
    server: &Server,
    instance: &Instance,
    id: &str,
    limit: Duration,
) -> Result<(), HandshakeError> {
    let params = call::own_initialize_params(Revision::OFFERED.as_str(), env!("CARGO_PKG_VERSION"));
    let handshake = InitializeHandshake {
        text: Bytes::from(call::initialize(id, &params)),
        completion: Completion::ByGateway,
    };
    let transport = InstanceTransport { client, instance };
    let gateway = Principal::gateway();
    let caller = Caller {
        session_digest: Some(NO_SESSION),
        ..Caller::of(&gateway)
    };
    let initialized = initialize(&transport, server, &handshake, &caller, limit).await?;
    let assigned = initialized.upstream_session;
    server.note_statefulness(instance, assigned.as_ref());
    if let Some(session) = assigned {
        let deletion = Outgoing::delete(server).on_behalf_of(server, &caller);
        discard(client, instance, &deletion, &session, limit).await;
    }
    Ok(())
}
