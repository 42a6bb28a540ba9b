//! Serves requests that peers forward.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderValue;
use http::header::ORIGIN;
use http_body_util::BodyExt;

use super::app::App;
use super::current_app::CurrentApp;
use super::reply::to_http;
use super::request_fields::read_fields_for_stream;
use mooring_admin::answer_figures;
use mooring_peers::{Forward, Operation, PeerService, Verdict};
use mooring_pipeline::answer;
use mooring_pipeline::legacy::{RIGHTS, StreamMessage};
use mooring_protocol::{ErrorKind, Reply};
use mooring_traces::{Span, in_scope};
use mooring_usage::{ChargeEnd, for_same_user};

/// The endpoint for peers.
#[derive(Debug)]
pub struct PeerEndpoint {
    app: Arc<CurrentApp>,
    asked_at: Mutex<Option<Instant>>,
}

impl PeerEndpoint {
    /// An endpoint without requests so far.
    #[must_use]
    pub const fn new(app: Arc<CurrentApp>) -> Self {
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

/// The span of a request that the peer traces. A message to a stream begins its own where it is served.
fn begin_span(app: &App, forward: &Forward) -> Span {
    let tracer = app.core.request_log.tracer();
    let traced = tracer.zip(forward.trace_context());
    match traced {
        Some((tracer, parent)) if forward.operation != Operation::Stream => {
            let now = SystemTime::now();
            let mut span = tracer.begin_request(Some(&parent), "forward", now).span;
            forward.describe(&mut span);
            span
        }
        _ => Span::default(),
    }
}

impl PeerEndpoint {
    /// Delivers a message to a stream of this gateway, also if the peer disconnects meanwhile.
    async fn deliver(app: &App, forward: Forward) -> Result<Reply, Verdict> {
        let store = app.core.session_router.store();
        let rights = forward.headers.get(RIGHTS).map(HeaderValue::to_str);
        let Some(Ok(rights)) = rights else {
            return Err(Verdict::NotHere);
        };
        let mut fields = read_fields_for_stream(&forward.headers);
        fields.is_from_foreign_page = forward.headers.contains_key(ORIGIN);
        let message = StreamMessage {
            key: (store.key_named(&forward.session_key)).ok_or(Verdict::NotHere)?,
            principal: forward.principal,
            rights: rights.to_owned(),
            server: forward.server,
            epoch: Some(forward.epoch),
            fields,
            body: forward.body,
        };
        let clients = app.legacy.clone();
        let delivering = tokio::spawn(for_same_user(
            async move { clients.deliver_here(message).await },
        ));
        let delivered = delivering.await;
        Ok(delivered.unwrap_or_else(|_| answer::plain(ErrorKind::Internal, None)))
    }
}

impl PeerService for PeerEndpoint {
    type Body = Body;

    fn figures(&self, question: &[u8]) -> Option<Bytes> {
        answer_figures(&self.app.get().app.core, question)
    }

    async fn serve(&self, forward: Forward) -> Result<Response, Verdict> {
        tracing::trace!(?forward, "peer request");
        *self.asked_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        let served = self.app.get();
        let app = &served.app;
        let usage = app.core.usages.of(&forward.principal);
        usage.charge_task().await;
        let mut span = begin_span(app, &forward);
        let reply = match forward.operation {
            Operation::Stream => Self::deliver(app, forward).await,
            Operation::Serve | Operation::Renew | Operation::Move | Operation::Close => {
                let serving = app.core.session_router.serve_forward(forward);
                in_scope(span.scope(), serving).await
            }
        };
        if let Err(verdict) = &reply {
            span.fail(<&'static str>::from(verdict));
        }
        let charge = (ChargeEnd, span);
        reply.map(|reply| {
            to_http(reply).map(|body| {
                // Both end with the body.
                Body::new(body.map_frame(move |frame| {
                    let (ChargeEnd, _) = &charge;
                    frame
                }))
            })
        })
    }
}
