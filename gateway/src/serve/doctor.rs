//! `mooring doctor`: checks files, programs, ports, the store, the sandbox, keys and servers of the settings, and reports
//! problems and how to fix them. Hooks are not called.
//!
//! Invariant: no session, key or record of a running gateway is touched: sessions are made in memory, and everything
//! that is started is ended. Servers are queried like by a client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use mooring_session::names::WorkerId;

use super::application::{self, GatewayParts};
use super::check::{CheckOutcome, SettingsCheck, check_files, refuse_problems};
use super::{ServeError, beat, record_metrics, servers, telemetry, wind_down};
use crate::app_tasks::AppTasks;
use crate::background;
use crate::http::App;
use mooring_code::calls::Upstreams;
use mooring_code::catalog::{MountableServer, list_tools};
use mooring_peers::fleet::KeyRing;
use mooring_pipeline::NestedServers;
use mooring_pipeline::policy::AccessPolicy;
use mooring_settings::{FleetKeysFile, LoadedSettings, OnUnavailable, Settings, StoreLocation};
use mooring_store::{self as store, RedisServerView, Store, StoreOptions, StorePlace};
use mooring_upstream::{ContactOutcome, OauthTokens};

/// Timeout for a response from the gateway's own port.
const PORT_WITHIN: Duration = Duration::from_secs(2);
/// Timeout for one server, in addition to its own limits.
const SERVER_WITHIN: Duration = Duration::from_secs(90);
/// What `hash-max-listpack-value` of Redis has to be at least; the module says the same in its log.
const LISTPACK_VALUE_BYTES_WANTED: u64 = 512;
/// The address in this process's heartbeats: peers cannot reach it.
const ADDRESS: &str = "-";

/// All checks and their outcomes.
#[derive(Debug)]
pub struct Diagnosis(Vec<SettingsCheck>);

impl Diagnosis {
    /// Whether no check found a problem.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        let is_problem = |check: &SettingsCheck| check.outcome == CheckOutcome::Problem;
        !self.0.iter().any(is_problem)
    }

    /// The report for people: one line per check, advice below it, and the number of problems.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for check in &self.0 {
            let SettingsCheck {
                subject, detail, ..
            } = check;
            text.push_str(&format!(
                "{:<8} {subject}: {detail}\n",
                check.outcome.as_str()
            ));
            if let Some(advice) = &check.advice {
                text.push_str(&format!("{:<8}   {advice}\n", ""));
            }
        }
        let count = |outcome| {
            self.0
                .iter()
                .filter(|check| check.outcome == outcome)
                .count()
        };
        let (problems, warnings) = (count(CheckOutcome::Problem), count(CheckOutcome::Warning));
        text.push_str(&format!(
            "{} checks, problems: {problems}, warnings: {warnings}\n",
            self.0.len()
        ));
        text
    }

    /// The report as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let document = json!({ "healthy": self.is_healthy(), "checks": self.0 });
        format!("{document:#}\n")
    }
}

/// Checks files, programs, ports, the store, the sandbox and every server.
///
/// # Errors
/// This process could not be set up.
pub async fn diagnose(loaded: LoadedSettings) -> Result<Diagnosis, ServeError> {
    let LoadedSettings { settings, remarks } = loaded;
    let servers: Vec<&str> = settings
        .servers
        .iter()
        .map(|server| server.id.as_str())
        .collect();
    let mut checks = vec![SettingsCheck::ok(
        "settings",
        format!("servers: {}", servers.join(", ")),
    )];
    checks.extend(
        remarks
            .into_iter()
            .map(|remark| SettingsCheck::wrong(CheckOutcome::Warning, "settings", remark, "")),
    );
    let files = check_files(&settings);
    let is_servable = refuse_problems(&files).is_ok();
    // Servers that are queried below give more detail, unless their program is missing. A warning about one server is
    // reported as a problem here.
    let is_queried = |check: &SettingsCheck| {
        let id = check.subject.strip_prefix("server ");
        let lists_tools = id.is_some_and(|id| servers::lists_tools(&settings, id));
        is_servable && lists_tools && check.outcome == CheckOutcome::Ok
    };
    let mut unstartable = Vec::new();
    for mut check in files.into_iter().filter(|check| !is_queried(check)) {
        if check.outcome == CheckOutcome::Warning {
            check.outcome = CheckOutcome::Problem;
            unstartable.push(check.subject.clone());
        }
        checks.push(check);
    }
    let protocol = match settings.listen.tls {
        Some(_) => PortProtocol::Tls,
        None => PortProtocol::Http,
    };
    checks.push(port("listen.address", settings.listen.address, protocol).await);
    let peers = settings.worker.peers.listen;
    if settings.needs_peers() && peers.port() != 0 {
        checks.push(port("worker.peer_listen", peers, PortProtocol::Tls).await);
    }
    checks.push(store(&settings).await);
    checks.extend(collector(&settings).await);
    if is_servable {
        checks.extend(parts(&settings, &unstartable).await?);
    } else {
        let detail = "not asked: a gateway would not start, see above";
        checks.push(SettingsCheck::wrong(
            CheckOutcome::Warning,
            "servers",
            detail,
            "",
        ));
    }
    Ok(Diagnosis(checks))
}

