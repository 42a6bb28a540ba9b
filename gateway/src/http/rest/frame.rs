//! What every request of the REST interface has around it: an id, which its reply and its audit line have too.
//!
//! Invariant: an act that has begun runs to its end, also if its caller leaves: none is cut off between two sessions, and none
//! is without its audit line.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method};

use super::problem::Problem;
use crate::http::detachable_future::DetachableFuture;
use mooring_pipeline::RequestEntry;
use mooring_protocol::header::X_REQUEST_ID;

/// The id of a request: its sender's, or one that was made for it.
#[derive(Clone, Debug)]
pub(super) struct RequestId(HeaderValue);

impl RequestId {
    /// As in audit lines.
    pub(super) fn text(&self) -> Box<str> {
        self.0.to_str().unwrap_or_default().into()
    }
}

/// Serves a request of the REST interface.
pub(super) async fn serve(mut request: Request, next: Next) -> Response {
    let id = RequestEntry::id_of(request.headers().get(X_REQUEST_ID));
    request.extensions_mut().insert(RequestId(id.clone()));
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let serving = next.run(request);
    let mut reply = match is_read {
        true => serving.await,
        false => {
            let served = DetachableFuture::new(serving).await;
            served.unwrap_or_else(|| Problem::internal().into_response())
        }
    };
    reply.headers_mut().insert(X_REQUEST_ID, id);
    reply
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn;
    use axum::routing::post;
    use tokio::sync::oneshot;
    use tower::ServiceExt;

    use super::*;

    /// The parts of an act that is held in its middle.
    struct HeldAct {
        routes: Router,
        has_begun: oneshot::Receiver<()>,
        goes_on: oneshot::Sender<()>,
        is_done: oneshot::Receiver<()>,
    }

    impl HeldAct {
        fn new() -> Self {
            let (begun, has_begun) = oneshot::channel();
            let (goes_on, waited) = oneshot::channel::<()>();
            let (done, is_done) = oneshot::channel();
            let once = Arc::new(Mutex::new(Some((begun, waited, done))));
            let act = async move || {
                let (begun, waited, done) = once.lock().unwrap().take().unwrap();
                begun.send(()).unwrap();
                waited.await.unwrap();
                done.send(()).unwrap();
            };
            Self {
                routes: Router::new().route("/act", post(act)).layer(from_fn(serve)),
                has_begun,
                goes_on,
                is_done,
            }
        }
    }

    fn act(id: &str) -> Request {
        let request = Request::post("/act").header(X_REQUEST_ID, id);
        request.body(Body::empty()).unwrap()
    }

    #[tokio::test]
    async fn an_act_runs_to_its_end_without_its_caller() {
        let held = HeldAct::new();
        let mut serving = Box::pin(held.routes.oneshot(act("one")));
        tokio::select! {
            _ = &mut serving => unreachable!("it is held"),
            begun = held.has_begun => begun.unwrap(),
        }
        drop(serving);
        held.goes_on.send(()).unwrap();
        held.is_done.await.unwrap();
    }

    #[tokio::test]
    async fn a_reply_has_the_id_of_its_request() {
        let held = HeldAct::new();
        held.goes_on.send(()).unwrap();
        let reply = held.routes.clone().oneshot(act("one")).await.unwrap();
        assert_eq!(reply.headers().get(X_REQUEST_ID).unwrap(), "one");
        let refused = held
            .routes
            .oneshot(Request::get("/act").body(Body::empty()).unwrap());
        assert!(refused.await.unwrap().headers().contains_key(X_REQUEST_ID));
    }
}
