//! The context of every request here: the caller, the parts of the path, and the operators' side of this gateway.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::response::Response;
use http::request::Parts;
use http::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http::app::App;
use crate::http::host_origin_guard;
use crate::http::reply::json_value;
use crate::http::rest::{
    Code, PREVIEW, Problem, Query, QueryParameter, ToolCaller, identify, read_json,
};
use crate::reload::ReloadHandle;
use mooring_admin::{Operator, OperatorIdentity};

/// The parameter of acts whose body has no room for it.
pub(super) const PREVIEW_QUERY: [QueryParameter; 1] = [QueryParameter::new(
    PREVIEW,
    "`true`: only check it, and say what would change",
)];

/// A request of an authenticated caller, who may be an operator.
pub(super) struct AdminContext {
    pub(super) operator: Operator,
    pub(super) identity: OperatorIdentity,
    app: Arc<App>,
    query: String,
    path: Vec<String>,
}

impl FromRequestParts<Arc<App>> for AdminContext {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        // The request of a tool has not the headers of the call.
        let is_own = match parts.extensions.get::<ToolCaller>() {
            Some(caller) => !caller.is_from_foreign_page,
            None => host_origin_guard::is_from_own_page(app, &parts.headers, &parts.uri),
        };
        if parts.method != Method::GET && !is_own {
            let message = "an act is accepted from pages of this gateway only";
            return Err(Problem::new(Code::Forbidden, message));
        }
        let caller = identify(parts, app).await?;
        caller.admit();
        let params = RawPathParams::from_request_parts(parts, app)
            .await
            .map_err(|_| Problem::new(Code::InvalidQuery, "the path is not UTF-8"))?;
        Ok(Self {
            operator: app.operator(),
            identity: caller.operator,
            path: params.iter().map(|(_, value)| value.to_owned()).collect(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            app: Arc::clone(app),
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

    /// Whether the act is only to say what it would do. It knows no other parameter.
    pub(super) fn is_preview(&self) -> Result<bool, Problem> {
        let query = self.query(&PREVIEW_QUERY)?;
        let is_preview = query.read(PREVIEW, "true or false", |text| text.parse().ok())?;
        Ok(is_preview.unwrap_or(false))
    }

    /// The body of an act.
    pub(super) async fn body<T: DeserializeOwned>(&self, request: Request) -> Result<T, Problem> {
        self.query(&[])?;
        self.definition(request).await
    }

    /// The body of an act that has its preview among the parameters.
    pub(super) async fn definition<T: DeserializeOwned>(
        &self,
        request: Request,
    ) -> Result<T, Problem> {
        read_json(&self.app, &self.identity.identity, request).await
    }

    /// The reply with this view.
    pub(super) fn reply(&self, view: &impl Serialize) -> Response {
        json_value(StatusCode::OK, view)
    }
}