/// What a gateway speaks at a port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PortProtocol {
    Http,
    Tls,
}

/// Whether the gateway can listen at the address, or already does.
async fn port(subject: &str, address: SocketAddr, protocol: PortProtocol) -> SettingsCheck {
    let error = match TcpListener::bind(address).await {
        Ok(_) => return SettingsCheck::ok(subject, format!("{address} is free")),
        Err(error) => error,
    };
    let is_in_use = error.kind() == std::io::ErrorKind::AddrInUse;
    if is_in_use && protocol == PortProtocol::Tls {
        let detail = format!("{address} is in use; over TLS, doctor cannot see by whom");
        let advice = "fine if it is a gateway with these settings";
        return SettingsCheck::wrong(CheckOutcome::Warning, subject, detail, advice);
    }
    if is_in_use
        && timeout(PORT_WITHIN, is_gateway(address))
            .await
            .unwrap_or(false)
    {
        return SettingsCheck::ok(subject, format!("a gateway is serving at {address}"));
    }
    let advice = match is_in_use {
        true => "end the process that listens there, or choose another port",
        false => "choose an address of this machine, and a port that this user may listen on",
    };
    let detail = format!("cannot listen on {address}: {error}");
    SettingsCheck::wrong(CheckOutcome::Problem, subject, detail, advice)
}

