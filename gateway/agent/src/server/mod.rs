//! The MCP side of servers of kind `agent`, which the gateway serves itself.
//!
//! [`protocol`] answers requests that need no run. [`call`] finds the conversation, runs the program, and stores the id
//! that resumes it. [`run_registry`] has the running runs of this gateway, so that a client can cancel them.
//!
//! Invariant: no state of a client is kept here, so any gateway continues any conversation.

mod answer;
mod call;
mod failure;
mod protocol;
mod request;
mod run_registry;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mooring_session::names::{NameError, Principal, ServerName};
use tokio::sync::mpsc;

use self::run_registry::RunRegistry;
use super::conversations::Conversations;
use super::lock::ProcessLocks;
use mooring_settings::AgentServerSettings;
use mooring_store::SessionAccess;
use mooring_upstream::stdio::{Children, Launcher};

/// How long stopped runs may take to end and to store their results.
const STOPPED_WITHIN: Duration = Duration::from_secs(7);
/// How much longer a call waits for the run before it than a run may last.
const PATIENCE: Duration = Duration::from_secs(15);

/// All agent servers.
#[derive(Debug, Default)]
pub struct AgentServers(BTreeMap<Box<str>, Arc<AgentServer>>);

/// One agent server.
#[derive(Debug)]
pub struct AgentServer {
    /// Its id in paths and keys, and the name of its tool.
    pub id: ServerName,
    settings: AgentServerSettings,
    conversations: Conversations,
    sessions: Arc<dyn SessionAccess>,
    children: Children,
    /// Set if other processes may use the same store without sharing turns with this one.
    locks: Option<ProcessLocks>,
    running: RunRegistry,
    tools_json: Box<str>,
}

/// The context of a call besides its arguments.
#[derive(Debug)]
pub struct CallContext {
    /// The caller.
    pub principal: Principal,
    /// Identifies the request for cancellation; none if it cannot be cancelled.
    pub request: Option<RequestName>,
    /// Where progress is reported; `None` if the client did not ask for it.
    pub progress: Option<Progress>,
}

/// Identifies a request: client and request id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestName {
    /// The client's session id.
    pub client: Box<str>,
    /// The request's id, as JSON text.
    pub id_json: Box<str>,
}

/// Where progress is sent.
#[derive(Debug)]
pub struct Progress {
    /// The client's token, as JSON text.
    pub token_json: Box<str>,
    /// The queue of messages to the client.
    pub said: mpsc::Sender<Box<str>>,
}

impl AgentServers {
    /// These servers, at which a principal has at most `sessions_max` conversations together. `locks_directory` is where processes that share an embedded store lock conversations.
    ///
    /// # Errors
    /// An id is not a valid server name, which the settings have checked already.
    pub fn new<'a>(
        servers: impl Iterator<Item = (&'a str, &'a AgentServerSettings)>,
        sessions_max: u64,
        sessions: &Arc<dyn SessionAccess>,
        locks_directory: Option<PathBuf>,
    ) -> Result<Self, NameError> {
        let locks = locks_directory.map(ProcessLocks::new);
        let mut by_id = BTreeMap::new();
        for (id, settings) in servers {
            let name = ServerName::parse(id.as_bytes())?;
            let server = AgentServer {
                conversations: Conversations::new(
                    sessions.store().clone(),
                    sessions.worker().clone(),
                    name.clone(),
                    settings.session_ttl,
                    sessions_max,
                ),
                sessions: Arc::clone(sessions),
                children: Children::new(settings.children_max.get(), Launcher::default()),
                locks: locks.clone(),
                running: RunRegistry::default(),
                tools_json: protocol::tools_json(id, settings).into(),
                settings: settings.clone(),
                id: name,
            };
            by_id.insert(id.into(), Arc::new(server));
        }
        Ok(Self(by_id))
    }

    /// The server of this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Arc<AgentServer>> {
        self.0.get(id)
    }

    /// Every server.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<AgentServer>> {
        self.0.values()
    }

    /// Ends all runs of this gateway and waits until their results are stored, because the gateway stops.
    pub async fn stop_runs(&self) {
        for server in self.0.values() {
            server.running.stop_all();
        }
        let all = self.0.values().map(|server| server.running.idle());
        let ended = tokio::time::timeout(STOPPED_WITHIN, futures_util::future::join_all(all));
        if ended.await.is_err() {
            tracing::warn!(
                "agent runs did not end within the shutdown timeout; their last results are not stored"
            );
        }
    }
}

impl AgentServer {
    /// Ends the run of a cancelled request, if it is running in this gateway.
    pub fn cancel(&self, request: &RequestName) {
        self.running.stop(request);
    }

    /// How long a call waits for its turn.
    fn turn_timeout(&self) -> Duration {
        self.settings.timeout.saturating_add(PATIENCE)
    }
}
