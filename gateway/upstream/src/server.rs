//! The configured servers and their instances, as the request path uses them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderMap, Method, Uri};
use mooring_session::names::{InstanceName, ServerName, UpstreamSession};
use mooring_session::rules::Ownership;

use super::credential::RequestCredential;
use super::{
    Caller, CallerCredentials, ContactLog, Lateness, OauthTokens, Reach, SecretHeader,
    Statefulness, StatefulnessSeen, UserSecretError,
};
use mooring_settings::{Affinity, Concurrency, LostStateNotice, OnUpstreamLoss};

/// The name of the one instance of a server that gateways start: no URL.
pub const STARTED_HERE: &str = "stdio";

/// One of the interchangeable processes behind a server.
#[derive(Debug)]
pub struct Instance {
    /// Its name in bindings: the configured URL.
    pub name: InstanceName,
    /// Its MCP endpoint.
    pub uri: Uri,
    /// How long this gateway has found it unreachable.
    pub reach: Reach,
    /// Whether it assigned a session id in this gateway's last handshake with it.
    pub statefulness: StatefulnessSeen,
    /// The outcome of this gateway's last contact with it.
    pub contact: ContactLog,
}

/// One configured upstream server.
#[derive(Debug)]
pub struct Server {
    /// Its id in paths and bindings.
    pub id: ServerName,
    /// Its instances, at least one.
    pub instances: Vec<Arc<Instance>>,
    /// Whether it is stateful.
    pub affinity: Affinity,
    /// Whether every gateway can reach its sessions, or only the owner of the connection.
    pub ownership: Ownership,
    /// Whether tool calls of one session may run at the same time.
    pub concurrency: Concurrency,
    /// What happens when an instance loses a session.
    pub on_upstream_loss: OnUpstreamLoss,
    /// Where the first result of a tool after a loss tells that state is gone.
    pub lost_state_notice: LostStateNotice,
    /// Headers that every request to it carries; credentials, never logged.
    pub headers: HeaderMap,
    /// Adds the caller's identity to requests; none if the server does not get it.
    pub caller_credentials: Option<Arc<dyn CallerCredentials>>,
    /// The tokens that requests to it have; none where no authorization server makes them.
    pub tokens: Option<Arc<OauthTokens>>,
    /// How requests have the secret of their user; none where users store none.
    pub user_secret: Option<Arc<SecretHeader>>,
    /// Whether it answers the gateway's own requests in time.
    pub lateness: Lateness,
    next: AtomicUsize,
}

/// How sessions at a server are handled.
#[derive(Clone, Copy, Debug)]
pub struct SessionPolicy {
    /// Whether the server is stateful.
    pub affinity: Affinity,
    /// Whether every gateway can reach a session, or only its owner.
    pub ownership: Ownership,
    /// Whether tool calls of one session may run at the same time.
    pub concurrency: Concurrency,
    /// What happens when an instance loses a session.
    pub on_upstream_loss: OnUpstreamLoss,
    /// Where the first result of a tool after a loss tells that state is gone.
    pub lost_state_notice: LostStateNotice,
}

impl Server {
    /// A server over at least one instance.
    #[must_use]
    pub fn new(
        id: ServerName,
        instances: Vec<Arc<Instance>>,
        policy: SessionPolicy,
        headers: HeaderMap,
    ) -> Self {
        let SessionPolicy {
            affinity,
            ownership,
            concurrency,
            on_upstream_loss,
            lost_state_notice,
        } = policy;
        Self {
            id,
            instances,
            affinity,
            ownership,
            concurrency,
            on_upstream_loss,
            lost_state_notice,
            headers,
            caller_credentials: None,
            tokens: None,
            user_secret: None,
            lateness: Lateness::default(),
            next: AtomicUsize::new(0),
        }
    }

    /// Whether a gateway starts it, once for each session.
    #[must_use]
    pub fn is_program(&self) -> bool {
        let mut instances = self.instances.iter();
        instances.any(|instance| instance.name.as_str() == STARTED_HERE)
    }

    /// The credential of a request for this caller.
    pub(crate) fn credential(
        &self,
        caller: &Caller<'_>,
        method: &Method,
    ) -> Option<RequestCredential> {
        if let Some(tokens) = &self.tokens {
            return Some(RequestCredential::Token(tokens.for_caller(caller, method)));
        }
        let secret = self.user_secret.as_ref()?;
        let secret = secret.for_caller(&self.id, caller, method)?;
        Some(RequestCredential::Secret(secret))
    }

