//! Reloads: the settings are read again as at the start, and what can change is replaced while requests are served.
//!
//! Invariants: everything is checked before anything is changed, so settings that cannot be used change nothing. Requests
//! under way finish with what they began with. Sessions of a server that has not changed notice nothing.

use std::sync::Arc;
use std::time::Duration;

use mooring_session::names::ServerName;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::application;
use super::check::{CheckOutcome, SettingsCheck, check_files};
use super::previous_app::PreviousApp;
use super::statefulness::probe_servers;
use crate::app_tasks::AppTasks;
use crate::http::{App, CurrentApp};
use crate::logs::LogLevelControl;
use crate::reload::{ReloadError, ReloadReport, ReloadRequest, ReloadRequests, ReloadResult};
use mooring_peers::fleet::KeyRing;
use mooring_settings::{
    AuthSettings, Environment, Flags, LoadedSettings, ServerSettings, Settings, SettingsChanges,
};
use mooring_store::DesiredState;
use mooring_upstream::{tls_config, with_causes};

/// Where the settings of a process come from, and what a reload changes besides the state of requests.
#[derive(Clone, Debug)]
pub struct ReloadSource {
    /// The flags that the process was started with.
    pub flags: Flags,
    /// Sets the level of the log.
    pub log_level: LogLevelControl,
}

/// Reloads the settings of a gateway.
pub(super) struct Reloader {
    pub(super) source: ReloadSource,
    /// The settings that are in use.
    pub(super) settings: Settings,
    pub(super) ring: Option<KeyRing>,
    pub(super) current: Arc<CurrentApp>,
    pub(super) app_tasks: AppTasks,
    /// What operators want of the fleet: among it, the servers that they have added.
    pub(super) desired: watch::Receiver<Arc<DesiredState>>,
    /// The definitions of added servers that were tried last.
    pub(super) added: Vec<Value>,
    /// Whether a server that operators have added is left out.
    pub(super) is_behind: bool,
    /// Cancelled when the gateway stops.
    pub(super) stopping: CancellationToken,
}

/// How often an added server is tried again that could not be used here.
const RETRY_EVERY: Duration = Duration::from_secs(60);
/// What people know the added servers by.
const ADDED_BY_OPERATORS: &str = "servers added by operators";

impl Reloader {
    /// Serves requests for reloads, until it is stopped.
    pub(super) async fn run(mut self, mut requests: ReloadRequests) {
        let mut endings = JoinSet::new();
        loop {
            tokio::select! {
                request = requests.next() => match request {
                    Some(request) => self.serve(request, &mut endings).await,
                    None => return,
                },
                changed = self.desired.changed() => match changed {
                    Ok(()) => self.follow_operators(&mut endings).await,
                    Err(_) => return,
                },
                () = sleep(RETRY_EVERY), if self.is_behind => {
                    drop(self.reload_and_log(&mut endings).await);
                }
            }
            while endings.try_join_next().is_some() {}
        }
    }

    async fn serve(&mut self, request: ReloadRequest, endings: &mut JoinSet<()>) {
        match request {
            ReloadRequest::Signal => drop(self.reload_and_log(endings).await),
            // A caller that is gone needs no report.
            ReloadRequest::Caller(answer) => {
                let _ = answer.send(self.reload_and_log(endings).await);
            }
            ReloadRequest::Check(added, answer) => {
                let _ = answer.send(self.check(added).await);
            }
        }
    }

    /// Applies the servers that operators have added, if they differ from those that were tried last.
    pub(super) async fn follow_operators(&mut self, endings: &mut JoinSet<()>) {
        let added = added_definitions(&self.desired.borrow_and_update());
        if added != self.added {
            drop(self.reload_and_log(endings).await);
        }
    }

    async fn reload_and_log(&mut self, endings: &mut JoinSet<()>) -> ReloadResult {
        let result = match self.stopping.is_cancelled() {
            true => Err(ReloadError::Stopping),
            false => self.reload(endings).await,
        };
        match &result {
            Ok(report) => report.log(),
            Err(error) => tracing::error!("{error}"),
        }
        result
    }

