//! All code servers of a process, and what they share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mooring_session::names::ServerName;

use super::code_server::CodeServer;
use super::mounted_cache::MountedCache;
use super::offer::LanguageOffer;
use super::services::{CodeServersError, Services, SessionTtlGrowth};
use super::tools;
use crate::catalog::MountableServer;
use crate::proxy::AddressPolicy;
use mooring_settings::{CodeServerSettings, CodeSettings};
use mooring_store::SessionAccess;

/// All servers of kind `code`. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CodeServers {
    by_id: BTreeMap<Box<str>, Arc<CodeServer>>,
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
        Ok(Self::over(services.await?, settings, servers))
    }

    /// The servers after a reload, over the same volume and sandbox. Runs under way go on with what they began with.
    ///
    /// # Errors
    /// See [`SessionTtlGrowth`].
    pub fn reload(
        &self,
        settings: &CodeSettings,
        servers: &[(ServerName, CodeServerSettings)],
        mountable: Vec<MountableServer>,
    ) -> Result<Self, SessionTtlGrowth> {
        let services = self.services.with_servers(settings, servers, mountable)?;
        Ok(Self::over(services, settings, servers))
    }

    fn over(
        services: Services,
        settings: &CodeSettings,
        servers: &[(ServerName, CodeServerSettings)],
    ) -> Self {
        let services = Arc::new(services);
        let by_id = servers
            .iter()
            .map(|(id, server)| {
                let server = new_server(id, server, settings, Arc::clone(&services));
                (id.as_str().into(), Arc::new(server))
            })
            .collect();
        Self { by_id, services }
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
        self.services.stopping.cancel();
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

fn new_server(
    id: &ServerName,
    server: &CodeServerSettings,
    settings: &CodeSettings,
    services: Arc<Services>,
) -> CodeServer {
    let runtimes = services
        .sandbox
        .as_ref()
        .ok()
        .map(|sandbox| sandbox.runtimes());
    let offer = LanguageOffer::new(&server.policy, runtimes, services.on_deno_absent);
    CodeServer {
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
