//! The fleet's side of a worker: its keys, and the private listener by which the others reach it.

use std::net::SocketAddr;
use std::sync::Arc;

use mooring_session::names::WorkerId;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::ServeError;
use crate::fleet::{Gate, KeyRing};
use crate::http::Colleague;
use crate::peer::{self, ListenerOptions, PeerClient};
use crate::settings::{FleetKeysFile, PeerSettings};

/// The keys of the fleet, where there are some.
pub(super) fn key_ring(settings: &PeerSettings) -> Result<Option<KeyRing>, ServeError> {
    let read = match &settings.fleet_keys_file {
        Some(FleetKeysFile::Given(path)) => KeyRing::read(path),
        Some(FleetKeysFile::BesideStore(path)) => KeyRing::read_or_generate(path),
        None => return Ok(None),
    };
    read.map(Some).map_err(|error| ServeError::Unavailable {
        service: "the keys of the fleet".to_owned(),
        reason: error.to_string(),
    })
}

/// The private listener, and how its worker is told from others.
pub(super) struct Peers {
    pub(super) listener: TcpListener,
    pub(super) gate: Arc<Gate>,
    /// What the others are told.
    pub(super) address: Box<str>,
}

impl Peers {
    /// Binds the private listener.
    pub(super) async fn bind(
        settings: &PeerSettings,
        worker: &WorkerId,
        ring: &KeyRing,
    ) -> Result<Self, ServeError> {
        let bind_error = |source| ServeError::Bind {
            address: settings.listen,
            source,
        };
        let listener = TcpListener::bind(settings.listen)
            .await
            .map_err(bind_error)?;
        let bound: SocketAddr = listener.local_addr().map_err(bind_error)?;
        let address = match &settings.advertise {
            Some(address) => address.as_str().into(),
            None => bound.to_string().into(),
        };
        Ok(Self {
            listener,
            gate: Arc::new(Gate::new(worker.clone(), ring)),
            address,
        })
    }

    /// Serves the others until `no_more`, messages of at most `message_bytes_max`.
    pub(super) async fn listen(
        self,
        service: Arc<Colleague>,
        message_bytes_max: usize,
        no_more: CancellationToken,
    ) {
        let options = ListenerOptions {
            body_bytes_max: u64::try_from(message_bytes_max).unwrap_or(u64::MAX),
        };
        peer::listen(self.listener, self.gate, service, options, no_more).await;
    }

    /// How this worker reaches the others.
    pub(super) fn client(&self) -> PeerClient {
        PeerClient::new(Arc::clone(&self.gate))
    }
}
