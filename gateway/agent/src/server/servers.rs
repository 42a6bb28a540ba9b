//! All agent servers of a gateway: made from its settings, and stopped with it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mooring_session::names::{NameError, ServerName};

use super::agent_server::AgentServer;
use super::protocol;
use super::run_registry::RunRegistry;
use crate::conversations::Conversations;
use crate::lock::ProcessLocks;
use mooring_settings::AgentServerSettings;
use mooring_store::SessionAccess;
use mooring_upstream::stdio::{Children, Launcher};

/// How long stopped runs may take to end and to store their results.
const STOPPED_WITHIN: Duration = Duration::from_secs(7);
/// All agent servers.
#[derive(Debug, Default)]
pub struct AgentServers(BTreeMap<Box<str>, Arc<AgentServer>>);

impl AgentServers {
    /// These servers, at which a principal has at most `sessions_max` conversations together. `locks_directory` is where
    /// processes that share an embedded store lock conversations.
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
