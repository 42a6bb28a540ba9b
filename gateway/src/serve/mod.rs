//! Serving: from checked settings to a running gateway, and to its clean stop.
//!
//! The order matters: everything that can fail is opened before the port is bound, the gateway sends its first
//! heartbeat before it serves, and when stopping it deregisters after it has stopped accepting.

mod activity;
pub(crate) mod application;
mod check;
mod connection;
mod connection_limits;
mod doctor;
mod head_lines;
mod listener;
mod listener_tls;
mod open_files;
mod own_servers;
mod peers;
mod previous_app;
mod reload;
mod serve_error;
mod servers;
mod service_manager;
mod serving_threads;
mod signals;
mod statefulness;
mod stdio;
mod telemetry;
mod unread_body;
mod user_limits;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use mooring_session::names::{Address, NameError, WorkerId};
use mooring_session::time::Millis;
use mooring_session::workers::{Beat, Drain};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::app_tasks::AppTasks;
use crate::background;
use crate::http::{App, CurrentApp};
use crate::reload::{ReloadHandle, reload_channel};
use mooring_metrics as metrics;
use mooring_peers::fleet::KeyRing;
use mooring_pipeline::policy::AccessPolicy;
use mooring_router::affinity::SessionRouter;
use mooring_router::{Departure, DeparturePhase};
use mooring_settings::Settings;
use mooring_store::{self as store, DesiredChange, Store};
use mooring_upstream::with_causes;

use self::application::GatewayParts;
pub use self::check::{CheckOutcome, SettingsCheck, check_files, refuse_problems};
use self::connection::ClientConnectionOptions;
use self::connection_limits::ConnectionLimits;
pub use self::doctor::{Diagnosis, diagnose};
use self::listener::{ClientListener, ClientSocket};
use self::listener_tls::ListenerTls;
use self::peers::{PeerPort, Peers};
pub use self::reload::ReloadSource;
use self::reload::Reloader;
pub use self::serve_error::ServeError;
use self::serving_threads::ServingThreads;
pub use self::serving_threads::{end_runtime, runtime};
use self::statefulness::probe_servers;
pub use self::stdio::{StdioOptions, serve_stdio};

/// Minimum time to close owned connections after the last reply.
const LET_GO_WITHIN: Duration = Duration::from_secs(1);

/// Serves until SIGTERM or SIGINT. SIGHUP stops the process if its terminal is gone, otherwise it reloads the settings.
///
/// # Errors
/// See [`ServeError`].
pub async fn serve(settings: Settings, source: ReloadSource) -> Result<(), ServeError> {
    check_settings(&settings)?;
    let open_files_max = open_files::raise_limit();
    let tls = listener_tls(&settings)?;
    let recorder = record_metrics()?;
    let threads = ServingThreads::start(settings.worker.threads).map_err(ServeError::Threads)?;
    let threads = Arc::new(threads);
    let (reloads, reload_requests) = reload_channel();
    let PreparedGateway {
        app,
        socket,
        address,
        peers,
        ring,
    } = assemble(&settings, recorder.clone(), reloads.clone()).await?;
    let current = CurrentApp::new(Arc::clone(&app));

    let peer_address = match &peers {
        Some(peers) => peers.address.clone(),
        None => address.to_string().into(),
    };
    let (session_router, worker) = (&app.core.session_router, app.core.session_router.worker());
    let beat = beat(&settings, worker, &peer_address)?;
    app.authenticator.read_keys().await;
    background::announce(session_router, &beat).await;
    let mut tasks = background::start(&current, &settings, beat, recorder);
    let mut app_tasks = AppTasks::new(settings.affinity.reap_interval);
    app_tasks.follow(&app).await;
    if let Some(tls) = &tls {
        tasks.spawn(tls.clone().follow_files());
    }
    let peer_listener = peers.map(|peers| peers.serve(&current));

    probe_servers(&app, None);
    tracing::info!(
        %address, %worker, peers = %peer_address, store = session_router.store().kind(), threads = threads.count(),
        "serving"
    );
    let (leave, patience) = (settings.worker.leave, settings.worker.stop_patience);
    service_manager::report_ready(address);
    tokio::spawn(service_manager::report_liveness(Arc::clone(&threads)));
    let mut reloader = Reloader {
        source,
        settings,
        ring,
        current: Arc::clone(&current),
        app_tasks,
        desired: app.core.session_router.store().watch_desired_state(),
        added: Vec::new(),
        is_behind: false,
        stopping: app.core.relay.stopping.clone(),
    };
    // Before a client is served: one whose server was added would take its session for ended.
    reloader.follow_operators(&mut tasks).await;
    let listener = client_listener(socket, &current, tls, Arc::clone(&threads), open_files_max);
    tasks.spawn(reloader.run(reload_requests));
    let (result, patience_ends_at) = run(listener, &app, &reloads, leave, patience).await;
    wind_down(&current.get().app, tasks, patience_ends_at).await;
    if let Some(listener) = peer_listener {
        listener.stop().await;
    }
    // Last: owned connections may have been opened by requests on these threads.
    threads.stop().await;
    tracing::info!("stopped");
    result
}

