//! The MCP side of servers of kind `code`: what the gateway itself answers.
//!
//! A request comes here when it has passed the checks that all servers share. [`protocol`] answers what needs no
//! session; the [`tools`] do the work, each through [`session`], which brings together what the store says of a session
//! and what the volume has of it, and [`runs`], which runs code in the sandbox and keeps what it wrote.
//!
//! Invariant: no state of a client is kept here. A session follows from server, principal and language alone, so any
//! worker serves any request.

mod answer;
mod arguments;
mod failure;
mod protocol;
mod runs;
mod services;
mod session;
mod state;
mod stops;
mod tools;

use std::collections::BTreeMap;
use std::sync::Arc;

use mooring_session::names::{Principal, ServerName};

pub(crate) use self::protocol::Asked;
pub use self::services::OpenError;
pub(crate) use self::services::Services;
pub(crate) use self::state::CodeState;
use crate::affinity::Affinity;
use crate::code::place::Language;
use crate::code::volume::Mounted;
use crate::settings::{CodePolicy, CodeServerSettings, CodeSettings, CodeToolSettings};

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
    mounted: Mounted,
    /// The result of `tools/list`: it is the same for everybody.
    tools_json: Box<str>,
    services: Arc<Services>,
}

impl CodeServers {
    /// Opens the volume, proves the sandbox, and makes the servers. What of the two cannot be had is said in the readiness
    /// and in answers; it keeps no other server from being served.
    ///
    /// # Errors
    /// [`OpenError`]: a defect, not a state of the machine.
    pub async fn open(
        settings: &CodeSettings,
        servers: &[(ServerName, CodeServerSettings)],
        affinity: Affinity,
    ) -> Result<Self, OpenError> {
        let ttls = servers.iter().map(|(_, server)| server.policy.session_ttl);
        let services = Arc::new(Services::open(settings, ttls, affinity).await?);
        let by_id = servers
            .iter()
            .map(|(id, server)| {
                let server = CodeServer::new(id, server, settings, Arc::clone(&services))?;
                Ok((id.as_str().into(), Arc::new(server)))
            })
            .collect::<Result<_, OpenError>>()?;
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

    /// Ends every run of this process: its time to finish is over.
    pub fn stop_runs(&self) {
        self.services.stops.ask_all();
    }

    /// What the servers share.
    pub(crate) fn services(&self) -> &Arc<Services> {
        &self.services
    }
}

impl CodeServer {
    fn new(
        id: &ServerName,
        server: &CodeServerSettings,
        settings: &CodeSettings,
        services: Arc<Services>,
    ) -> Result<Self, OpenError> {
        Ok(Self {
            mounted: Mounted::none(id, server.stub_language)?,
            tools_json: tools::list_json(&settings.tools, &server.policy).into(),
            id: id.clone(),
            policy: server.policy.clone(),
            settings: settings.tools.clone(),
            services,
        })
    }

    /// Whose files are meant where a call does not say.
    fn language_or_default(&self, language: Option<Language>) -> Language {
        language.unwrap_or(self.policy.language)
    }

    /// The name under which the runs of a principal are counted, over the whole fleet.
    fn rate_name(&self, principal: &Principal) -> String {
        let slug = crate::code::place::UserSlug::of(principal);
        format!("code:{}:{}", self.id, slug.as_str())
    }
}