    /// What a reload would change with these added servers.
    async fn check(&self, added: Vec<Value>) -> ReloadResult {
        let LoadedSettings { settings, remarks } = self.load_usable(added).await?;
        let (_, changes) = self.settings.take_changes(settings);
        Ok(ReloadReport::new(&changes, remarks))
    }

    async fn reload(&mut self, endings: &mut JoinSet<()>) -> ReloadResult {
        self.added = added_definitions(&self.desired.borrow_and_update());
        let LoadedSettings { settings, remarks } = self.load_with_added().await?;
        let (settings, changes) = self.settings.take_changes(settings);
        if changes.is_empty() {
            return Ok(ReloadReport::new(&changes, remarks));
        }
        let served = self.current.get();
        let previous = PreviousApp {
            settings: &self.settings,
            app: &served.app,
        };
        let assembled = application::assemble_next(&settings, &previous, self.ring.as_ref());
        let (app, routed) = assembled.await.map_err(|error| refused(&error))?;
        if !Arc::ptr_eq(&app.authenticator, &served.app.authenticator) {
            app.authenticator.read_keys().await;
            if has_keys(&served.app) && !has_keys(&app) {
                let problem = "auth: the keys that callers are known by cannot be read now";
                return Err(ReloadError::Refused(vec![problem.to_owned()]));
            }
        }
        self.trust_roots(&settings, &app)?;
        self.app_tasks.follow(&app).await;
        let router = &app.core.session_router;
        router.configure(&routed, application::session_limits(&settings));
        router.apply_parking();
        self.current.replace(Arc::clone(&app));
        self.source.log_level.set(settings.log.level);
        probe_servers(&app, Some(&served.app.core.servers));
        for id in removed_servers(&changes) {
            let (app, before) = (Arc::clone(&app), Arc::clone(&served.app));
            let patience = settings.worker.stop_patience;
            endings.spawn(async move { end_sessions(&app, &before, &id, patience).await });
        }
        self.settings = settings;
        Ok(ReloadReport::new(&changes, remarks))
    }

    /// The settings with the servers that operators have added. One that this gateway cannot use does not keep the others, or
    /// other changes, from being applied: it is left out, and tried again.
    async fn load_with_added(&mut self) -> Result<LoadedSettings, ReloadError> {
        self.is_behind = false;
        let added = self.added.clone();
        match self.load_usable(added.clone()).await {
            Err(ReloadError::Refused(_)) if !added.is_empty() => {}
            loaded => return loaded,
        }
        self.is_behind = true;
        let mut loaded = self.load_usable(Vec::new()).await?;
        let (mut usable, mut left_out) = (Vec::new(), Vec::new());
        for definition in added {
            usable.push(definition);
            match self.load_usable(usable.clone()).await {
                Ok(with_it) => loaded = with_it,
                Err(error) => {
                    usable.pop();
                    left_out.push(left_out_remark(&error));
                }
            }
        }
        loaded.remarks.extend(left_out);
        Ok(loaded)
    }

    /// The settings with these servers, if this gateway has what they need.
    async fn load_usable(&self, added: Vec<Value>) -> Result<LoadedSettings, ReloadError> {
        let loaded = self.load(added).await?;
        let (taken, _) = self.settings.take_changes(loaded.settings.clone());
        let problems = unmet_needs(&taken, &self.current.get().app, self.ring.as_ref());
        match problems.is_empty() {
            true => Ok(loaded),
            false => Err(ReloadError::Refused(problems)),
        }
    }

