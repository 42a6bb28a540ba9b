//! What every part of the REST interface shares: the table of routes, from which the router and the OpenAPI document are
//! made; the caller, parameters and body of a request; and errors.

mod body;
mod frame;
mod identify;
mod openapi;
mod problem;
mod query;
mod reference;
mod route;

pub(super) use self::body::read as read_body;
pub(super) use self::body::read_json;
pub(super) use self::identify::{ToolCaller, identify};
pub(super) use self::openapi::{OPENAPI_PATH, OpenApi};
pub(super) use self::problem::{Code, Problem};
pub(super) use self::query::{Query, QueryParameter};
pub(super) use self::reference::reference_page;
pub(super) use self::route::{ActHints, PREVIEW, RestRoute, RouteTool, SchemaOf, router};
