//! Serving one client over standard input and output, in a process of its own: what clients start for themselves, some of
//! them anew for each call.
//!
//! Invariant: what the client asked is answered before the process ends by itself. It ends when the client has nothing more
//! to say, or reads no more.
//!
//! Such processes forward to each other, and to gateways over the same store, as the gateways of a fleet do. What one owns
//! ends with it: the calls that others forwarded are finished first, and the next message of such a session starts a new
//! process or connection at whoever got it, and is marked.

mod pipes;

use std::time::Duration;

use mooring_session::names::{NameError, Principal, ServerName, WorkerId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::pipes::{Line, Output};
use super::application::{self, GatewayParts};
use super::peers::{self, PeerPort, Peers};
use super::signals::stop_requested;
use super::{ServeError, beat, open_store, record_metrics, wind_down};
use crate::background;
use crate::http::{App, Keeping, StdioClient};
use mooring_settings::{ServerKind, ServerSettings, Settings};

/// Lines that were read and not yet taken.
const LINES_WAITING_MAX: usize = 16;
/// Messages that wait for standard output.
const WRITTEN_WAITING_MAX: usize = 16;
/// How long what was said last may take to be written where the client may not read any more.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(1);
/// The address of a process that owns nothing: there is nothing to be forwarded to it.
const NO_ADDRESS: &str = "-";

/// Whom a process serves over standard input and output.
#[derive(Clone, Debug)]
pub struct StdioOptions {
    /// The server's id.
    pub server: String,
    /// Who the client is.
    pub principal: String,
    /// How long its session is kept.
    pub keeping: Keeping,
}

/// Serves the client until its input ends and everything it asked is answered, or until SIGTERM or SIGINT.
///
/// # Errors
/// See [`ServeError`].
pub async fn serve_stdio(settings: Settings, options: StdioOptions) -> Result<(), ServeError> {
    let server = ServerName::parse(options.server.as_bytes())?;
    let principal = Principal::parse(options.principal.as_bytes())?;
    let settings = narrowed(settings, &options.server)?;
    let recorder = record_metrics()?;
    let worker = worker_id(&settings)?;
    let store = open_store(&settings).await?;
    let (ring, peers) = if settings.needs_peers() {
        peers::open(&settings.worker.peers, PeerPort::Free, &worker, &store).await?
    } else {
        (None, None)
    };
    let parts = GatewayParts {
        store,
        worker: worker.clone(),
        peers: peers.as_ref().map(Peers::client),
        ring,
    };
    let app = application::assemble(&settings, parts, recorder.clone()).await?;
    let address = peers.as_ref().map_or(NO_ADDRESS, |peers| &peers.address);
    let beat = beat(&settings, &worker, address)?;
    background::announce(&app.session_router, &beat).await;
    let tasks = background::start(&app, &settings, beat, recorder);
    let peer_listener = peers.map(|peers| peers.serve(&app));

    let (lines, arriving) = mpsc::channel(LINES_WAITING_MAX);
    let (written, writing) = mpsc::channel(WRITTEN_WAITING_MAX);
    pipes::read(lines, settings.listen.body_bytes_max).map_err(ServeError::Run)?;
    let output = pipes::write(writing).map_err(ServeError::Run)?;
    let client = StdioClient::new(app.clone(), &server, principal, options.keeping, written);
    let client = client.ok_or_else(|| no_server(&settings, &options.server))?;
    let result = converse(client, arriving, &output, settings.listen.body_bytes_max).await;
    app.relay.stopping.cancel();
    if matches!(result, Ok(StdioEnd::Answered)) {
        finish_forwarded(&app, settings.worker.stop_patience).await;
    }
    wind_down(&app, tasks, Instant::now()).await;
    if let Some(listener) = peer_listener {
        listener.stop().await;
    }
    match result {
        // All of it is wanted, however slowly it is read.
        Ok(StdioEnd::Answered) => output.written().await,
        // Whoever does not read must not keep the process.
        Ok(StdioEnd::Stopped) | Err(_) => {
            let _ = tokio::time::timeout(LAST_WORDS_WITHIN, output.written()).await;
        }
    }
    result.map(|_| ())
}

/// Waits for the calls that other processes forwarded here, for `patience` at most and not after a signal.
async fn finish_forwarded(app: &App, patience: Duration) {
    tokio::select! {
        () = app.session_router.owned_connections().finish(Instant::now() + patience) => {}
        () = stop_requested() => {}
    }
}

/// A worker of its own: many such processes may live at once, and none of them replaces another.
fn worker_id(settings: &Settings) -> Result<WorkerId, NameError> {
    let boot = rand::random::<u64>();
    let name = settings
        .worker
        .name
        .beside_others(&format!("stdio-{boot:016x}"));
    WorkerId::parse(format!("{name}:{boot:016x}").as_bytes())
}

/// Why the client is served no longer.
enum StdioEnd {
    /// It has nothing more to say, and everything is answered.
    Answered,
    /// The process is told to stop, or nobody reads what it says.
    Stopped,
}

/// Serves until there is a reason to end.
async fn converse(
    mut client: StdioClient,
    mut arriving: mpsc::Receiver<Line>,
    output: &Output,
    line_bytes_max: usize,
) -> Result<StdioEnd, ServeError> {
    let over = client.over();
    let all = async {
        while let Some(line) = arriving.recv().await {
            match line {
                Line::Whole(line) => client.take(line).await,
                Line::TooLong => client.refuse_long(line_bytes_max).await,
            }
        }
        client.answered().await;
    };
    let result = tokio::select! {
        () = all => Ok(StdioEnd::Answered),
        () = stop_requested() => Ok(StdioEnd::Stopped),
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

/// The settings without the servers that this one has nothing to do with: what is not there need not be started.
///
/// # Errors
/// There is no such server.
fn narrowed(mut settings: Settings, id: &str) -> Result<Settings, ServeError> {
    let Some(server) = settings.server(id).cloned() else {
        return Err(no_server(&settings, id));
    };
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
        // Agents cost nothing until they are run, and are counted together.
        let is_agent = |other: &ServerSettings| matches!(other.kind, ServerKind::Agent(_));
        settings
            .servers
            .retain(|other| is_needed(other) || is_agent(other));
        settings.code = None;
    }
    for server in &mut settings.servers {
        if let ServerKind::Stdio(stdio) = &mut server.kind {
            // A client that is gone leaves no process here: this one ends with it.
            stdio.idle_timeout = None;
        }
    }
    Ok(settings)
}
