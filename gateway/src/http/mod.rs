//! The HTTP surface: paths, the checks of every request, and statuses.
//!
//! Invariant: a request that fails a check reaches neither the store nor an upstream.

mod admin;
mod app;
mod caller;
mod challenge;
mod continuity_keys;
mod cors;
mod current_app;
mod detachable_future;
mod endpoint;
mod governance;
mod health;
mod host_origin_guard;
mod legacy;
mod operator_page;
mod operator_tools;
mod peers;
mod priming;
mod reply;
mod request_body;
mod request_fields;
mod rest;
mod stranger_rate;
#[cfg(test)]
mod tests;
mod ui;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware;
use axum::response::Response;
use axum::routing::{any, get};
use bytes::Bytes;
use http::{Method, StatusCode};

pub use self::app::App;
use self::caller::RequestSender;
pub use self::current_app::{CurrentApp, ServedApp};
pub use self::operator_page::OperatorPage;
pub use self::operator_tools::RestTools;
pub use self::peers::PeerEndpoint;
pub use self::request_body::RequestBodies;
use self::rest::{OPENAPI_PATH, OpenApi, reference_page};
pub use self::stranger_rate::StrangerRates;
use mooring_identity::Peer;
use mooring_pipeline::{LatestSession, answer};
use mooring_protocol::ErrorKind;
use tower::Service;

/// Every path that a connection serves. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Routes {
    /// None for a connection beyond the limit, which has no endpoints.
    app: Option<Arc<App>>,
    router: Router,
}

impl Routes {
    /// The peer of a new connection, with the certificate, in DER, that the listener has verified.
    pub fn peer(&self, address: SocketAddr, certificate: Option<&[u8]>) -> Peer {
        match &self.app {
            Some(app) => app.authenticator.peer(address, certificate),
            None => Peer::at(address),
        }
    }

    /// Serves one request of this peer, whose connection has named `latest_session` last. A POST to an MCP endpoint is
    /// served without the router, whose layers and extensions cost more than the checks of the request.
    pub async fn serve(
        &self,
        peer: Peer,
        latest_session: Arc<LatestSession>,
        mut request: Request,
    ) -> Response {
        let sender = RequestSender::over(peer, latest_session);
        if let Some(app) = &self.app
            && request.method() == Method::POST
            && endpoint::plain_id(request.uri().path()).is_some()
        {
            let serve = async |request: Request| {
                let (head, body) = request.into_parts();
                let id = endpoint::plain_id(head.uri.path()).flatten();
                endpoint::serve(app, id, &sender, &head, body).await
            };
            let response = host_origin_guard::guard(app, request, serve).await;
            return self.in_time(&sender, response).await;
        }
        let sender = Arc::new(sender);
        request.extensions_mut().insert(Arc::clone(&sender));
        match Box::pin(self.router.clone().call(request)).await {
            Ok(response) => self.in_time(&sender, response).await,
            Err(never) => match never {},
        }
    }

    /// Returns the response; to an unauthenticated sender, once the rate limit permits it.
    async fn in_time(&self, sender: &RequestSender, response: Response) -> Response {
        if !sender.is_admitted()
            && let Some(app) = &self.app
            && let Some(rates) = &app.stranger_rates
        {
            let stopping = &app.core.relay.stopping;
            return Box::pin(rates.delay(sender.peer.address.ip(), response, stopping)).await;
        }
        response
    }
}

/// The routes.
pub fn routes(app: Arc<App>) -> Routes {
    Routes {
        router: router(Arc::clone(&app)),
        app: Some(app),
    }
}

fn router(app: Arc<App>) -> Router {
    let guarded = Router::new()
        .route("/mcp", any(endpoint::mcp))
        .route("/servers/{id}/mcp", any(endpoint::mcp))
        .route("/sse", any(legacy::stream))
        .route("/messages", any(legacy::messages))
        .route("/servers/{id}/sse", any(legacy::stream))
        .route("/servers/{id}/messages", any(legacy::messages))
        .route(challenge::METADATA_PATH, get(challenge::metadata))
        .route(
            &format!("{}/{{*path}}", challenge::METADATA_PATH),
            get(challenge::metadata),
        )
        .merge(rest_router())
        .merge(ui::routes(&app))
        .fallback(endpoint::unknown_path)
        .layer(middleware::from_fn_with_state(
            Arc::clone(&app),
            host_origin_guard::check,
        ));
    probe_routes().merge(guarded).with_state(app)
}

/// Every route of the REST interface.
fn rest_routes() -> Vec<rest::RestRoute> {
    [governance::routes(), admin::routes()]
        .into_iter()
        .flatten()
        .collect()
}

/// The REST interface and its description.
fn rest_router() -> Router<Arc<App>> {
    let routes = rest_routes();
    let document: Bytes = OpenApi::of(&routes).to_text().into();
    let description = get(async move || reply::json(StatusCode::OK, document));
    rest::router(routes).route(OPENAPI_PATH, description)
}

/// The OpenAPI document of the REST interface.
#[must_use]
pub fn openapi() -> String {
    OpenApi::of(&rest_routes()).to_text()
}

/// The reference page of the REST interface.
#[must_use]
pub fn rest_reference() -> String {
    reference_page(&OpenApi::of(&rest_routes()))
}

/// The routes of a connection beyond the limit: health probes and metrics; every other path returns 503.
pub fn probe_only_routes(app: Arc<App>) -> Routes {
    Routes {
        app: None,
        router: probe_routes().fallback(full).with_state(app),
    }
}

/// Not subject to the host check: probes, scrapers and upstream servers use the address of a container, which the gateway
/// cannot know. Their replies contain neither sessions nor secrets.
fn probe_routes() -> Router<Arc<App>> {
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
        .route("/top", get(health::top))
        .route("/.well-known/jwks.json", get(health::signing_keys))
        .route_layer(middleware::map_response(async |reply: Response| {
            stranger_rate::public(reply)
        }))
}

async fn full() -> Response {
    reply::to_http(answer::detailed(
        ErrorKind::Overloaded,
        None,
        "it has as many connections as listen.connections_max allows",
    ))
}
