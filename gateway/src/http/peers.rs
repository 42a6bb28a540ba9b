//! What this worker does for the others of its fleet.

use std::sync::Arc;

use http::Response;
use mooring_session::names::WorkerId;

use super::{App, legacy};
use mooring_peers::PeerService;
use mooring_peers::fleet::{Forward, Operation, Verdict};
use mooring_upstream::Body;

/// This worker, as the others see it.
#[derive(Debug)]
pub struct Colleague(pub Arc<App>);

impl PeerService for Colleague {
    type Body = Body;

    async fn serve(&self, from: WorkerId, forward: Forward) -> Result<Response<Body>, Verdict> {
        tracing::trace!(%from, ?forward, "another worker asks");
        match forward.operation {
            Operation::Stream => legacy::serve_forward(&self.0, forward).await,
            Operation::Serve | Operation::Renew | Operation::Close => {
                self.0.affinity.serve_forward(forward).await
            }
        }
    }
}
