//! What a request leaves behind: its id, its figures, and the settings that a refusal names.

use axum::body::Body;
use http::{Method, Request};
use serde_json::json;

use super::{Answer, Gateway, post, request};

#[tokio::test]
async fn a_request_keeps_a_valid_id_and_gets_one_otherwise() {
    let gateway = Gateway::start().await;
    let id_of = async |given: Option<&'static str>| {
        let mut request = post("a", None);
        if let Some(given) = given {
            request = request.header("x-request-id", given);
        }
        let body = Body::from(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        let answer = Answer::read(gateway.send(request.body(body).unwrap()).await).await;
        answer.header("x-request-id").unwrap().to_owned()
    };
    assert_eq!(id_of(Some("trace-1/a:b")).await, "trace-1/a:b");
    for given in [None, Some("two words"), Some("quo\"te")] {
        let made = id_of(given).await;
        assert!(made.len() == 32 && made != id_of(given).await, "{made}");
    }
}

#[tokio::test]
async fn the_busiest_session_and_user_are_shown_by_digest() {
    let gateway = Gateway::start().await;
    let (loud, quiet) = (gateway.open("a").await, gateway.open("a").await);
    for _ in 0..5 {
        gateway.echo("a", &loud, json!({})).await;
    }
    gateway.echo("a", &quiet, json!({})).await;
    gateway.call("a", "not-a-session", "echo", json!({})).await;
    let top = Request::builder().method(Method::GET).uri("/top");
    let top = top.header("host", "localhost").body(Body::empty()).unwrap();
    let top = Answer::read(gateway.send(top).await).await;
    let figures = top.json();
    let user = &figures["users"][0]["figures"];
    // Two of initialize, six calls, and one that is refused.
    assert_eq!((&user["calls"], &user["refused"]), (&json!(9), &json!(1)));
    let session = &figures["sessions"][0];
    assert_eq!(session["figures"]["calls"], 6, "{figures}");
    assert_eq!(session["server"], "a");
    assert_eq!(session["session"].as_str().unwrap().len(), 16);
    assert!(!top.text.contains(&loud), "an id is a secret");
}

#[tokio::test]
async fn a_host_or_origin_that_is_refused_is_told_the_setting() {
    let gateway = Gateway::start().await;
    let refused = async |name: &'static str, value: &'static str| {
        let message = request(1, "ping", json!({})).to_string();
        let mut request = post("a", None).body(Body::from(message)).unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
        Answer::read(gateway.send(request).await).await
    };
    let answer = refused("host", "evil.example").await;
    assert_eq!(answer.status, 421);
    assert!(
        answer.text.contains("listen.allowed_hosts"),
        "{}",
        answer.text
    );
    let answer = refused("origin", "https://evil.example").await;
    assert_eq!(answer.status, 403);
    assert!(
        answer.text.contains("listen.allowed_origins"),
        "{}",
        answer.text
    );
}
