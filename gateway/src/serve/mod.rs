//! Serving: from checked settings to a running worker, and to its clean end.
//!
//! Order matters: what can fail is opened before the port is bound, the worker announces itself before it serves, and
//! on the way out it says that it is gone after it has stopped accepting.

mod application;
mod listener;
mod peers;
mod servers;
mod stdio;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::ListenerExt;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use mooring_session::names::{Address, NameError, WorkerId};
use mooring_session::time::Millis;
use mooring_session::workers::{Beat, Drain};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::http::{App, Colleague, service};
use crate::settings::Settings;
use crate::store::{self, Store};
use crate::upstream::ClientError;
use crate::{background, metrics};

use self::application::Parts;
use self::listener::{LINGER, Listener};
use self::peers::Peers;
pub use self::stdio::{StdioOptions, serve_stdio};

/// How long the connections that live here are given after the last reply, at least.
const LET_GO_WITHIN: Duration = Duration::from_secs(1);

/// Why serving did not start, or ended before it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A service that is needed is away or cannot be used; exit code 69.
    #[error("{service} cannot be used: {reason}")]
    Unavailable {
        /// Which service, without credentials.
        service: String,
        /// What is wrong, and how to mend it.
        reason: String,
    },
    /// The address could not be bound.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address as configured.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The metrics recorder could not be installed.
    #[error("metrics cannot be recorded")]
    Metrics(#[source] metrics_exporter_prometheus::BuildError),
    /// The client to upstream instances could not be made.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The servers of kind `code` could not be made.
    #[error("the code servers cannot be made")]
    Code(#[from] crate::code::server::OpenError),
    /// A configured name is not one that the store takes.
    #[error(transparent)]
    Name(#[from] NameError),
    /// There is no server of this id to be served alone; exit code 64.
    #[error("there is no server `{id}` in the settings; there is {known}")]
    NoServer {
        /// What was asked for.
        id: String,
        /// The ids that there are, as a list.
        known: String,
    },
    /// A server's connections would end with a process that serves one client; exit code 64.
    #[error(
        "server `{id}` is of kind {kind}: what it remembers is in a process or connection that would end with this one; \
         serve it with `mooring serve`, which stays, and let the client connect there"
    )]
    LivesInOneWorker {
        /// The server's id.
        id: String,
        /// Its kind.
        kind: &'static str,
    },
    /// The session of the only client was ended by somebody else, or has expired.
    #[error("the session is over; the client may start again")]
    SessionOver,
    /// The server ended by itself.
    #[error("the server stopped")]
    Run(#[source] std::io::Error),
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// See [`ServeError`].
pub async fn serve(settings: Settings) -> Result<(), ServeError> {
    let recorder = record_metrics()?;
    let Assembled {
        app,
        listener,
        address,
        peers,
    } = assemble(&settings, recorder.clone()).await?;

    let known_as = match &peers {
        Some(peers) => peers.address.clone(),
        None => address.to_string().into(),
    };
    let (affinity, worker) = (&app.affinity, app.affinity.worker());
    let beat = beat(&settings, worker, &known_as)?;
    background::announce(affinity, &beat).await;
    let tasks = background::start(&app, &settings, beat, recorder);
    let no_more = CancellationToken::new();
    let colleague = peers.map(|peers| {
        let (service, limit) = (
            Arc::new(Colleague(Arc::clone(&app))),
            settings.listen.body_bytes_max,
        );
        tokio::spawn(peers.listen(service, limit, no_more.clone()))
    });

    tracing::info!(%address, %worker, peers = %known_as, store = affinity.store().kind(), "serving");
    let patience = settings.worker.stop_patience;
    let (result, patience_ends_at) = run(listener, Arc::clone(&app), patience).await;
    wind_down(&app, tasks, patience_ends_at).await;
    no_more.cancel();
    if let Some(colleague) = colleague {
        // What is still under way has nothing left behind it.
        let _ = tokio::time::timeout(LET_GO_WITHIN, colleague).await;
    }
    tracing::info!("stopped");
    result
}

fn record_metrics() -> Result<PrometheusHandle, ServeError> {
    let recorder = PrometheusBuilder::new()
        .set_buckets(metrics::BUCKETS_SECONDS)
        .map_err(ServeError::Metrics)?
        .install_recorder()
        .map_err(ServeError::Metrics)?;
    metrics::describe();
    Ok(recorder)
}

/// All that serving needs, and nothing of it serves yet.
struct Assembled {
    app: Arc<App>,
    listener: TcpListener,
    address: SocketAddr,
    peers: Option<Peers>,
}

async fn assemble(
    settings: &Settings,
    recorder: PrometheusHandle,
) -> Result<Assembled, ServeError> {
    let store = open_store(settings).await?;

    let configured = settings.listen.address;
    let bind_error = |source| ServeError::Bind {
        address: configured,
        source,
    };
    let listener = TcpListener::bind(configured).await.map_err(bind_error)?;
    let address = listener.local_addr().map_err(bind_error)?;

    let worker = worker_id(settings, address)?;
    let ring = peers::key_ring(&settings.worker.peers)?;
    let peers = match &ring {
        Some(ring) => Some(Peers::bind(&settings.worker.peers, &worker, ring).await?),
        None => None,
    };
    let parts = Parts {
        store,
        worker,
        peers: peers.as_ref().map(Peers::client),
        ring,
    };
    let app = application::assemble(settings, parts, recorder).await?;
    Ok(Assembled {
        app,
        listener,
        address,
        peers,
    })
}

/// Finishes what is under way here, and then lets go of what lives here. `tasks` go on meanwhile: as long as it beats, what
/// is under way is nobody else's.
async fn wind_down(app: &App, tasks: JoinSet<()>, patience_ends_at: Instant) {
    let affinity = &app.affinity;
    if let Some(code) = &app.code {
        code.stop_runs();
    }
    app.agents.stop_runs().await;
    let deadline = patience_ends_at.max(Instant::now() + LET_GO_WITHIN);
    affinity.owned().finish(deadline).await;
    // A legacy session ends with its stream. Whoever is cut off here leaves an owned binding of a worker that is gone.
    if tokio::time::timeout_at(deadline, app.legacy.all_over())
        .await
        .is_err()
    {
        tracing::info!("sessions of legacy clients were left to their time to live");
    }
    drop(tasks);
    // From here on others may take over what lives here; they do so where they are told that this worker stops.
    if let Err(error) = affinity.store().gone(affinity.worker()).await {
        tracing::info!(%error, "the store was not told that this worker is gone; its beat will lapse");
    }
    affinity.owned().let_go().await;
}

/// Accepts until a signal, then lets open calls finish for as long as `patience` lasts, and answers when that ends.
/// Streams that answer no call end at once: their clients open them again, at another worker.
async fn run(
    listener: TcpListener,
    app: Arc<App>,
    patience: Duration,
) -> (Result<(), ServeError>, Instant) {
    let stopping = app.relay.stopping.clone();
    let listener = match Listener::new(listener, stopping.clone()) {
        Ok(listener) => listener,
        Err(error) => return (Err(ServeError::Run(error)), Instant::now()),
    };
    // Events are small writes; Nagle's algorithm would hold each back for the client's delayed acknowledgement.
    let listener = listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
    });
    let stop = stopping.clone();
    let worker = app.affinity.worker().clone();
    let serving = axum::serve(listener, service(app)).with_graceful_shutdown(async move {
        signalled().await;
        tracing::info!(%worker, "stopping");
        stop.cancel();
        // The listener closes now, and what was accepted before is read.
        tokio::time::sleep(LINGER).await;
    });
    let begun_to_stop = async move {
        stopping.cancelled().await;
        Instant::now() + patience
    };
    let mut serving = std::pin::pin!(serving.into_future());
    let ends_at = tokio::select! {
        ended = &mut serving => return (ended.map_err(ServeError::Run), Instant::now()),
        ends_at = begun_to_stop => ends_at,
    };
    match tokio::time::timeout_at(ends_at, serving).await {
        Ok(ended) => (ended.map_err(ServeError::Run), ends_at),
        Err(_) => {
            tracing::info!("open replies were cut");
            (Ok(()), ends_at)
        }
    }
}