/// Checks what the settings name, and logs what is no problem but of interest.
fn check_settings(settings: &Settings) -> Result<(), ServeError> {
    let checks = check_files(settings);
    refuse_problems(&checks)?;
    for check in checks
        .iter()
        .filter(|check| check.outcome != CheckOutcome::Ok)
    {
        let SettingsCheck {
            subject,
            detail,
            advice,
            ..
        } = check;
        tracing::warn!(%subject, advice = advice.as_deref(), "{detail}");
    }
    Ok(())
}

fn record_metrics() -> Result<PrometheusHandle, ServeError> {
    let recorder = PrometheusBuilder::new()
        .set_buckets(metrics::BUCKETS_SECONDS)
        .map_err(ServeError::Metrics)?
        .install_recorder()
        .map_err(ServeError::Metrics)?;
    metrics::describe();
    mooring_upstream::describe_metrics();
    mooring_peers::describe_metrics();
    mooring_identity::describe_metrics();
    Ok(recorder)
}

/// Everything that serving needs, before anything is served.
struct PreparedGateway {
    app: Arc<App>,
    socket: ClientSocket,
    address: SocketAddr,
    peers: Option<Peers>,
    ring: Option<KeyRing>,
}

async fn assemble(
    settings: &Settings,
    recorder: PrometheusHandle,
    reloads: ReloadHandle,
) -> Result<PreparedGateway, ServeError> {
    let store = open_store(settings).await?;

    let configured = settings.listen.address;
    let socket = client_socket(configured).await?;
    let address = socket.listener().local_addr();
    let address = address.map_err(|source| ServeError::Bind {
        address: configured,
        source,
    })?;

    let worker = worker_id(settings, address)?;
    let port = PeerPort::Configured;
    let (ring, peers) = peers::open(&settings.worker.peers, port, &worker, &store).await?;
    let parts = GatewayParts {
        store,
        worker,
        peers: peers.as_ref().map(Peers::client),
        ring: ring.clone(),
        policy: Arc::new(AccessPolicy::of(settings)),
        reloads: Some(reloads),
    };
    let app = application::assemble(settings, parts, recorder).await?;
    Ok(PreparedGateway {
        app,
        socket,
        address,
        peers,
        ring,
    })
}

/// The listener that the service manager passed, or else one that is bound here.
async fn client_socket(configured: SocketAddr) -> Result<ClientSocket, ServeError> {
    let bind_error = |source| ServeError::Bind {
        address: configured,
        source,
    };
    let passed = service_manager::passed_listener(configured);
    let passed = passed.map_err(|error| ServeError::Unavailable {
        service: "the listener of the service manager".to_owned(),
        reason: error.to_string(),
    })?;
    match passed {
        Some(listener) => {
            let listener = TcpListener::from_std(listener).map_err(bind_error)?;
            Ok(ClientSocket::Passed(listener))
        }
        None => {
            let bound = listener::bind(configured).await;
            bound.map(ClientSocket::Bound).map_err(bind_error)
        }
    }
}

/// Finishes calls in owned connections, then closes those connections. `tasks` continue meanwhile: while heartbeats are
/// sent, no other gateway takes these connections over.
async fn wind_down(app: &App, tasks: JoinSet<()>, patience_ends_at: Instant) {
    let session_router = &app.core.session_router;
    if let Some(code) = &app.directory.code {
        code.stop_runs().await;
    }
    app.directory.agents.stop_runs().await;
    let deadline = patience_ends_at.max(Instant::now() + LET_GO_WITHIN);
    session_router.owned_connections().finish(deadline).await;
    // A legacy session ends with its stream. One that is cut here leaves an owned binding of a gateway that is gone.
    if tokio::time::timeout_at(deadline, app.legacy.all_over())
        .await
        .is_err()
    {
        tracing::info!("sessions of HTTP+SSE clients did not end in time and will expire");
    }
    session_router.store().finish_history().await;
    drop(tasks);
    // From here on other gateways may take over the owned connections. They do so when they learn that this gateway
    // stops.
    if let Err(error) = session_router.store().gone(session_router.worker()).await {
        tracing::info!(%error, "deregistering failed; the heartbeat will lapse");
    }
    session_router.owned_connections().close_all().await;
    forget_drain(session_router).await;
    if let Some(spans) = &app.spans {
        spans.flush(telemetry::FLUSHED_WITHIN).await;
    }
}

