//! The context of every request here: the caller, the parts of the path, and the operators' side of this gateway.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::response::Response;
use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http::app::App;
use crate::http::reply::json_value;
use crate::http::rest::{Code, Problem, Query, QueryParameter, identify, read_json};
use crate::reload::ReloadHandle;
use mooring_admin::{Operator, OperatorIdentity};
use mooring_pipeline::RequestEntry;
use mooring_protocol::header::X_REQUEST_ID;

/// A request of an authenticated caller, who may be an operator.
pub(super) struct AdminContext {
    pub(super) operator: Operator,
    pub(super) identity: OperatorIdentity,
    app: Arc<App>,
    query: String,
    path: Vec<String>,
    request_id: HeaderValue,
}

impl FromRequestParts<Arc<App>> for AdminContext {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        if parts.method != Method::GET && !is_same_origin(parts) {
            let message = "an act is accepted from pages of this gateway only";
            return Err(Problem::new(Code::Forbidden, message));
        }
        let (sender, identity) = identify(parts, app).await?;
        sender.admit();
        let params = RawPathParams::from_request_parts(parts, app)
            .await
            .map_err(|_| Problem::new(Code::InvalidQuery, "the path is not UTF-8"))?;
        let log = &app.core.request_log;
        let request_id = RequestEntry::begin(log, parts.headers.get(X_REQUEST_ID))
            .id()
            .clone();
        Ok(Self {
            operator: app.operator(),
            identity: OperatorIdentity {
                identity,
                request_id: request_id.to_str().unwrap_or_default().into(),
            },
            path: params.iter().map(|(_, value)| value.to_owned()).collect(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            app: Arc::clone(app),
            request_id,
        })
    }
}

impl AdminContext {
    /// The part of the path in the braces with this number.
    pub(super) fn path_part(&self, number: usize) -> &str {
        self.path.get(number).map_or("", String::as_str)
    }

    /// Asks for reloads of this gateway's settings.
    pub(super) fn reloads(&self) -> Result<&ReloadHandle, Problem> {
        let unavailable = || Problem::new(Code::Unavailable, "this process cannot reload settings");
        self.app.reloads.as_ref().ok_or_else(unavailable)
    }

    /// Writes the audit line of an act.
    pub(super) fn audit<T, E>(&self, act: &'static str, subject: &str, result: &Result<T, E>) {
        let outcome = match result {
            Ok(_) => "done",
            Err(_) => "refused",
        };
        self.operator.audit(&self.identity, act, subject, outcome);
    }

    /// The query parameters; only those of `known` are accepted.
    pub(super) fn query(&self, known: &[QueryParameter]) -> Result<Query, Problem> {
        Query::parse(&self.query, known)
    }

    /// The body of an act.
    pub(super) async fn body<T: DeserializeOwned>(&self, request: Request) -> Result<T, Problem> {
        self.query(&[])?;
        read_json(&self.app, &self.identity.identity, request).await
    }

    /// The reply with this view.
    pub(super) fn reply(&self, view: &impl Serialize) -> Response {
        let mut reply = json_value(StatusCode::OK, view);
        let headers = reply.headers_mut();
        headers.insert(X_REQUEST_ID, self.request_id.clone());
        reply
    }
}

/// Whether the request is from no page, or from one of the origin that it is sent to. The host and origin guard allows pages
/// of other origins, for MCP clients in browsers.
fn is_same_origin(parts: &Parts) -> bool {
    let text = |headers: &HeaderMap, name| {
        let value: Option<&HeaderValue> = headers.get(name);
        value.and_then(|value| value.to_str().ok().map(str::to_owned))
    };
    if !parts.headers.contains_key(ORIGIN) {
        return true;
    }
    let authority = parts.uri.authority().map(ToString::to_string);
    let host = authority.or_else(|| text(&parts.headers, HOST));
    let origin = text(&parts.headers, ORIGIN);
    let origin = origin
        .as_deref()
        .and_then(|origin| origin.split_once("://"));
    origin
        .zip(host)
        .is_some_and(|((_, origin), host)| origin.eq_ignore_ascii_case(&host))
}
