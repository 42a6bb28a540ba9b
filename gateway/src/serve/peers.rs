//! The fleet's side of a worker: its keys, and the private listener by which the others reach it.
//!
//! Processes that share an embedded store are a fleet like any other: their key lies beside the store's file.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mooring_session::names::WorkerId;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::ServeError;
use crate::http::{App, PeerEndpoint};
use mooring_peers::fleet::{FleetTls, KeyRing};
use mooring_peers::{self as peer, ListenerOptions, PeerClient};
use mooring_settings::{FleetKeysFile, PeerSettings};
use mooring_store::Store;

/// Workers that asked something within this time may be about to ask again.
const ASKED_LATELY: Duration = Duration::from_secs(30);
/// How long after this worker is gone it still answers those that were told before where something lives.
const ASKED_LATE_WITHIN: Duration = Duration::from_millis(500);
/// How long forwarded calls may take to end after the last connection was closed here.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// The keys of the fleet and the private listener, where there are some.
///
/// # Errors
/// `Unavailable` without usable keys, `Bind` without the port.
pub(super) async fn open(
    settings: &PeerSettings,
    port: PeerPort,
    worker: &WorkerId,
    store: &Store,
) -> Result<(Option<KeyRing>, Option<Peers>), ServeError> {
    let Some(ring) = key_ring(settings, store)? else {
        return Ok((None, None));
    };
    let peers = Peers::bind(settings, port, worker, &ring).await?;
    Ok((Some(ring), Some(peers)))
}

/// The keys of the fleet. A store that serves from memory is shared with nobody, and nothing is
/// written beside its file: the key is this process's own.
fn key_ring(settings: &PeerSettings, store: &Store) -> Result<Option<KeyRing>, ServeError> {
    let read = match &settings.fleet_keys_file {
        Some(FleetKeysFile::Given(path)) => KeyRing::read(path),
        Some(FleetKeysFile::BesideStore(_)) if store.is_degraded() => Ok(KeyRing::random()),
        Some(FleetKeysFile::BesideStore(path)) => KeyRing::read_or_generate(path),
        None => return Ok(None),
    };
    read.map(Some).map_err(|error| ServeError::Unavailable {
        service: "worker.fleet_keys_file".to_owned(),
        reason: error.to_string(),
    })
}

/// Which port the private listener binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerPort {
    /// The one of `worker.peer_listen`.
    Configured,
    /// A free one, for processes that run beside others with the same settings.
    Free,
}

/// The private listener, and how its worker is told from others.
pub(super) struct Peers {
    listener: TcpListener,
    tls: FleetTls,
    /// What the others are told: `host:port`.
    pub(super) address: Box<str>,
}

impl Peers {
    /// Binds the private listener, and makes this boot's certificate.
    async fn bind(
        settings: &PeerSettings,
        port: PeerPort,
        worker: &WorkerId,
        ring: &KeyRing,
    ) -> Result<Self, ServeError> {
        let mut address = settings.listen;
        if port == PeerPort::Free {
            address.set_port(0);
        }
        let bind_error = |source| ServeError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind_error)?;
        let bound: SocketAddr = listener.local_addr().map_err(bind_error)?;
        let address = match (&settings.advertise, port) {
            (Some(address), PeerPort::Configured) => address.as_str().into(),
            (Some(address), PeerPort::Free) => address.with_port(bound.port()).into(),
            (None, _) => bound.to_string().into(),
        };
        let tls = FleetTls::new(worker, ring).map_err(|error| ServeError::Unavailable {
            service: "worker.peer_listen".to_owned(),
            reason: error.to_string(),
        })?;
        Ok(Self {
            listener,
            tls,
            address,
        })
    }

    /// Begins to serve the others.
    pub(super) fn serve(self, app: &Arc<App>) -> PeerListener {
        let stopping = CancellationToken::new();
        let options = ListenerOptions {
            body_bytes_max: app.listen.body_bytes_max,
        };
        let service = Arc::new(PeerEndpoint::new(Arc::clone(app)));
        let (served, stopped) = (Arc::clone(&service), stopping.clone());
        let task = tokio::spawn(async move {
            peer::listen(self.listener, &self.tls, served, options, stopped).await;
        });
        PeerListener {
            task,
            service,
            stopping,
        }
    }

    /// How this worker reaches the others.
    pub(super) fn client(&self) -> PeerClient {
        PeerClient::new(&self.tls)
    }
}

/// The private listener while it serves.
pub(super) struct PeerListener {
    task: JoinHandle<()>,
    service: Arc<PeerEndpoint>,
    stopping: CancellationToken,
}

impl PeerListener {
    /// Accepts nothing more, and waits for a moment for what is under way. Nothing lives here any more.
    ///
    /// A worker that was told before that something lives here may ask for it only now: it is told that this one stops. Where
    /// nobody listened, it could not know whether its call ran.
    pub(super) async fn stop(self) {
        let asked_at = self.service.asked_at();
        if asked_at.is_some_and(|asked_at| asked_at.elapsed() < ASKED_LATELY) {
            tokio::time::sleep(ASKED_LATE_WITHIN).await;
        }
        self.stopping.cancel();
        let _ = tokio::time::timeout(STOP_WITHIN, self.task).await;
    }
}
