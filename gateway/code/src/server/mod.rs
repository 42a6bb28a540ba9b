//! The MCP side of servers of kind `code`: what the gateway itself answers.
//!
//! A request comes here when it has passed the checks that all servers share. [`protocol`] answers what needs no
//! session; the [`tools`] do the work, each through [`session`], which brings together what the store says of a session
//! and what the volume has of it, and [`runs`], which runs code in the sandbox and keeps what it wrote.
//!
//! Invariant: no state of a client is kept here. A session follows from server, principal and language alone, so any
//! gateway serves any request.

mod answer;
mod directories;
mod failure;
mod governed_server;
mod long_output;
mod mounting;
mod nested;
mod protocol;
mod replaying;
mod run_registry;
mod runs;
mod services;
mod session;
mod state;
mod tokens;
mod tools;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mooring_session::names::{Principal, ServerName};

pub use self::failure::Failure;
pub use self::governed_server::GovernedServer;
use self::mounting::MountedCache;
pub use self::replaying::Repeater;
pub use self::services::CodeServersError;
pub(crate) use self::services::{CodeStorage, Services};
pub use self::state::CodeState;
use self::tools::LanguageOffer;
use crate::calls::{RunClient, Upstreams};
use crate::catalog::MountableServer;
use crate::patterns::Patterns;
use crate::place::{ClientName, ClientNameError};
use crate::proxy::AddressPolicy;
use crate::records::SecurityEvent;
use mooring_settings::{
    CodePolicy, CodeServerSettings, CodeSessionOwner, CodeSettings, CodeToolSettings, Language,
    MountRules, NetworkPolicy, SkillScope, SkillSettings, StubFormat, TokenizationSettings,
};
use mooring_store::{SessionAccess, UserSlug};

/// The principal that calls a code server, and its teams.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The principal of the sessions.
    pub principal: Principal,
    /// The teams that the principal is in.
    pub teams: Arc<[String]>,
    /// The name of a client with sessions of its own; none where all clients of the principal share theirs.
    pub client: Option<ClientName>,
}

/// The context of a call, besides its arguments.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// The caller.
    pub caller: Caller,
    /// The way to other servers.
    pub upstreams: Arc<dyn Upstreams>,
    /// The client that answers questions of tools.
    pub client: RunClient,
}

/// All servers of kind `code`.
#[derive(Debug)]
pub struct CodeServers {
    by_id: BTreeMap<Box<str>, Arc<CodeServer>>,
    services: Arc<Services>,
}

/// One server of kind `code`.
#[derive(Debug)]
pub struct CodeServer {
    /// Its id in paths and keys.
    pub id: ServerName,
    policy: CodePolicy,
    settings: CodeToolSettings,
    mounts: MountRules,
    skills: SkillSettings,
    stub_format: StubFormat,
    tokenization: Option<TokenizationSettings>,
    mounted: MountedCache,
    /// Which languages are advertised.
    offer: LanguageOffer,
    /// The result of `tools/list`, which is the same for every caller.
    tools_json: Box<str>,
    services: Arc<Services>,
}

impl CodeServers {
    /// Opens the volume, tests the sandbox, and makes the servers. If one of the two is unavailable, `/readyz` and
    /// answers report it; other servers are served. A list of tools is waited for as long as `answer_timeout`.
    ///
    /// # Errors
    /// [`CodeServersError`]: a defect, not a state of the machine.
    pub async fn open(
        settings: &CodeSettings,
        servers: &[(ServerName, CodeServerSettings)],
        mountable: Vec<MountableServer>,
        addresses: AddressPolicy,
        answer_timeout: Duration,
        sessions: Arc<dyn SessionAccess>,
    ) -> Result<Self, CodeServersError> {
        let services = Services::open(
            settings,
            servers,
            mountable,
            addresses,
            answer_timeout,
            sessions,
        );
        let services = Arc::new(services.await?);
        let by_id = servers
            .iter()
            .map(|(id, server)| {
                let server = CodeServer::new(id, server, settings, Arc::clone(&services));
                (id.as_str().into(), Arc::new(server))
            })
            .collect();
        Ok(Self { by_id, services })
    }

    /// The server of this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Arc<CodeServer>> {
        self.by_id.get(id)
    }

    /// Every server.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<CodeServer>> {
        self.by_id.values()
    }

    /// Ends every run of this process: its time to finish is over. Helpers that wait for further ones end too.
    pub async fn stop_runs(&self) {
        self.services.stops.ask_all();
        if let Ok(sandbox) = &self.services.sandbox {
            let sandbox = Arc::clone(sandbox);
            // It does not panic. If the thread cannot be had, the process's end ends the helpers.
            let _ = tokio::task::spawn_blocking(move || sandbox.dismiss_waiting()).await;
        }
    }

    /// The shared services of all code servers.
    pub fn services(&self) -> &Arc<Services> {
        &self.services
    }
}

impl CodeServer {
    fn new(
        id: &ServerName,
        server: &CodeServerSettings,
        settings: &CodeSettings,
        services: Arc<Services>,
    ) -> Self {
        let runtimes = services
            .sandbox
            .as_ref()
            .ok()
            .map(|sandbox| sandbox.runtimes());
        let offer = LanguageOffer::new(&server.policy, runtimes, services.on_deno_absent);
        Self {
            mounts: server.mounts.clone(),
            skills: server.skills.clone(),
            stub_format: server.stub_format,
            tokenization: server.tokenization.clone(),
            mounted: MountedCache::default(),
            tools_json: tools::list_json(&settings.tools, &server.policy, &offer).into(),
            offer,
            id: id.clone(),
            policy: server.policy.clone(),
            settings: settings.tools.clone(),
            services,
        }
    }

    /// The client whose own sessions are meant, by what its request names; none where clients share theirs.
    ///
    /// # Errors
    /// The client's name is invalid.
    pub fn client(&self, named: Option<&[u8]>) -> Result<Option<ClientName>, ClientNameError> {
        match self.policy.session_by {
            CodeSessionOwner::User => Ok(None),
            CodeSessionOwner::Client => named.map(ClientName::parse).transpose(),
        }
    }

    /// The patterns of code that does not run here.
    fn patterns(&self) -> &Patterns {
        match self.policy.network {
            NetworkPolicy::None => &self.services.patterns,
            NetworkPolicy::PublicHttp { .. } => &self.services.patterns_with_raw_http,
        }
    }

    /// The language of a call, by default the server's: it selects the session and its files.
    fn language_or_default(&self, language: Option<Language>) -> Language {
        language.unwrap_or(self.offer.default)
    }

    /// The team that the server, and so each of its runs, belongs to: the one that its skills are of.
    fn team(&self) -> Option<String> {
        match &self.skills.scope {
            Some(SkillScope::Team(team)) => Some(team.clone()),
            _ => None,
        }
    }

    /// Records an event that belongs to no run. What cannot be recorded is counted.
    async fn note_event(&self, principal: &Principal, event: SecurityEvent) {
        if let Ok(CodeStorage { records, .. }) = &self.services.storage {
            let (records, id, principal) = (records.clone(), self.id.clone(), principal.clone());
            // It does not panic.
            let _ =
                tokio::task::spawn_blocking(move || records.event(&id, &principal, &event)).await;
        }
    }

    /// The name under which the runs of a principal are counted, over the whole fleet.
    fn rate_name(&self, principal: &Principal) -> String {
        let slug = UserSlug::of(principal);
        format!("code:{}:{}", self.id, slug.as_str())
    }
}
