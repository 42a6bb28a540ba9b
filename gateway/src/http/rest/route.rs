//! A route of the REST interface: what the router serves and what the OpenAPI document says of it, in one place.
//!
//! Invariant: the router is built from these rows alone, so that no route is without its description.

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::{Method, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::problem::{Code, Problem};
use super::query::QueryParameter;
use crate::http::app::App;
use mooring_settings::Right;

/// Makes the schema of a type.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// One method of one path.
#[derive(Debug)]
pub(in crate::http) struct RestRoute {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// What it does, in a sentence.
    pub(super) about: &'static str,
    /// The right that it needs; none where every caller may use it, or where it depends on what is asked for.
    pub(super) right: Option<Right>,
    pub(super) query: &'static [QueryParameter],
    pub(super) body: Option<SchemaOf>,
    pub(super) status: StatusCode,
    pub(super) reply: SchemaOf,
    handler: MethodRouter<Arc<App>>,
}

impl RestRoute {
    fn new<H, T>(
        method: (Method, MethodFilter),
        path: &'static str,
        about: &'static str,
        handler: H,
    ) -> Self
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        Self {
            method: method.0,
            path,
            about,
            right: None,
            query: &[],
            body: None,
            status: StatusCode::OK,
            reply: SchemaGenerator::subschema_for::<()>,
            handler: on(method.1, handler),
        }
    }

    /// A GET of this path.
    pub(in crate::http) fn get<H, T>(path: &'static str, about: &'static str, handler: H) -> Self
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        Self::new((Method::GET, MethodFilter::GET), path, about, handler)
    }

    /// A POST to this path.
    pub(in crate::http) fn post<H, T>(path: &'static str, about: &'static str, handler: H) -> Self
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        Self::new((Method::POST, MethodFilter::POST), path, about, handler)
    }

    /// A PUT to this path.
    pub(in crate::http) fn put<H, T>(path: &'static str, about: &'static str, handler: H) -> Self
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        Self::new((Method::PUT, MethodFilter::PUT), path, about, handler)
    }

    /// A PATCH of this path.
    pub(in crate::http) fn patch<H, T>(path: &'static str, about: &'static str, handler: H) -> Self
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        Self::new((Method::PATCH, MethodFilter::PATCH), path, about, handler)
    }

    /// A DELETE of this path.
    pub(in crate::http) fn delete<H, T>(path: &'static str, about: &'static str, handler: H) -> Self
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        Self::new((Method::DELETE, MethodFilter::DELETE), path, about, handler)
    }

    /// It needs this right.
    pub(in crate::http) fn needs(mut self, right: Right) -> Self {
        self.right = Some(right);
        self
    }

    /// It knows these parameters.
    pub(in crate::http) fn query(mut self, query: &'static [QueryParameter]) -> Self {
        self.query = query;
        self
    }

    /// Its body is JSON of this type.
    pub(in crate::http) fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(SchemaGenerator::subschema_for::<T>);
        self
    }

    /// Its reply is JSON of this type.
    pub(in crate::http) fn replies<T: JsonSchema>(mut self) -> Self {
        self.reply = SchemaGenerator::subschema_for::<T>;
        self
    }

    /// The status of a reply that is not an error, where it is not 200.
    pub(in crate::http) fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }
}

/// A router of these routes; the caller adds the host and origin guard.
pub(in crate::http) fn router(routes: Vec<RestRoute>) -> Router<Arc<App>> {
    let add = |router: Router<Arc<App>>, route: RestRoute| router.route(route.path, route.handler);
    let router = routes.into_iter().fold(Router::new(), add);
    router.method_not_allowed_fallback(not_allowed)
}

async fn not_allowed() -> Problem {
    Problem::new(Code::MethodNotAllowed, "this path takes another method")
}
