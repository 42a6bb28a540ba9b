//! The body of a request: JSON of a known shape, in a bounded time and size.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use super::problem::{Code, Problem};
use crate::http::{App, door};

/// How long a body may take to arrive.
const WITHIN: Duration = Duration::from_secs(30);

/// Reads the body as JSON; one without a body is an empty object.
pub(super) async fn read<T: DeserializeOwned>(app: &App, request: Request) -> Result<T, Problem> {
    let (head, body) = request.into_parts();
    let bytes = bytes(app, body).await?;
    if bytes.is_empty() {
        return parse(b"{}");
    }
    if !door::is_json(&head.headers) {
        return Err(Problem::new(
            Code::UnsupportedMediaType,
            "the Content-Type must be application/json",
        ));
    }
    parse(&bytes)
}

async fn bytes(app: &App, body: Body) -> Result<bytes::Bytes, Problem> {
    let limit = app.listen.body_bytes_max;
    let arrived = tokio::time::timeout(WITHIN, Limited::new(body, limit).collect());
    match arrived.await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(cause)) if cause.is::<LengthLimitError>() => {
            let message = format!("the body has at most {limit} bytes");
            Err(Problem::new(Code::BodyTooLarge, message))
        }
        Ok(Err(_)) | Err(_) => Err(Problem::new(Code::InvalidBody, "the body did not arrive")),
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes)
        .map_err(|error| Problem::new(Code::InvalidBody, error.to_string()))
}
