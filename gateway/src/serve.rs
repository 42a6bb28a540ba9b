//! Serving: from checked settings to a running worker, and to its clean end.
//!
//! Order matters: what can fail is opened before the port is bound, the worker announces itself before it serves, and
//! on the way out it says that it is gone after it has stopped accepting.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::ListenerExt;
use metrics_exporter_prometheus::PrometheusBuilder;
use mooring_session::names::{Address, NameError, ServerName, WorkerId};
use mooring_session::time::Millis;
use mooring_session::workers::{Beat, Drain};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::affinity::{Affinity, AffinityOptions};
use crate::code::server::CodeServers;
use crate::dispatch::RelayOptions;
use crate::http::{App, service};
use crate::pooled::Pool;
use crate::settings::{self, Settings};
use crate::store;
use crate::upstream::{Client, ClientError, ClientOptions, Instance, Reach, Server, Servers};
use crate::{background, metrics};

/// How long open replies may take to finish after a signal to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

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
    /// The server ended by itself.
    #[error("the server stopped")]
    Run(#[source] std::io::Error),
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// See [`ServeError`].
pub async fn serve(settings: Settings) -> Result<(), ServeError> {
    let recorder = PrometheusBuilder::new()
        .set_buckets(metrics::BUCKETS_SECONDS)
        .map_err(ServeError::Metrics)?
        .install_recorder()
        .map_err(ServeError::Metrics)?;
    metrics::describe();
    let servers = Arc::new(servers(&settings)?);
    let client = client(&settings)?;
    let store = store::open(&settings.store, settings.affinity.session_ttl)
        .await
        .map_err(|error| unavailable(&settings, &error))?;

    let configured = settings.listen.address;
    let bind_error = |source| ServeError::Bind {
        address: configured,
        source,
    };
    let listener = TcpListener::bind(configured).await.map_err(bind_error)?;
    let address = listener.local_addr().map_err(bind_error)?;

    let worker = worker_id(&settings, address)?;
    let affinity = Affinity::new(
        store,
        client.clone(),
        Arc::clone(&servers),
        worker.clone(),
        affinity_options(&settings),
    );
    let app = Arc::new(App {
        code: code_servers(&settings, &affinity).await?,
        default_server: (settings.default_server.as_ref()).map(|id| id.as_str().into()),
        pool: Pool::new(
            client,
            worker.boot(),
            settings.upstream.response_headers_timeout,
        ),
        servers,
        affinity: affinity.clone(),
        listen: settings.listen.clone(),
        auth: settings.auth.clone(),
        relay: RelayOptions {
            event_bytes_max: settings.upstream.event_bytes_max,
            stopping: CancellationToken::new(),
        },
        metrics: recorder.clone(),
    });

    let beat = beat(&settings, &worker, address)?;
    background::announce(&affinity, &beat).await;
    let tasks = background::start(&app, &settings, beat, recorder);

    tracing::info!(%address, %worker, store = affinity.store().kind(), "serving");
    let result = run(listener, Arc::clone(&app)).await;
    if let Some(code) = &app.code {
        code.stop_runs();
    }
    drop(tasks);
    if let Err(error) = affinity.store().gone(&worker).await {
        tracing::info!(%error, "the store was not told that this worker is gone; its beat will lapse");
    }
    tracing::info!("stopped");
    result
}

/// Accepts until a signal, then lets open calls finish for a while. Streams that answer no call end at once: their
/// clients open them again, at another worker.
async fn run(listener: TcpListener, app: Arc<App>) -> Result<(), ServeError> {
    // Events are small writes; Nagle's algorithm would hold each back for the client's delayed acknowledgement.
    let listener = listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
    });
    let stopping = app.relay.stopping.clone();
    let stop = stopping.clone();
    let serving = axum::serve(listener, service(app)).with_graceful_shutdown(async move {
        signalled().await;
        tracing::info!("stopping");
        stop.cancel();
    });
    let patience = async move {
        stopping.cancelled().await;
        tokio::time::sleep(STOP_PATIENCE).await;
    };
    tokio::select! {
        ended = serving.into_future() => ended.map_err(ServeError::Run),
        () = patience => {
            tracing::info!("open replies were cut");
            Ok(())
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

fn servers(settings: &Settings) -> Result<Servers, ServeError> {
    let mut servers = Vec::new();
    for configured in &settings.servers {
        let settings::ServerKind::Http(http) = &configured.kind else {
            continue;
        };
        let mut instances = Vec::new();
        for instance in &http.instances {
            instances.push(Arc::new(Instance {
                name: mooring_session::names::InstanceName::parse(instance.name().as_bytes())?,
                uri: instance.uri().clone(),
                reach: Reach::default(),
            }));
        }
        servers.push(Arc::new(Server::new(
            ServerName::parse(configured.id.as_str().as_bytes())?,
            instances,
            http.affinity == settings::Affinity::Kept,
            http.on_upstream_loss,
            http.headers.map().clone(),
        )));
    }
    Ok(Servers::new(servers))
}

/// The servers that the gateway answers itself, where some are configured.
async fn code_servers(
    settings: &Settings,
    affinity: &Affinity,
) -> Result<Option<CodeServers>, ServeError> {
    let Some(code) = &settings.code else {
        return Ok(None);
    };
    let mut servers = Vec::new();
    for configured in &settings.servers {
        if let settings::ServerKind::Code(server) = &configured.kind {
            let id = ServerName::parse(configured.id.as_str().as_bytes())?;
            servers.push((id, server.clone()));
        }
    }
    Ok(Some(
        CodeServers::open(code, &servers, affinity.clone()).await?,
    ))
}

fn client(settings: &Settings) -> Result<Client, ClientError> {
    let options = ClientOptions {
        connect_timeout: settings.upstream.connect_timeout,
        idle_connection: settings.upstream.idle_connection,
        lost_after: settings.upstream.lost_after,
    };
    let needs_tls = settings
        .servers
        .iter()
        .filter_map(|server| match &server.kind {
            settings::ServerKind::Http(http) => Some(&http.instances),
            settings::ServerKind::Code(_) => None,
        })
        .flatten()
        .any(|instance| instance.uri().scheme_str() == Some("https"));
    Client::new(options, needs_tls)
}

fn affinity_options(settings: &Settings) -> AffinityOptions {
    AffinityOptions {
        session_ttl: millis(settings.affinity.session_ttl),
        sessions_max: settings.affinity.sessions_max,
        claim_lease: millis(settings.upstream.claim_lease),
        answer_timeout: settings.upstream.response_headers_timeout,
        key_prefix: settings.store.key_prefix.as_str().into(),
    }
}

/// The configured name, and an id of this run of it.
fn worker_id(settings: &Settings, address: SocketAddr) -> Result<WorkerId, NameError> {
    let name = settings.worker.name.resolve(address.port());
    let boot = rand::random::<u64>();
    WorkerId::parse(format!("{name}:{boot:016x}").as_bytes())
}

fn unavailable(settings: &Settings, error: &store::OpenError) -> ServeError {
    ServeError::Unavailable {
        service: format!("the store ({})", settings.store.location),
        reason: error.to_string(),
    }
}

fn beat(settings: &Settings, worker: &WorkerId, address: SocketAddr) -> Result<Beat, NameError> {
    Ok(Beat {
        worker: worker.clone(),
        address: Address::parse(address.to_string().as_bytes())?,
        ttl: millis(settings.worker.beat_ttl),
        drain: Drain::Serving,
    })
}

fn millis(duration: Duration) -> Millis {
    Millis::new(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
