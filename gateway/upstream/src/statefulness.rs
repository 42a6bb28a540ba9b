//! Whether a server is stateful: whether its instances assign session ids (`Mcp-Session-Id`) when they are initialized.
//!
//! Each gateway asks for itself, and learns from every later handshake. Invariant: a server counts as stateless only once all
//! of its instances have been initialized and none of them assigned an id.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;

use super::{
    Client, Completion, HandshakeError, InitializeHandshake, Instance, InstanceTransport, Outgoing,
    Server, discard, initialize,
};
use mooring_protocol::{Revision, call};

/// What the request names in the place of a session's digest.
const NO_SESSION: &str = "none";

/// Whether a server, or an instance of it, is stateful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Statefulness {
    /// It was not initialized yet.
    Unknown,
    /// It assigns no session ids.
    Stateless,
    /// It assigns session ids.
    Stateful,
}

impl Statefulness {
    /// That of a server with these instances: one stateful instance decides, and one that is unknown might be stateful.
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

/// What an instance said last.
#[derive(Debug, Default)]
pub struct StatefulnessSeen(AtomicU8);

impl StatefulnessSeen {
    /// Unknown until it is set.
    pub fn get(&self) -> Statefulness {
        match self.0.load(Ordering::Relaxed) {
            value if value == Statefulness::Stateful as u8 => Statefulness::Stateful,
            value if value == Statefulness::Stateless as u8 => Statefulness::Stateless,
            _ => Statefulness::Unknown,
        }
    }

    /// Remembers it.
    pub fn set(&self, seen: Statefulness) {
        self.0.store(seen as u8, Ordering::Relaxed);
    }
}

/// Initializes every instance of `server` once, in the gateway's own name and each within `limit`, to learn whether it is
/// stateful. `next_id` makes the ids of the requests. Sessions that were assigned are deleted again.
pub async fn ask_statefulness(
    client: &Client,
    server: &Server,
    next_id: impl Fn() -> String,
    limit: Duration,
) {
    let asking = server.instances.iter().map(|instance| {
        let id = next_id();
        async move {
            if let Err(error) = ask_instance(client, server, instance, &id, limit).await {
                tracing::warn!(server = %server.id, instance = %instance.name, %error, "the instance could not be asked whether it assigns session ids");
            }
        }
    });
    join_all(asking).await;
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
    let way = InstanceTransport { client, instance };
    let initialized = initialize(&way, server, &handshake, NO_SESSION, limit).await?;
    let assigned = initialized.upstream_session;
    server.note_statefulness(instance, assigned.as_ref());
    if let Some(session) = assigned {
        discard(client, instance, &Outgoing::delete(server), &session, limit).await;
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