async fn is_gateway(address: SocketAddr) -> bool {
    const ASK: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    const ANSWER_BYTES_MAX: u64 = 4096;
    let asking = async {
        let mut connection = TcpStream::connect(address).await?;
        connection.write_all(ASK).await?;
        let mut answer = String::new();
        connection
            .take(ANSWER_BYTES_MAX)
            .read_to_string(&mut answer)
            .await?;
        Ok::<_, std::io::Error>(answer.ends_with(r#"{"status":"ok"}"#))
    };
    asking.await.unwrap_or(false)
}

/// Whether the store is usable. A missing file is not created.
async fn store(settings: &Settings) -> SettingsCheck {
    let subject = format!("store ({})", settings.store.location);
    if let StoreLocation::Embedded { path } = &settings.store.location
        && !path.exists()
    {
        return SettingsCheck::ok(subject, "its file will be made at the first start");
    }
    let mut strict = settings.store.clone();
    strict.on_unavailable = OnUnavailable::Fail;
    match store::open(&strict, &settings.affinity).await {
        Ok(store) => {
            let usable = usable(&store);
            match store.listpack_value_bytes().await {
                Ok(Some(bytes)) if bytes < LISTPACK_VALUE_BYTES_WANTED => SettingsCheck::wrong(
                    CheckOutcome::Warning,
                    subject,
                    format!(
                        "{usable}, but hash-max-listpack-value is {bytes}: sessions with longer values take 1.4 times \
                         the memory"
                    ),
                    "set it to 512 in redis.conf, as docs/operating-redis.md has it",
                ),
                Ok(_) => SettingsCheck::ok(subject, usable),
                // The gateway's own user may well have no right to read settings.
                Err(error) => SettingsCheck::ok(
                    subject,
                    format!("{usable}; hash-max-listpack-value is not known: {error}"),
                ),
            }
        }
        Err(error) => SettingsCheck::wrong(
            CheckOutcome::Problem,
            subject,
            error.to_string(),
            "docs/operating-redis.md and docs/settings.md ([store]) say what is needed",
        ),
    }
}

/// Whether the collector takes traces; none if none is configured. Requests are served without it.
async fn collector(settings: &Settings) -> Option<SettingsCheck> {
    const SUBJECT: &str = "telemetry.otlp_endpoint";
    let endpoint = settings.telemetry.otlp_endpoint.as_ref()?;
    let asked = telemetry::ask_collector(&settings.telemetry, endpoint).await;
    Some(match asked {
        Ok(url) => SettingsCheck::ok(SUBJECT, format!("{url} takes traces")),
        Err(problem) => SettingsCheck::wrong(
            CheckOutcome::Warning,
            SUBJECT,
            problem,
            "start the collector, or correct the URL and telemetry.headers; its receiver has to be OTLP over HTTP, usually at port 4318",
        ),
    })
}

/// That the store can be used, and which server it is.
fn usable(store: &Store) -> String {
    match store.redis_server() {
        Some(RedisServerView {
            discovery,
            way,
            address: Some(address),
            ..
        }) => {
            let without = match way {
                "script" => ", used without the module",
                _ => "",
            };
            format!("it can be used: the server is {address} (discovery: {discovery}){without}")
        }
        _ => "it can be used".to_owned(),
    }
}

/// Checks the sandbox and every server with a gateway that keeps its sessions in memory and has no listener. Servers that
/// are known to be `unstartable` are left out.
async fn parts(
    settings: &Settings,
    unstartable: &[impl AsRef<str> + Sync],
) -> Result<Vec<SettingsCheck>, ServeError> {
    let recorder = record_metrics()?;
    let worker = format!("doctor:{:016x}", rand::random::<u64>());
    let worker = WorkerId::parse(worker.as_bytes())?;
    let options = StoreOptions {
        place: StorePlace::Memory,
        ..StoreOptions::of(&settings.store, &settings.affinity)
    };
    let store = store::open_with(&options).await;
    let parts = GatewayParts {
        store: store.map_err(|error| ServeError::Unavailable {
            service: "memory".to_owned(),
            reason: error.to_string(),
        })?,
        worker: worker.clone(),
        peers: None,
        ring: fleet_keys(settings),
        policy: Arc::new(AccessPolicy::of(settings)),
        reloads: None,
    };
    let app = application::assemble(settings, parts, recorder).await?;
    let beat = beat(settings, &worker, ADDRESS)?;
    let beating = async {
        loop {
            background::announce(&app.core.session_router, &beat).await;
            tokio::time::sleep(settings.worker.beat_interval).await;
        }
    };
    background::announce(&app.core.session_router, &beat).await;
    let mut checks = code(&app).await;
    app.authenticator.read_keys().await;
    checks.extend(caller_keys(&app));
    let mut app_tasks = AppTasks::new(settings.affinity.reap_interval);
    app_tasks.follow(&app).await;
    checks.extend(
        app.server_tokens
            .values()
            .map(|tokens| server_token(tokens)),
    );
    tokio::select! {
        asked = check_servers(settings, &app, unstartable) => checks.extend(asked),
        () = beating => {}
    }
    wind_down(&app, JoinSet::new(), Instant::now()).await;
    Ok(checks)
}

/// Whether the keys that authenticate callers can be read. None if there are no such keys.
fn caller_keys(app: &App) -> Option<SettingsCheck> {
    let (_, state) = app.authenticator.keys_state()?;
    let subject = "keys of callers";
    Some(match state.failure {
        None => {
            let count = state.keys.unwrap_or_default();
            SettingsCheck::ok(subject, format!("{count} keys were read"))
        }
        Some(failure) => SettingsCheck::wrong(
            CheckOutcome::Problem,
            subject,
            failure,
            "docs/authentication.md says what `auth` needs; without keys, no caller is served",
        ),
    })
}

/// Whether the gateway gets its own token for a server.
fn server_token(tokens: &OauthTokens) -> SettingsCheck {
    let subject = format!("oauth of server {}", tokens.server());
    match tokens.is_current() {
        true => SettingsCheck::ok(subject, "a token was fetched"),
        false => SettingsCheck::wrong(
            CheckOutcome::Problem,
            subject,
            "no token could be fetched; the log says why",
            "look at `token_url`, `client_id` and the secret's file of `servers.oauth`",
        ),
    }
}

/// The keys of the fleet that exist; doctor makes none.
fn fleet_keys(settings: &Settings) -> Option<KeyRing> {
    match settings.worker.peers.fleet_keys_file.as_ref()? {
        FleetKeysFile::Given(path) | FleetKeysFile::BesideStore(path) => KeyRing::read(path).ok(),
    }
}

/// Checks the sandbox, its runtimes and the directory of its sessions.
async fn code(app: &App) -> Vec<SettingsCheck> {
    let Some(servers) = &app.directory.code else {
        return Vec::new();
    };
    let state = servers.state().await.into_json();
    let part = |pointer: &str| -> Option<&str> { state.pointer(pointer)?.as_str() };
    let mut checks = Vec::new();
    for (name, pointer) in [("sandbox", "/sandbox"), ("code.base_dir", "/base_dir")] {
        checks.push(match part(&format!("{pointer}/problem")) {
            None => SettingsCheck::ok(name, "it passed its self-test"),
            Some(problem) => SettingsCheck::wrong(
                CheckOutcome::Problem,
                name,
                problem,
                "docs/deploying.md says what a host needs",
            ),
        });
    }
    for runtime in ["python", "deno"] {
        let pointer = format!("/sandbox/runtimes/{runtime}");
        match (
            part(&format!("{pointer}/version")),
            part(&format!("{pointer}/remedy")),
        ) {
            (_, Some(remedy)) => {
                let detail = "it is not installed; code in this language is refused";
                checks.push(SettingsCheck::wrong(
                    CheckOutcome::Warning,
                    runtime,
                    detail,
                    remedy,
                ));
            }
            (Some(version), None) => checks.push(SettingsCheck::ok(runtime, version)),
            (None, None) => {}
        }
    }
    checks
}

/// Lists the tools of every server that is remote or a program.
async fn check_servers(
    settings: &Settings,
    app: &Arc<App>,
    unstartable: &[impl AsRef<str> + Sync],
) -> Vec<SettingsCheck> {
    let mut mountable = servers::mountable(settings).unwrap_or_default();
    mountable.retain(|server| {
        let subject = format!("server {}", server.id);
        !unstartable.iter().any(|known| known.as_ref() == subject)
    });
    let upstreams: Arc<dyn Upstreams> = Arc::new(NestedServers::of_gateway(&app.core));
    join_all(
        mountable
            .iter()
            .map(|server| check_server(app, &upstreams, server)),
    )
    .await
}

async fn check_server(
    app: &App,
    upstreams: &Arc<dyn Upstreams>,
    server: &MountableServer,
) -> SettingsCheck {
    let subject = format!("server {}", server.id);
    let listed = timeout(SERVER_WITHIN, list_tools(upstreams, server)).await;
    let detail = match listed {
        Ok(Ok(tools)) => {
            return SettingsCheck::ok(subject, format!("it lists {} tools", tools.len()));
        }
        Ok(Err(error)) => error_message(&error.to_string()),
        Err(_) => "it did not answer in time".to_owned(),
    };
    let contact = (app.core.servers.get(server.id.as_str())).and_then(|server| server.health().1);
    let cause = contact.and_then(|contact| contact.failure);
    let outcome = (cause.as_ref()).map_or(ContactOutcome::Ok, |cause| cause.outcome);
    let detail = match cause {
        Some(cause) if !detail.contains(&*cause.text) => format!("{detail}: {}", cause.text),
        _ => detail,
    };
    SettingsCheck::wrong(CheckOutcome::Problem, subject, detail, advice(outcome))
}

/// The message of a JSON-RPC error; any other text unchanged.
fn error_message(text: &str) -> String {
    let message = |json: &str| -> Option<String> {
        let error: Value = serde_json::from_str(json).ok()?;
        Some(error.get("message")?.as_str()?.to_owned())
    };
    let from = text.find('{').and_then(|start| text.get(start..));
    from.and_then(message).unwrap_or_else(|| text.to_owned())
}

/// How to fix an unreachable server.
const fn advice(outcome: ContactOutcome) -> &'static str {
    match outcome {
        ContactOutcome::Ok => "look at the server's own log",
        ContactOutcome::Refused => "start the server, or correct the port in `instances`",
        ContactOutcome::Connect => {
            "correct the host in `instances`, or look at names, routes and firewalls"
        }
        ContactOutcome::Tls => {
            "the port has to speak TLS, with a certificate for this name that the system trusts; SSL_CERT_FILE names others"
        }
        ContactOutcome::TimedOut => {
            "look at the server's own log; upstream.response_headers_timeout_ms and start_timeout_ms limit the wait"
        }
        ContactOutcome::Status => {
            "correct the path in `instances` (mostly /mcp, or kind = \"sse\" with /sse), or give credentials in `headers`"
        }
        ContactOutcome::Invalid => {
            "`instances` has to name an MCP endpoint; one of HTTP+SSE needs kind = \"sse\""
        }
        ContactOutcome::NotStarted => {
            "run the command by hand as the gateway's user; variables that it needs go into `env` or `inherit_env`"
        }
        ContactOutcome::Broken => {
            "look at the server's own log, and at what is between: the connection ended"
        }
    }
}
