//! One agent server, and the context of a call of it.

use std::sync::Arc;
use std::time::Duration;

use mooring_session::names::{Principal, ServerName};
use tokio::sync::mpsc;

use super::run_registry::{RequestName, RunRegistry};
use crate::conversations::Conversations;
use crate::lock::ProcessLocks;
use mooring_settings::AgentServerSettings;
use mooring_store::SessionAccess;
use mooring_upstream::stdio::{Children, Environment};

/// How much longer a call waits for the run before it than a run may last.
const PATIENCE: Duration = Duration::from_secs(15);

/// One agent server.
#[derive(Debug)]
pub struct AgentServer {
    /// Its id in paths and keys, and the name of its tool.
    pub id: ServerName,
    pub(super) settings: AgentServerSettings,
    pub(super) conversations: Conversations,
    pub(super) sessions: Arc<dyn SessionAccess>,
    pub(super) children: Children,
    /// Set if other processes may use the same store without sharing turns with this one.
    pub(super) locks: Option<ProcessLocks>,
    pub(super) running: RunRegistry,
    pub(super) tools_json: Box<str>,
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

/// Where progress is sent.
#[derive(Debug)]
pub struct Progress {
    /// The client's token, as JSON text.
    pub token_json: Box<str>,
    /// The queue of messages to the client.
    pub said: mpsc::Sender<Box<str>>,
}

impl AgentServer {
    /// Whether the program can be started, as far as its file says.
    #[must_use]
    pub fn has_program(&self) -> bool {
        let environment = Environment {
            inherited: self.settings.variables.inherited().to_vec(),
            set: self.settings.variables.given().to_vec(),
        };
        let found = environment.find_program(self.settings.template.program());
        found.is_ok()
    }

    /// Ends the run of a cancelled request, if it is running in this gateway.
    pub fn cancel(&self, request: &RequestName) {
        self.running.stop(request);
    }

    /// Whether this is the server with these settings.
    pub(super) fn is_defined_by(&self, settings: &AgentServerSettings, sessions_max: u64) -> bool {
        self.settings == *settings && self.conversations.sessions_max() == sessions_max
    }

    /// How long a call waits for its turn.
    pub(super) fn turn_timeout(&self) -> Duration {
        self.settings.timeout.saturating_add(PATIENCE)
    }
}