    /// Reads and checks the settings as the start did. Files are read beside other work.
    async fn load(&self, added: Vec<Value>) -> Result<LoadedSettings, ReloadError> {
        let flags = self.source.flags.clone();
        let loading = tokio::task::spawn_blocking(move || {
            let added = (!added.is_empty()).then(|| Value::Array(added).to_string());
            let further = added.as_deref().map(|added| (ADDED_BY_OPERATORS, added));
            let loaded = Settings::load_with(&Environment::of_process(), &flags, further).map_err(
                |error| {
                    let problems = error.problems().iter();
                    ReloadError::Refused(problems.map(ToString::to_string).collect())
                },
            )?;
            let checks = check_files(&loaded.settings);
            let problems: Vec<String> = (checks.into_iter())
                .filter(|check| check.outcome == CheckOutcome::Problem)
                .map(describe_problem)
                .collect();
            match problems.is_empty() {
                true => Ok(loaded),
                false => Err(ReloadError::Refused(problems)),
            }
        });
        loading.await.unwrap_or(Err(ReloadError::Stopping))
    }

    /// Root certificates are read when the first server needs them.
    fn trust_roots(&self, settings: &Settings, app: &App) -> Result<(), ReloadError> {
        if application::needs_tls(settings) && !application::needs_tls(&self.settings) {
            let tls = tls_config(true).map_err(|error| refused(&error))?;
            app.core.session_router.client().http().trust(tls);
        }
        Ok(())
    }
}

/// The names of the servers that are removed. One that is now of another kind is not among them: its sessions move, as
/// after a loss.
fn removed_servers(changes: &SettingsChanges) -> Vec<ServerName> {
    let removed = changes.servers_removed.iter();
    removed
        .filter_map(|id| ServerName::parse(id.as_str().as_bytes()).ok())
        .collect()
}

/// The definitions of the servers that operators have added.
fn added_definitions(desired: &DesiredState) -> Vec<Value> {
    let added = desired.servers.values();
    added.map(|added| added.definition.clone()).collect()
}

/// What operators read of an added server that this gateway cannot use; everything else is applied.
fn left_out_remark(error: &ReloadError) -> String {
    let reason = match error {
        ReloadError::Refused(problems) => problems.join("; "),
        ReloadError::Stopping => "the gateway is stopping".to_owned(),
    };
    format!(
        "a server that operators have added is left out, and tried again every {} s: {reason}",
        RETRY_EVERY.as_secs()
    )
}

/// Ends the sessions of a server that is no longer served.
async fn end_sessions(app: &App, before: &App, id: &ServerName, patience: Duration) {
    app.core.session_router.end_sessions_of(id, patience).await;
    app.legacy.end_streams(id);
    if let Some(server) = before.core.servers.get(id.as_str()) {
        app.core.pool.end_sessions_of(server).await;
    }
}

/// Whether callers can be known, as far as that needs keys.
fn has_keys(app: &App) -> bool {
    let state = app.authenticator.keys_state();
    state.is_none_or(|(_, state)| state.keys.is_some())
}

fn refused(error: &dyn std::error::Error) -> ReloadError {
    ReloadError::Refused(vec![with_causes(error)])
}

fn describe_problem(check: SettingsCheck) -> String {
    let SettingsCheck {
        subject,
        detail,
        advice,
        ..
    } = check;
    match advice {
        Some(advice) => format!("{subject}: {detail}; {advice}"),
        None => format!("{subject}: {detail}"),
    }
}

/// What servers need that only a start can open.
fn unmet_needs(settings: &Settings, app: &App, ring: Option<&KeyRing>) -> Vec<String> {
    let unmet = |server: &ServerSettings| {
        let needs_ring = server.kind.lives_in_one_worker() || server.forwards_identity();
        let exchanges = server.exchanges_tokens();
        if needs_ring && ring.is_none() {
            Some("worker.fleet_keys_file")
        } else if server.user_secret().is_some() && app.vault.is_none() {
            Some("vault.keys_file")
        } else if exchanges && !matches!(settings.auth, AuthSettings::Jwt { .. }) {
            Some("auth.mode")
        } else {
            None
        }
    };
    let problems = settings.servers.iter().filter_map(|server| {
        let setting = unmet(server)?;
        let (id, kind) = (server.id.as_str(), server.kind.name());
        Some(format!(
            "server {id:?} of kind \"{kind}\" needs {setting}, which this gateway was started without: restart it"
        ))
    });
    problems.collect()
}
