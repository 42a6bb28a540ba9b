//! Parts that need no gateway: paths, parameters, rights and refusals.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

use axum::response::IntoResponse;
use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::json;

use crate::http::rest::{Code, Problem, Query};

#[test]
fn the_paths_do_not_stand_in_each_others_way() {
    drop(crate::http::rest::router(crate::http::rest_routes()));
}

#[test]
fn parameters_are_known_ones_each_once() {
    let parse = |text: &str| Query::parse(text, &super::sessions::LIST_QUERY);
    let query = parse("limit=7&user=ada%40example.org").unwrap();
    assert_eq!(query.text("user"), Some("ada@example.org"));
    assert_eq!(query.limit(50, 500).unwrap(), 7);
    assert_eq!(parse("").unwrap().limit(50, 500).unwrap(), 50);
    for text in ["usr=ada", "limit=1&limit=2", "limit=1&x"] {
        assert!(parse(text).is_err(), "{text}");
    }
    for text in ["limit=0", "limit=501", "limit=x", "limit=-1", "limit="] {
        assert!(parse(text).unwrap().limit(50, 500).is_err(), "{text}");
    }
}

#[tokio::test]
async fn a_refusal_has_a_code_and_a_message() {
    let reply = Problem::no_run().into_response();
    assert_eq!(reply.status(), StatusCode::NOT_FOUND);
    let body = reply.into_body().collect().await.unwrap().to_bytes();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        body,
        json!({"error": {"code": "run_not_found", "message": "there is no such run"}})
    );
    let away = Problem::new(Code::Unavailable, "away").into_response();
    assert_eq!(away.headers()["retry-after"], "1");
}
