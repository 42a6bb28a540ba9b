//! Parts that need no gateway: paths, parameters, rights and refusals.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

use axum::response::IntoResponse;
use http_body_util::BodyExt;
use serde_json::json;

use super::problem::Code;
use super::query::Query;
use super::rights::{self, GovernanceRight};
use super::*;
use crate::identity::Identity;
use mooring_session::names::Principal;
use mooring_settings::{AuthSettings, TrustedHeaderSettings};

#[test]
fn the_paths_do_not_stand_in_each_others_way() {
    drop(routes());
}

#[test]
fn parameters_are_known_ones_each_once() {
    let parse = |text: &str| Query::parse(text, &["limit", "user"]);
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

#[test]
fn rights_are_roles_and_an_admin_has_all() {
    let trusted = AuthSettings::TrustedHeader(TrustedHeaderSettings {
        user_header: http::HeaderName::from_static("x-user"),
        teams_header: http::HeaderName::from_static("x-teams"),
        roles_header: http::HeaderName::from_static("x-roles"),
        trusted_peers: vec!["127.0.0.1/32".parse().unwrap()],
    });
    let of = |roles: &[&str]| Identity {
        principal: Principal::parse(b"ada").unwrap(),
        teams: vec!["admin".to_owned()],
        roles: roles.iter().map(ToString::to_string).collect(),
        scopes: Vec::new(),
    };
    for right in [
        GovernanceRight::ServersRead,
        GovernanceRight::SkillsCreate,
        GovernanceRight::SkillsApprove,
        GovernanceRight::SkillsRevoke,
    ] {
        assert!(!rights::may(&trusted, &of(&[]), right), "a team is no role");
        assert!(!rights::may(&trusted, &of(&["viewer"]), right));
        assert!(rights::may(&trusted, &of(&["viewer", "admin"]), right));
        assert!(rights::may(&trusted, &of(&[right.role()]), right));
        assert!(rights::may(
            &AuthSettings::None,
            &Identity::of(Principal::local()),
            right
        ));
    }
    assert!(!rights::may(
        &trusted,
        &of(&["skills.create"]),
        GovernanceRight::SkillsApprove
    ));
    assert!(!rights::is_admin(&trusted, &of(&["skills.approve"])));
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
