//! Serves one client over stdin and stdout, in a process that the client starts, in some cases for each call.
//!
//! Invariant: the client's requests are answered before the process exits, which happens when stdin is closed or the
//! client stops reading stdout.
//!
//! Such processes forward to each other, and to gateways over the same store, like the gateways of a fleet. Owned
//! connections end with the process: forwarded calls are finished first. The next message of such a session starts a
//! new process or connection at the gateway that receives it, and the reply reports the loss.

mod pipes;

use std::sync::Arc;
use std::time::Duration;

use mooring_session::names::{NameError, Principal, ServerName, WorkerId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::pipes::{Line, Output};
use super::application::{self, GatewayParts};
use super::peers::{self, PeerPort, Peers};
use super::signals::stop_requested;
use super::{ServeError, beat, open_store, record_metrics, wind_down};
use crate::app_tasks::AppTasks;
use crate::background;
use crate::http::{App, CurrentApp};
use mooring_identity::Identity;
use mooring_pipeline::policy::AccessPolicy;
use mooring_pipeline::stdio::{StdioClient, StdioSessionLifetime};
use mooring_router::DeparturePhase;
use mooring_settings::{ServerKind, ServerSettings, Settings};

/// Most lines that are read ahead.
const LINES_WAITING_MAX: usize = 16;
/// Most messages queued for stdout.
const WRITTEN_WAITING_MAX: usize = 16;
/// Timeout for writing the remaining messages to a client that may have stopped reading.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(1);
/// The address of a process that owns no connections: peers forward nothing to it.
const NO_ADDRESS: &str = "-";

/// The client of a process that serves over stdin and stdout.
#[derive(Clone, Debug)]
pub struct StdioOptions {
    /// The server's id.
    pub server: String,
    /// The client's principal.
    pub principal: String,
    /// The lifetime of its session.
    pub lifetime: StdioSessionLifetime,
}

/// Serves the client until stdin is closed and all requests are answered, or until SIGTERM or SIGINT.
///
/// # Errors
/// See [`ServeError`].
pub async fn serve_stdio(settings: Settings, options: StdioOptions) -> Result<(), ServeError> {
    let server = ServerName::parse(options.server.as_bytes())
        .map_err(|_| no_server(&settings, &options.server))?;
    let principal = Principal::parse(options.principal.as_bytes())?;
    let settings = settings_for_server(settings, &options.server)?;
    let recorder = record_metrics()?;
    let worker = worker_id(&settings)?;
    let store = open_store(&settings).await?;
    let (ring, peers) = if settings.needs_peers() || settings.forwards_identity() {
        peers::open(&settings.worker.peers, PeerPort::Free, &worker, &store).await?
    } else {
        (None, None)
    };
    let parts = GatewayParts {
        store,
        worker: worker.clone(),
        peers: peers.as_ref().map(Peers::client),
        ring,
        policy: Arc::new(AccessPolicy::open()),
        reloads: None,
    };
    let app = application::assemble(&settings, parts, recorder.clone()).await?;
    let address = peers.as_ref().map_or(NO_ADDRESS, |peers| &peers.address);
    let beat = beat(&settings, &worker, address)?;
    background::announce(&app.core.session_router, &beat).await;
    let current = CurrentApp::new(Arc::clone(&app));
    let tasks = background::start(&current, &settings, beat, recorder);
    let mut app_tasks = AppTasks::new(settings.affinity.reap_interval);
    app_tasks.follow(&app).await;
    let peer_listener = peers.map(|peers| peers.serve(&current));

    let (lines, arriving) = mpsc::channel(LINES_WAITING_MAX);
    let (written, writing) = mpsc::channel(WRITTEN_WAITING_MAX);
    pipes::read(lines, settings.listen.body_bytes_max).map_err(ServeError::Threads)?;
    let output = pipes::write(writing).map_err(ServeError::Threads)?;
    let identity = Arc::new(Identity::of(principal));
    let client = StdioClient::new(
        Arc::clone(&app.directory),
        &server,
        identity,
        options.lifetime,
        written,
    );
    let client = client.ok_or_else(|| no_server(&settings, &options.server))?;
    let result = serve_client(client, arriving, &output, settings.listen.body_bytes_max).await;
    let departure = app.core.session_router.departure();
    departure.stop();
    departure.advance(DeparturePhase::Draining);
    app.core.relay.stopping.cancel();
    if matches!(result, Ok(StdioEnd::Answered)) {
        finish_forwarded(&app, settings.worker.stop_patience).await;
    }
    wind_down(&app, tasks, Instant::now()).await;
    if let Some(listener) = peer_listener {
        listener.stop().await;
    }
    match result {
        // Every response is delivered, however slowly it is read.
        Ok(StdioEnd::Answered) => output.written().await,
        // A client that does not read must not block the exit.
        Ok(StdioEnd::Stopped) | Err(_) => {
            let _ = tokio::time::timeout(LAST_WORDS_WITHIN, output.written()).await;
        }
    }
    result.map(|_| ())
}

/// Waits for calls that other processes forwarded, for at most `patience` or until a signal.
async fn finish_forwarded(app: &App, patience: Duration) {
    tokio::select! {
        () = app.core.session_router.owned_connections().finish(Instant::now() + patience) => {}
        () = stop_requested(note_ignored) => {}
    }
}

/// Settings are read at the start.
fn note_ignored() {
    tracing::warn!("SIGHUP is ignored: settings are read at the start; restart to change them");
}

/// A unique id: many such processes may run at once, and none replaces another.
fn worker_id(settings: &Settings) -> Result<WorkerId, NameError> {
    let boot = rand::random::<u64>();
    let name = settings
        .worker
        .name
        .beside_others(&format!("stdio-{boot:016x}"));
    WorkerId::parse(format!("{name}:{boot:016x}").as_bytes())
}

/// Why serving ended.
enum StdioEnd {
    /// stdin is closed and every request is answered.
    Answered,
    /// A signal arrived, or stdout is closed.
    Stopped,
}

/// Serves until one of the reasons to end.
async fn serve_client(
    mut client: StdioClient,
    mut arriving: mpsc::Receiver<Line>,
    output: &Output,
    line_bytes_max: usize,
) -> Result<StdioEnd, ServeError> {
    let over = client.over();
    let all = async {
        while let Some(line) = arriving.recv().await {
            match line {
                Line::Whole(line) => client.handle_line(line).await,
                Line::TooLong(line) => client.refuse_long_line(&line, line_bytes_max).await,
            }
        }
        client.answered().await;
    };
    let result = tokio::select! {
        () = all => Ok(StdioEnd::Answered),
        () = stop_requested(note_ignored) => Ok(StdioEnd::Stopped),
        () = output.closed() => Ok(StdioEnd::Stopped),
        () = over.cancelled() => Err(ServeError::SessionOver),
    };
    client.leave().await;
    result
}

fn no_server(settings: &Settings, id: &str) -> ServeError {
    let known: Vec<&str> = (settings.servers.iter())
        .map(|server| server.id.as_str())
        .collect();
    ServeError::NoServer {
        id: id.to_owned(),
        known: match known.join(", ") {
            none if none.is_empty() => "none".to_owned(),
            some => some,
        },
    }
}

/// The settings without servers that this one does not use, so that those are not started.
///
/// # Errors
/// The server does not exist, or is for operators, who have to be known.
fn settings_for_server(mut settings: Settings, id: &str) -> Result<Settings, ServeError> {
    let Some(server) = settings.server(id).cloned() else {
        return Err(no_server(&settings, id));
    };
    if server.kind == ServerKind::Admin {
        return Err(ServeError::NotOverStdio { id: id.to_owned() });
    }
    let needed: Vec<String> = match &server.kind {
        ServerKind::Group(group) => (group.members.iter())
            .map(|member| member.as_str().to_owned())
            .collect(),
        _ => Vec::new(),
    };
    let is_needed = |other: &ServerSettings| {
        other.id == server.id || needed.iter().any(|id| id == other.id.as_str())
    };
    let runs_code = (settings.servers.iter())
        .filter(|other| is_needed(other))
        .any(|other| matches!(other.kind, ServerKind::Code(_)));
    if !runs_code {
        // Agents cost nothing until they run, and share their limits.
        let is_agent = |other: &ServerSettings| matches!(other.kind, ServerKind::Agent(_));
        settings
            .servers
            .retain(|other| is_needed(other) || is_agent(other));
        settings.code = None;
    }
    for server in &mut settings.servers {
        if let ServerKind::Stdio(stdio) = &mut server.kind {
            // The process ends with its client, so idle children need no timeout.
            stdio.idle_timeout = None;
        }
    }
    Ok(settings)
}
