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
pub struct AgentServers {
    by_id: BTreeMap<Box<str>, Arc<AgentServer>>,
    /// The runs of all of them, and of those that a reload has removed.
    running: RunRegistry,
}

impl AgentServers {
    /// These servers, at which a principal has at most `sessions_max` conversations together. `locks_directory` is where
    /// processes that share an embedded store lock conversations. A server that `previous` has with the same settings stays
    /// what it is.
    ///
    /// # Errors
    /// An id is not a valid server name, which the settings have checked already.
    pub fn new<'a>(
        servers: impl Iterator<Item = (&'a str, &'a AgentServerSettings)>,
        sessions_max: u64,
        sessions: &Arc<dyn SessionAccess>,
        locks_directory: Option<PathBuf>,
        previous: Option<&Self>,
    ) -> Result<Self, NameError> {
        let locks = locks_directory.map(ProcessLocks::new);
        let running =
            previous.map_or_else(RunRegistry::default, |previous| previous.running.clone());
        let mut by_id = BTreeMap::new();
        for (id, settings) in servers {
            let present = previous.and_then(|previous| previous.get(id));
            if let Some(present) = present
                && present.is_defined_by(settings, sessions_max)
            {
                by_id.insert(id.into(), Arc::clone(present));
                continue;
            }
            let children = present
                .filter(|present| present.settings.children_max == settings.children_max)
                .map(|present| present.children.clone());
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
                children: children.unwrap_or_else(|| {
                    Children::new(settings.children_max.get(), Launcher::default())
                }),
                locks: locks.clone(),
                running: running.clone(),
                tools_json: protocol::tools_json(id, settings).into(),
                settings: settings.clone(),
                id: name,
            };
            by_id.insert(id.into(), Arc::new(server));
        }
        Ok(Self { by_id, running })
    }

    /// The server of this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Arc<AgentServer>> {
        self.by_id.get(id)
    }

    /// Every server.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<AgentServer>> {
        self.by_id.values()
    }

    /// Ends all runs of this gateway and waits until their results are stored, because the gateway stops.
    pub async fn stop_runs(&self) {
        self.running.stop_all();
        let ended = tokio::time::timeout(STOPPED_WITHIN, self.running.idle());
        if ended.await.is_err() {
            tracing::warn!(
                "agent runs did not end within the shutdown timeout; their last results are not stored"
            );
        }
    }
}
