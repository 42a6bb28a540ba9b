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
        return Err(Problem::new(
            Code::UnsupportedMediaType,
            "the Content-Type must be application/json",
        ));
    }
    parse(&bytes)
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
