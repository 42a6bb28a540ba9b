//! Whether a server is stateful: whether its instances assign session ids (`Mcp-Session-Id`) in the handshake.
//!
//! Each gateway asks at start, and updates the result with every later handshake. Invariant: a server counts as
//! stateless only after all its instances were initialized and none assigned an id.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;

use super::{
    Caller, Client, Completion, HandshakeError, InitializeHandshake, Instance, InstanceTransport,
    Outgoing, Server, discard, initialize,
};
use mooring_protocol::{Revision, call};
use mooring_session::names::Principal;

/// Replaces the session's digest in the gateway's own handshake.
const NO_SESSION: &str = "none";

/// Whether a server, or an instance of it, is stateful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Statefulness {
    /// Not initialized yet.
    Unknown,
    /// It assigns no session ids.
    Stateless,
    /// It assigns session ids.
    Stateful,
}

impl Statefulness {
    /// The statefulness of a server with these instances: one stateful instance decides, and an unknown one may be
    /// stateful.
    pub fn of_all(instances: impl Iterator<Item = Self>) -> Self {
        let mut all = Self::Stateless;
        for instance in instances {
            match instance {
                Self::Stateful => return Self::Stateful,
                Self::Unknown => all = Self::Unknown,
                Self::Stateless => {}
            }
        }
        all
    }
}

/// The statefulness in an instance's last handshake.
#[derive(Debug, Default)]
pub struct StatefulnessSeen(AtomicU8);

impl StatefulnessSeen {
    /// The recorded statefulness; `Unknown` before the first handshake.
    pub fn get(&self) -> Statefulness {
        match self.0.load(Ordering::Relaxed) {
            value if value == Statefulness::Stateful as u8 => Statefulness::Stateful,
            value if value == Statefulness::Stateless as u8 => Statefulness::Stateless,
            _ => Statefulness::Unknown,
        }
    }

    /// Records the statefulness.
    pub fn set(&self, seen: Statefulness) {
        self.0.store(seen as u8, Ordering::Relaxed);
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stateful_instance_decides_and_one_unknown_instance_leaves_it_open() {
        use Statefulness::{Stateful, Stateless, Unknown};
        for (instances, server) in [
            (&[Stateless, Stateless][..], Stateless),
            (&[Stateless, Unknown], Unknown),
            (&[Unknown, Unknown], Unknown),
            (&[Stateless, Stateful], Stateful),
            (&[Unknown, Stateful, Stateless], Stateful),
        ] {
            let seen = instances.iter().copied();
            assert_eq!(Statefulness::of_all(seen), server, "{instances:?}");
        }
    }

    #[test]
    fn an_instance_is_unknown_until_it_has_answered() {
        let seen = StatefulnessSeen::default();
        assert_eq!(seen.get(), Statefulness::Unknown);
        for said in [Statefulness::Stateless, Statefulness::Stateful] {
            seen.set(said);
            assert_eq!(seen.get(), said);
        }
    }
}
