//! Questions to other gateways for what only they count.

use bytes::Bytes;
use mooring_session::names::WorkerId;

use super::super::SessionRouter;
use mooring_peers::FiguresError;

impl SessionRouter {
    /// Asks the gateway at this address for its figures.
    ///
    /// # Errors
    /// See [`FiguresError`].
    pub async fn figures_of(
        &self,
        worker: &WorkerId,
        address: &str,
        question: Bytes,
    ) -> Result<Bytes, FiguresError> {
        match &self.owned_connections().peers {
            Some(peers) => peers.ask_figures(worker, address, question).await,
            None => Err(FiguresError::NoFleetKey),
        }
    }
}
