//! The body of a request: JSON of a known schema.

use axum::extract::Request;
use serde::de::DeserializeOwned;

use super::problem::{Code, Problem};
use crate::http::app::App;
use crate::http::host_origin_guard;
use crate::http::request_body::RequestBodyError;
use mooring_identity::Identity;

/// Parses the body of this user's request as JSON; an empty body is an empty object.
pub(in crate::http) async fn read<T: DeserializeOwned>(
    app: &App,
    user: &Identity,
    request: Request,
) -> Result<T, Problem> {
    let (head, body) = request.into_parts();
    let usage = app.core.usages.of(&user.principal);
    let read = app.request_bodies.read(body, usage.messages()).await;
    let bytes = read.map_err(unread)?;
    if bytes.is_empty() {
        return parse(b"{}");
    }
    if !host_origin_guard::is_json(&head.headers) {
        return Err(not_json());
    }
    parse(&bytes)
}

/// The same, and the Content-Type has to be JSON whether or not there is a body: a browser sends no such request for a page
/// of another origin without asking first.
pub(in crate::http) async fn read_json<T: DeserializeOwned>(
    app: &App,
    user: &Identity,
    request: Request,
) -> Result<T, Problem> {
    if !host_origin_guard::is_json(request.headers()) {
        return Err(not_json());
    }
    read(app, user, request).await
}

fn not_json() -> Problem {
    Problem::new(
        Code::UnsupportedMediaType,
        "the Content-Type must be application/json",
    )
}

fn unread(error: RequestBodyError) -> Problem {
    let code = match error {
        RequestBodyError::TooLarge(_) => Code::BodyTooLarge,
        RequestBodyError::OverBudget(_) => Code::Unavailable,
        RequestBodyError::TimedOut | RequestBodyError::Broken => Code::InvalidBody,
    };
    Problem::new(code, error.to_string())
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes)
        .map_err(|error| Problem::new(Code::InvalidBody, error.to_string()))
}
