//! The fleet's keys, and the private listener at which peers reach this gateway.
//!
//! Processes that share an embedded store are a fleet too: their key is a file beside the store's.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mooring_session::names::WorkerId;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{ServeError, listener};
use crate::http::{CurrentApp, PeerEndpoint};
use mooring_peers::fleet::{FleetTls, KeyRing};
use mooring_peers::{self as peer, ListenerOptions, PeerClient};
use mooring_settings::{FleetKeysFile, PeerSettings};
use mooring_store::Store;

/// A peer that sent a request within this time may be about to send another.
const ASKED_LATELY: Duration = Duration::from_secs(30);
/// How long a deregistered gateway still answers peers that have just read from the store that it owns a connection.
const ASKED_LATE_WITHIN: Duration = Duration::from_millis(500);
/// Timeout for open forwarded calls after the listener was stopped.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// The fleet's keys and the private listener, if keys are configured.
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

/// The fleet's keys. A store that serves from memory is not shared, and nothing can be written beside its file: the key
/// is random then.
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

/// The port that the private listener binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerPort {
    /// The one of `worker.peer_listen`.
    Configured,
    /// A free one, for processes that run alongside others with the same settings.
    Free,
}

/// The private listener, with its certificate and address.
pub(super) struct Peers {
    listener: TcpListener,
    tls: FleetTls,
    /// Where peers reach it: `host:port`.
    pub(super) address: Box<str>,
}

impl Peers {
    /// Binds the private listener, and generates the certificate of this process.
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
        let listener = listener::bind(address).await.map_err(bind_error)?;
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

    /// Starts to serve peers.
    pub(super) fn serve(self, app: &Arc<CurrentApp>) -> PeerListener {
        let stopping = CancellationToken::new();
        let options = ListenerOptions {
            body_bytes_max: app.get().app.listen.body_bytes_max,
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

    /// The client to peers.
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
    /// Stops accepting, after a short wait for late requests. This gateway owns no connections any more.
    ///
    /// A peer that has read from the store that this gateway owns a connection may send its request only now. It gets
    /// the reply that this gateway is stopping; if the port were closed, the peer could not know whether its call ran.
    pub(super) async fn stop(self) {
        let asked_at = self.service.asked_at();
        if asked_at.is_some_and(|asked_at| asked_at.elapsed() < ASKED_LATELY) {
            tokio::time::sleep(ASKED_LATE_WITHIN).await;
        }
        self.stopping.cancel();
        let _ = tokio::time::timeout(STOP_WITHIN, self.task).await;
    }
}