    /// The version of the secret that requests for this caller are sent with; none if they have none.
    ///
    /// # Errors
    /// The caller has none, and needs one.
    pub async fn user_secret_version(
        &self,
        caller: &Caller<'_>,
    ) -> Result<Option<u128>, UserSecretError> {
        let secret = self.user_secret.as_ref();
        let secret = secret.and_then(|secret| secret.for_caller(&self.id, caller, &Method::POST));
        match secret {
            Some(secret) => Box::pin(secret.version()).await.map(Some),
            None => Ok(None),
        }
    }

    /// The SHA-256 of the caller's token, if requests for this caller are sent with another one in exchange for it.
    #[must_use]
    pub fn exchanged_token_digest(&self, caller: &Caller<'_>) -> Option<[u8; 32]> {
        self.tokens.as_ref()?.exchanged_digest(caller)
    }

    /// Whether a session that begins now is recorded.
    #[must_use]
    pub fn keeps_new_sessions(&self) -> bool {
        match self.affinity {
            Affinity::On => true,
            Affinity::Off => false,
            Affinity::ByServer => self.statefulness() != Statefulness::Stateless,
        }
    }

    /// The server's statefulness according to its instances' handshakes: one stateful instance makes the server
    /// stateful; it is stateless only if all instances are.
    #[must_use]
    pub fn statefulness(&self) -> Statefulness {
        let seen = self.instances.iter();
        Statefulness::of_all(seen.map(|instance| instance.statefulness.get()))
    }

    /// Records an instance's handshake, and logs a change of the server's statefulness.
    pub fn note_statefulness(&self, instance: &Instance, assigned: Option<&UpstreamSession>) {
        let before = self.statefulness();
        instance.statefulness.set(match assigned {
            Some(_) => Statefulness::Stateful,
            None => Statefulness::Stateless,
        });
        let now = self.statefulness();
        if self.affinity != Affinity::ByServer || now == before {
            return;
        }
        let server = &self.id;
        match now {
            Statefulness::Stateful => {
                tracing::info!(%server, instance = %instance.name, affinity = "on", "the server assigns session ids: its sessions are kept");
            }
            Statefulness::Stateless => {
                tracing::info!(%server, affinity = "off", "no instance of the server assigns session ids: calls go to any instance");
            }
            Statefulness::Unknown => {
                tracing::info!(%server, affinity = "on", "not all instances of the server have answered: its sessions are kept until they have");
            }
        }
    }

    /// The instance of this name; `None` if it is no longer configured.
    #[must_use]
    pub fn instance(&self, name: &InstanceName) -> Option<&Arc<Instance>> {
        self.instances
            .iter()
            .find(|instance| instance.name == *name)
    }

    /// The instance's name for clients: its position in the settings, because the real name is an internal address.
    #[must_use]
    pub fn client_name(&self, name: &InstanceName) -> Box<str> {
        let place = self
            .instances
            .iter()
            .position(|instance| instance.name == *name);
        match place {
            Some(place) => format!("instance-{}", place.saturating_add(1)).into(),
            None => "instance-removed".into(),
        }
    }

    /// The names of all instances, for BIND and REBIND.
    #[must_use]
    pub fn instance_names(&self) -> Vec<InstanceName> {
        self.instances
            .iter()
            .map(|instance| instance.name.clone())
            .collect()
    }

    /// The names of the instances for new sessions: all that are reachable as far as this gateway knows, or all if none
    /// is.
    #[must_use]
    pub fn candidate_names(&self) -> Vec<InstanceName> {
        let reached = self.instances.iter();
        let reached = reached.filter(|instance| !instance.reach.is_unreached());
        let names: Vec<_> = reached.map(|instance| instance.name.clone()).collect();
        if names.is_empty() {
            self.instance_names()
        } else {
            names
        }
    }

    /// All instances in round-robin order: for calls without a session.
    pub fn in_turn(&self) -> impl Iterator<Item = &Arc<Instance>> {
        let first = self.next.fetch_add(1, Ordering::Relaxed) % self.instances.len().max(1);
        let (before, from) = self.instances.split_at(first.min(self.instances.len()));
        from.iter().chain(before)
    }
}

/// All configured servers, by id.
#[derive(Debug)]
pub struct Servers {
    by_id: BTreeMap<Box<str>, Arc<Server>>,
}

impl Servers {
    /// Indexes the servers by id.
    #[must_use]
    pub fn new(servers: Vec<Arc<Server>>) -> Self {
        let by_id = servers
            .into_iter()
            .map(|server| (server.id.as_str().into(), server))
            .collect();
        Self { by_id }
    }

    /// The server with this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Arc<Server>> {
        self.by_id.get(id)
    }

    /// Every server.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.by_id.values()
    }
}
