//! The configured servers and their instances, as the request path uses them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::{HeaderMap, Method, Uri};
use mooring_session::names::{InstanceName, ServerName, UpstreamSession};
use mooring_session::rules::Ownership;

use super::credential::RequestCredential;
use super::{
    Caller, CallerCredentials, ContactLog, EraLog, Lateness, OauthTokens, Reach, ReadinessLog,
    SecretHeader, Statefulness, StatefulnessSeen, UserSecretError,
};
use mooring_settings::{
    Affinity, Concurrency, Continuity, EraChoice, LostStateNotice, OnUpstreamLoss,
};

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
    /// Whether it answers this gateway's probes.
    pub readiness: ReadinessLog,
    /// Whether operators want nothing new to go there.
    is_parked: AtomicBool,
}

impl Instance {
    /// One that was not contacted yet.
    #[must_use]
    pub fn new(name: InstanceName, uri: Uri) -> Self {
        Self {
            name,
            uri,
            reach: Reach::default(),
            statefulness: StatefulnessSeen::default(),
            contact: ContactLog::default(),
            readiness: ReadinessLog::default(),
            is_parked: AtomicBool::default(),
        }
    }

    /// Whether operators want nothing new to go there.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.is_parked.load(Ordering::Relaxed)
    }
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
    /// Which requests without a session of their own share one.
    pub continuity: Continuity,
    /// Headers that every request to it carries; credentials, never logged.
    pub headers: HeaderMap,
    /// Adds the caller's identity to requests; none if the server does not get it.
    pub caller_credentials: Option<Arc<dyn CallerCredentials>>,
    /// The tokens that requests to it have; none where no authorization server makes them.
    pub tokens: Option<Arc<OauthTokens>>,
    /// How requests have the secret of their user; none where users store none.
    pub user_secret: Option<Arc<SecretHeader>>,
    /// In which era it serves clients.
    pub era: EraChoice,
    /// What it was found to serve.
    pub era_log: EraLog,
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
    /// Which requests without a session of their own share one.
    pub continuity: Continuity,
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
            continuity,
        } = policy;
        Self {
            id,
            instances,
            affinity,
            ownership,
            concurrency,
            on_upstream_loss,
            lost_state_notice,
            continuity,
            headers,
            caller_credentials: None,
            tokens: None,
            user_secret: None,
            era: EraChoice::Auto,
            era_log: EraLog::default(),
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

    /// Whether all its instances are parked: it gets no new sessions, and no calls without one.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.instances.iter().all(|instance| instance.is_parked())
    }

    /// The names of the instances to which a binding may move: all that are not parked, or all if every one is, because
    /// the sessions of a parked server stay.
    #[must_use]
    pub fn move_targets(&self) -> Vec<InstanceName> {
        match self.is_parked() {
            true => names(self.instances.iter()),
            false => names(self.open_instances()),
        }
    }

    /// Whether a binding may move from this instance to another one.
    #[must_use]
    pub fn has_target_beside(&self, name: &InstanceName) -> bool {
        let is_parked = self.is_parked();
        let mut instances = self.instances.iter();
        instances.any(|other| other.name != *name && (is_parked || !other.is_parked()))
    }

    /// The names of the instances for new sessions: of those that are not parked, all that are reachable as far as this
    /// gateway knows, or all if none is. Empty if the server is parked.
    #[must_use]
    pub fn candidate_names(&self) -> Vec<InstanceName> {
        let is_reached = |instance: &&Arc<Instance>| !instance.reach.is_unreached();
        let reached = names(self.open_instances().filter(is_reached));
        match reached.is_empty() {
            true => names(self.open_instances()),
            false => reached,
        }
    }

    /// The instances that are not parked.
    fn open_instances(&self) -> impl Iterator<Item = &Arc<Instance>> {
        let instances = self.instances.iter();
        instances.filter(|instance| !instance.is_parked())
    }

    /// The instances for calls without a session, in round-robin order: all that are not parked.
    pub fn in_turn(&self) -> impl Iterator<Item = &Arc<Instance>> {
        let first = self.next.fetch_add(1, Ordering::Relaxed) % self.instances.len().max(1);
        let (before, from) = self.instances.split_at(first.min(self.instances.len()));
        let instances = from.iter().chain(before);
        instances.filter(|instance| !instance.is_parked())
    }
}

fn names<'a>(instances: impl Iterator<Item = &'a Arc<Instance>>) -> Vec<InstanceName> {
    instances.map(|instance| instance.name.clone()).collect()
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

    /// Parks the instances for which `is_parked` holds, and no others.
    pub fn park(&self, is_parked: impl Fn(&ServerName, &InstanceName) -> bool) {
        for server in self.iter() {
            for instance in &server.instances {
                let parked = is_parked(&server.id, &instance.name);
                if instance.is_parked.swap(parked, Ordering::Relaxed) != parked {
                    tracing::info!(server = %server.id, instance = %instance.name, parked, "instance parked or unparked by an operator");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn name(text: &str) -> InstanceName {
        InstanceName::parse(text.as_bytes()).unwrap()
    }

    /// The servers, and the one among them, which has the instances a, b and c.
    fn three() -> (Servers, Arc<Server>) {
        let instances = ["a", "b", "c"].map(|at| Arc::new(Instance::new(name(at), Uri::default())));
        let policy = SessionPolicy {
            affinity: Affinity::On,
            ownership: Ownership::Shared,
            concurrency: Concurrency::Serial,
            on_upstream_loss: OnUpstreamLoss::Reinitialize,
            lost_state_notice: LostStateNotice::Content,
            continuity: Continuity::None,
        };
        let id = ServerName::parse(b"tools").unwrap();
        let server = Server::new(id, instances.to_vec(), policy, HeaderMap::new());
        let server = Arc::new(server);
        (Servers::new(vec![Arc::clone(&server)]), server)
    }

    #[test]
    fn nothing_new_goes_to_a_parked_instance() {
        let (servers, server) = three();
        servers.park(|_, instance| instance.as_str() == "b");
        let open = [name("a"), name("c")];
        assert_eq!(server.candidate_names(), open);
        assert_eq!(server.move_targets(), open);
        for _ in 0..3 {
            assert!(server.in_turn().all(|instance| instance.name != name("b")));
        }
        assert!(!server.is_parked() && server.has_target_beside(&name("b")));
        servers.park(|_, instance| instance.as_str() != "b");
        assert_eq!(
            server.candidate_names(),
            [name("b")],
            "a and c are parked, b is not"
        );
        assert!(!server.has_target_beside(&name("b")) && server.has_target_beside(&name("a")));
    }

    /// Its sessions stay: what is lost may move to any of its instances.
    #[test]
    fn a_parked_server_gets_no_new_sessions_and_keeps_its_own() {
        let (servers, server) = three();
        servers.park(|server, _| server.as_str() == "tools");
        assert!(server.is_parked() && server.candidate_names().is_empty());
        assert_eq!(server.in_turn().count(), 0);
        assert_eq!(server.move_targets().len(), 3);
        assert!(server.has_target_beside(&name("a")));
    }
}
