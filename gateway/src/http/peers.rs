//! Serves requests that peers forward.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::body::Body;
use axum::response::Response;
use http_body_util::BodyExt;

use super::reply::to_http;
use super::{App, legacy};
use mooring_peers::{Forward, Operation, PeerService, Verdict};
use mooring_usage::ChargeEnd;

/// The endpoint for peers.
#[derive(Debug)]
pub struct PeerEndpoint {
    app: Arc<App>,
    asked_at: Mutex<Option<Instant>>,
}

impl PeerEndpoint {
    /// An endpoint without requests so far.
    #[must_use]
    pub const fn new(app: Arc<App>) -> Self {
        Self {
            app,
            asked_at: Mutex::new(None),
        }
    }

    /// When a peer last sent a request.
    #[must_use]
    pub fn asked_at(&self) -> Option<Instant> {
        *self.asked_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PeerService for PeerEndpoint {
    type Body = Body;

    async fn serve(&self, forward: Forward) -> Result<Response, Verdict> {
        tracing::trace!(?forward, "peer request");
        *self.asked_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.app.usages.of(&forward.principal).charge_task().await;
        let reply = match forward.operation {
            Operation::Stream => legacy::serve_forward(&self.app, forward).await,
            Operation::Serve | Operation::Renew | Operation::Close => {
                self.app.session_router.serve_forward(forward).await
            }
        };
        let charge = ChargeEnd;
        reply.map(|reply| {
            to_http(reply).map(|body| {
                // It ends with the body.
                Body::new(body.map_frame(move |frame| {
                    let ChargeEnd = &charge;
                    frame
                }))
            })
        })
    }
}