/// This run of the gateway needs no draining any more. One that operators want by its name is for later runs too.
async fn forget_drain(session_router: &SessionRouter) {
    let (store, worker) = (session_router.store(), session_router.worker());
    if !store.desired_state().draining.contains_key(worker) {
        return;
    }
    let undrain = [DesiredChange::Undrain(worker.clone())];
    if let Err(error) = store.change_desired_state(None, &undrain).await {
        tracing::info!(%error, "the drain of this gateway stays among what operators want");
    }
}

/// TLS for clients, if it is configured.
fn listener_tls(settings: &Settings) -> Result<Option<ListenerTls>, ServeError> {
    let Some(tls) = &settings.listen.tls else {
        return Ok(None);
    };
    let has_http2 = settings.listen.connections.http2_streams_max.is_some();
    let opened = ListenerTls::open(tls, has_http2);
    opened.map(Some).map_err(|error| ServeError::Unavailable {
        service: "listen.tls".to_owned(),
        reason: with_causes(&error),
    })
}

/// The listener for clients, with the limits from the settings.
fn client_listener(
    socket: ClientSocket,
    current: &Arc<CurrentApp>,
    tls: Option<ListenerTls>,
    threads: Arc<ServingThreads>,
    open_files_max: Option<u64>,
) -> ClientListener {
    let app = &current.get().app;
    let settings = &app.listen.connections;
    ClientListener {
        socket,
        limits: ConnectionLimits::new(
            open_files::connections_max(settings.connections_max, open_files_max),
            settings.connections_per_peer_max,
            app.authenticator.trusted_peers(),
        ),
        options: Arc::new(ClientConnectionOptions {
            app: Arc::clone(current),
            departure: app.core.session_router.departure().clone(),
            tls,
            header_timeout: settings.header_timeout,
            idle_timeout: settings.idle_timeout,
            http2_streams_max: settings.http2_streams_max,
        }),
        threads,
    }
}

/// Accepts until a signal and for as long as `leave` after it, in which load balancers learn of the stop. Then lets open
/// calls finish for as long as `patience`, and returns when that ends. Streams that answer no call end immediately: their
/// clients reopen them at another gateway.
async fn run(
    listener: ClientListener,
    app: &App,
    reloads: &ReloadHandle,
    leave: Duration,
    patience: Duration,
) -> (Result<(), ServeError>, Instant) {
    let stopping = app.core.relay.stopping.clone();
    let mut serving = tokio::spawn(listener.serve(stopping.clone()));
    tokio::select! {
        ended = &mut serving => return (ended.map_err(ServeError::Accept), Instant::now()),
        () = signals::stop_requested(|| reloads.request()) => {}
    }
    let session_router = &app.core.session_router;
    tracing::info!(worker = %session_router.worker(), "stopping");
    service_manager::report_stopping(leave + patience);
    leave_balancers(session_router.departure(), leave).await;
    stopping.cancel();
    let ends_at = Instant::now() + patience;
    match tokio::time::timeout_at(ends_at, serving).await {
        Ok(ended) => (ended.map_err(ServeError::Accept), ends_at),
        Err(_) => {
            tracing::info!("open replies were cut");
            (Ok(()), ends_at)
        }
    }
}

/// Lets load balancers find this gateway not ready before it refuses anything. One that already drains has left them.
async fn leave_balancers(departure: &Departure, leave: Duration) {
    departure.stop();
    let drains = departure.draining();
    // A second signal ends the wait.
    tokio::select! {
        () = drains.cancelled() => {}
        () = tokio::time::sleep(leave) => {}
        () = signals::stop_requested(|| {}) => {}
    }
    departure.advance(DeparturePhase::Draining);
}

/// The configured name with a random id for this process.
fn worker_id(settings: &Settings, address: SocketAddr) -> Result<WorkerId, NameError> {
    let name = settings.worker.name.resolve(address.port());
    let boot = rand::random::<u64>();
    WorkerId::parse(format!("{name}:{boot:016x}").as_bytes())
}

async fn open_store(settings: &Settings) -> Result<Store, ServeError> {
    store::open(&settings.store, &settings.affinity)
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
