//! A route of the REST interface: what the router serves and what the OpenAPI document says of it, in one place.
//!
//! Invariant: the router is built from these rows alone, so that no route is without its description.

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::middleware::from_fn;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::{Method, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::frame;
use super::problem::{Code, Problem};
use super::query::QueryParameter;
use crate::http::app::App;
use mooring_settings::Right;

/// Makes the schema of a type.
pub(in crate::http) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The field of a body, or the parameter, by which an act only says what it would do.
pub(in crate::http) const PREVIEW: &str = "preview";

/// Whether a route is a tool of servers of kind `admin` too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum RouteTool {
    /// Nobody has decided; a test refuses it.
    Undecided,
    /// It is none.
    No,
    /// It reads.
    Read(&'static str),
    /// It changes something, and can say before what that is: see [`PREVIEW`].
    Act(&'static str, ActHints),
}

/// The annotations of the tool of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) struct ActHints {
    /// It may take something away that does not come back.
    pub(in crate::http) is_destructive: bool,
    /// Doing it again changes nothing more.
    pub(in crate::http) is_idempotent: bool,
}

impl ActHints {
    /// It can be taken back, and doing it again changes nothing more.
    pub(in crate::http) const REVERSIBLE: Self = Self {
        is_destructive: false,
        is_idempotent: true,
    };
    /// It takes something away, and doing it again changes nothing more.
    pub(in crate::http) const DESTRUCTIVE: Self = Self {
        is_destructive: true,
        is_idempotent: true,
    };
}

/// One method of one path.
#[derive(Debug)]
pub(in crate::http) struct RestRoute {
    pub(in crate::http) method: Method,
    pub(in crate::http) path: &'static str,
    /// What it does, in a sentence.
    pub(in crate::http) about: &'static str,
    /// The right that it needs; none where every caller may use it, or where it depends on what is asked for.
    pub(in crate::http) right: Option<Right>,
    pub(in crate::http) query: &'static [QueryParameter],
    pub(in crate::http) body: Option<SchemaOf>,
    pub(super) status: StatusCode,
    pub(in crate::http) reply: SchemaOf,
    pub(in crate::http) tool: RouteTool,
    pub(in crate::http) handler: MethodRouter<Arc<App>>,
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
            tool: RouteTool::Undecided,
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

    /// It is a tool of this name, which reads.
    pub(in crate::http) fn reading_tool(mut self, name: &'static str) -> Self {
        self.tool = RouteTool::Read(name);
        self
    }

    /// It is a tool of this name, which changes something.
    pub(in crate::http) fn acting_tool(mut self, name: &'static str, hints: ActHints) -> Self {
        self.tool = RouteTool::Act(name, hints);
        self
    }

    /// It is no tool.
    pub(in crate::http) fn no_tool(mut self) -> Self {
        self.tool = RouteTool::No;
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
    router
        .method_not_allowed_fallback(not_allowed)
        .layer(from_fn(frame::serve))
}

async fn not_allowed() -> Problem {
    Problem::new(Code::MethodNotAllowed, "this path takes another method")
}