async fn signalled() {
    let interrupted = tokio::signal::ctrl_c();
    match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(mut terminated) => {
            tokio::select! {
                _ = interrupted => {}
                _ = terminated.recv() => {}
            }
        }
        // Without a handler the signal ends the process, which is what it asks for.
        Err(_) => {
            let _ = interrupted.await;
        }
    }
}

/// The configured name, and an id of this run of it.
fn worker_id(settings: &Settings, address: SocketAddr) -> Result<WorkerId, NameError> {
    let name = settings.worker.name.resolve(address.port());
    let boot = rand::random::<u64>();
    WorkerId::parse(format!("{name}:{boot:016x}").as_bytes())
}

async fn open_store(settings: &Settings) -> Result<Store, ServeError> {
    store::open(&settings.store, settings.affinity.session_ttl)
        .await
        .map_err(|error| ServeError::Unavailable {
            service: format!("the store ({})", settings.store.location),
            reason: error.to_string(),
        })
}

fn beat(settings: &Settings, worker: &WorkerId, address: &str) -> Result<Beat, NameError> {
    Ok(Beat {
        worker: worker.clone(),
        address: Address::parse(address.as_bytes())?,
        ttl: Millis::from(settings.worker.beat_ttl),
        drain: Drain::Serving,
    })
}
