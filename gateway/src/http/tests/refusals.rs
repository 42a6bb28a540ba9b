//! Requests that are refused: their status, their error code, and that no upstream hears of them.

use axum::body::Body;
use http::{Method, Request};
use serde_json::json;

use super::{Answer, Gateway, post, request};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// One request that is refused, and how.
struct Refusal {
    what: &'static str,
    request: http::request::Builder,
    body: String,
    status: u16,
    /// The code of the JSON-RPC error.
    code: i64,
}

fn refusal(
    what: &'static str,
    request: http::request::Builder,
    body: impl Into<String>,
    (status, code): (u16, i64),
) -> Refusal {
    Refusal {
        what,
        request,
        body: body.into(),
        status,
        code,
    }
}

/// The same request with another value of a header; none where it is empty.
fn with(
    request: http::request::Builder,
    name: &'static str,
    value: &str,
) -> http::request::Builder {
    let mut request = request;
    let headers = request.headers_mut().unwrap();
    headers.remove(name);
    match value {
        "" => request,
        value => request.header(name, value),
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_said_before_anything_is_done() {
    let gateway = Gateway::start().await;
    let a = || post("a", None);
    let of = |method: Method, uri: &str| {
        Request::builder()
            .method(method)
            .uri(uri)
            .header("host", "localhost")
    };
    let table = [
        refusal("another method", of(Method::PUT, "/mcp"), "", (405, -32000)),
        refusal(
            "no such path",
            of(Method::GET, "/nowhere"),
            "",
            (404, -32004),
        ),
        refusal("no such server", post("none", None), PING, (404, -32004)),
        refusal(
            "a form",
            with(a(), "content-type", "text/plain"),
            PING,
            (415, -32000),
        ),
        refusal(
            "no events",
            with(a(), "accept", "application/json"),
            PING,
            (406, -32000),
        ),
        refusal(
            "a GET without events",
            of(Method::GET, "/mcp"),
            "",
            (406, -32000),
        ),
        refusal("no session", a(), PING, (400, -32000)),
        refusal(
            "an unknown session",
            post("a", Some("made-up")),
            PING,
            (404, -32001),
        ),
        refusal("no JSON", a(), "{", (400, -32700)),
        refusal("no message", a(), "{}", (400, -32600)),
        refusal(
            "an unknown revision",
            with(a(), "mcp-protocol-version", "1999-01-01"),
            PING,
            (400, -32022),
        ),
        refusal("a batch of today", a(), format!("[{PING}]"), (400, -32600)),
        refusal("a long body", a(), " ".repeat(1 << 21), (413, -32000)),
        refusal(
            "another host",
            with(a(), "host", "evil.example"),
            PING,
            (421, -32000),
        ),
        refusal(
            "another origin",
            a().header("origin", "https://evil.example"),
            PING,
            (403, -32000),
        ),
        refusal(
            "an initialize without params",
            a(),
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#,
            (400, -32602),
        ),
    ];
    let mut wrong = Vec::new();
    for Refusal {
        what,
        request,
        body,
        status,
        code,
    } in table
    {
        let response = gateway.send(request.body(Body::from(body)).unwrap()).await;
        let answer = Answer::read(response).await;
        let got = (answer.status.as_u16(), answer.error_code());
        if got != (status, code) {
            wrong.push(format!(
                "{what}: {got:?} for {:?}: {}",
                (status, code),
                answer.text
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!((gateway.a.sessions(), gateway.b.sessions()), (0, 0));
}

#[tokio::test]
async fn a_405_names_the_methods_that_there_are() {
    let gateway = Gateway::start().await;
    let put = Request::put("/mcp").header("host", "localhost");
    let response = gateway.send(put.body(Body::empty()).unwrap()).await;
    let answer = Answer::read(response).await;
    assert_eq!(answer.header("allow"), Some("POST, GET, DELETE"));
}

#[tokio::test]
async fn a_browser_of_an_allowed_origin_reads_the_answer() {
    let gateway = Gateway::start().await;
    let request = post("a", None)
        .header("origin", "https://app.example")
        .body(Body::from(PING));
    let answer = Answer::read(gateway.send(request.unwrap()).await).await;
    assert_eq!(answer.status, 400, "it names no session");
    let allowed = answer.header("access-control-allow-origin");
    assert_eq!(allowed, Some("https://app.example"));
}

#[tokio::test]
async fn a_session_is_its_owners_and_ends_once() {
    let gateway = Gateway::start().await;
    let session = gateway.open("a").await;
    let delete = async || {
        let request = Request::delete("/servers/a/mcp")
            .header("host", "localhost")
            .header("mcp-session-id", &session)
            .body(Body::empty());
        gateway.send(request.unwrap()).await.status().as_u16()
    };
    assert_eq!(delete().await, 204);
    assert_eq!(delete().await, 404);
    let ping = gateway
        .post("a", Some(&session), &request(1, "ping", json!({})))
        .await;
    assert_eq!((ping.status.as_u16(), ping.error_code()), (404, -32001));
}
