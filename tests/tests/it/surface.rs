//! Statuses, exactly: what each request that is not served is answered with, and that it changes nothing.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};

use crate::rig::{increment, raw_exchange, raw_post};
use crate::scene::{CountingScene, Reaches};

/// What is done to the headers of a request that would be served.
#[derive(Debug)]
enum Spoil {
    Without(&'static str),
    With(&'static str, &'static str),
    Beside(&'static str, &'static str),
}

impl Spoil {
    fn apply(&self, headers: &mut HeaderMap) {
        match *self {
            Self::Without(name) => drop(headers.remove(name)),
            Self::With(name, value) => drop(headers.insert(name, HeaderValue::from_static(value))),
            Self::Beside(name, value) => {
                headers.append(name, HeaderValue::from_static(value));
            }
        }
    }
}

#[tokio::test]
async fn headers_that_are_refused() -> anyhow::Result<()> {
    use Reaches::{Nothing, Store};
    use Spoil::{Beside, With, Without};
    const SESSION: &str = "mcp-session-id";
    const VERSION: &str = "mcp-protocol-version";
    const UNKNOWN: &str = "ffa516e288ad46855b4e96c5dd8acecb";
    const STATELESS: &str = "stateless-ffa516e288ad46855b4e96c5dd8acecb";
    const FORM: &str = "application/x-www-form-urlencoded";
    const UNSUPPORTED: (u16, i64) = (400, -32022);
    let table = [
        (Without(SESSION), (400, -32000), Nothing),
        (With(SESSION, UNKNOWN), (404, -32001), Store),
        (With(SESSION, STATELESS), (404, -32001), Store),
        (With(SESSION, "../../etc/passwd"), (404, -32001), Store),
        (With(SESSION, "*"), (404, -32001), Store),
        (With(SESSION, ""), (404, -32001), Store),
        (
            With("origin", "https://evil.example"),
            (403, -32000),
            Nothing,
        ),
        (With("origin", "null"), (403, -32000), Nothing),
        (
            With("origin", "http://localhost.evil.example"),
            (403, -32000),
            Nothing,
        ),
        (With("host", "evil.example"), (421, -32000), Nothing),
        (
            With("host", "localhost.evil.example"),
            (421, -32000),
            Nothing,
        ),
        (Without("accept"), (406, -32000), Nothing),
        (With("accept", "application/json"), (406, -32000), Nothing),
        (With("accept", "text/event-stream"), (406, -32000), Nothing),
        (Without("content-type"), (415, -32000), Nothing),
        (With("content-type", "text/plain"), (415, -32000), Nothing),
        (With("content-type", FORM), (415, -32000), Nothing),
        (With(VERSION, "1999-01-01"), UNSUPPORTED, Nothing),
        (With(VERSION, "2026-07-28"), UNSUPPORTED, Nothing),
        (With(VERSION, ""), UNSUPPORTED, Nothing),
        (Beside(VERSION, "2025-06-18"), UNSUPPORTED, Nothing),
    ];
    let mut scene = CountingScene::start().await?;
    for (spoil, expected, reaches) in table {
        let mut request = scene.call();
        spoil.apply(request.headers_mut());
        let what = format!("{spoil:?}");
        scene.check(&what, request, expected, reaches).await?;
    }
    // A page of this machine's own beside a foreign one is a foreign one.
    let mut request = scene.call();
    for origin in ["http://localhost", "https://evil.example"] {
        Beside("origin", origin).apply(request.headers_mut());
    }
    scene
        .check("two origins", request, (403, -32000), Nothing)
        .await?;
    Ok(())
}

#[tokio::test]
async fn headers_that_are_accepted() -> anyhow::Result<()> {
    let table = [
        ("accept", "*/*"),
        ("accept", "text/event-stream;q=0.5, application/json"),
        ("content-type", "application/json; charset=utf-8"),
        ("origin", "http://localhost:6274"),
        ("origin", "http://127.0.0.1"),
        ("host", "localhost:9"),
        ("host", "[::1]"),
        ("mcp-protocol-version", "2025-03-26"),
        ("mcp-protocol-version", "2025-06-18"),
    ];
    let mut scene = CountingScene::start().await?;
    for (name, value) in table {
        let mut request = scene.call();
        request
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
        let mut reply = scene.client.send(request).await?;
        assert_eq!(reply.status, 200, "{name}: {value}");
        scene.count += 1;
        let answer = reply.next_message().await?.expect("an answer");
        assert_eq!(
            answer["result"]["structuredContent"]["count"], scene.count,
            "{name}: {value}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn methods_and_paths_that_are_refused() -> anyhow::Result<()> {
    let mut scene = CountingScene::start().await?;
    for method in [Method::PUT, Method::PATCH, Method::OPTIONS] {
        let mut request = scene.call();
        let what = method.to_string();
        *request.method_mut() = method;
        let headers = scene
            .check(&what, request, (405, -32000), Reaches::Nothing)
            .await?;
        assert_eq!(headers["allow"], "POST, GET, DELETE", "{what}");
    }
    for path in [
        "/servers/nobody/mcp",
        "/servers/tools/mcp/",
        "/servers/tools",
        "/servers//mcp",
        "/",
    ] {
        let mut request = scene.call();
        *request.uri_mut() = scene.gateway.url(path).parse()?;
        scene
            .check(path, request, (404, -32004), Reaches::Nothing)
            .await?;
    }
    // A GET takes events alone; it is checked as a POST is.
    for (name, value, expected) in [
        ("accept", "application/json", (406, -32000)),
        ("mcp-protocol-version", "1999-01-01", (400, -32022)),
        (
            "mcp-session-id",
            "ffa516e288ad46855b4e96c5dd8acecb",
            (404, -32001),
        ),
    ] {
        for method in [Method::GET, Method::DELETE] {
            if method == Method::DELETE && name != "mcp-session-id" {
                continue;
            }
            let mut request = scene.session.http_request(method.clone(), Bytes::new())?;
            request
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
            let what = format!("{method} with {name}: {value}");
            scene
                .check(&what, request, expected, Reaches::Store)
                .await?;
        }
    }
    for method in [Method::GET, Method::DELETE] {
        let mut request = scene.session.http_request(method.clone(), Bytes::new())?;
        request.headers_mut().remove("mcp-session-id");
        let what = format!("{method} without a session id");
        scene
            .check(&what, request, (400, -32000), Reaches::Nothing)
            .await?;
    }
    Ok(())
}

/// A proxy in front and the gateway must see the same request: what they could read differently is refused.
#[tokio::test]
async fn heads_that_can_be_read_in_two_ways_are_refused() -> anyhow::Result<()> {
    const HOST: &str = "host: localhost\r\n";
    const TARGET: &str = "POST /servers/tools/mcp ";
    let mut scene = CountingScene::start().await?;
    let call = raw_post(&scene.session, &increment("7"));
    let port = scene.gateway.port();
    let absolute =
        |host: &str| call.replace(TARGET, &format!("POST http://{host}/servers/tools/mcp "));
    for (what, request) in [
        ("two hosts", call.replace(HOST, &HOST.repeat(2))),
        (
            "two different hosts",
            call.replace(HOST, &format!("{HOST}host: 127.0.0.1\r\n")),
        ),
        ("a target on another host", absolute("127.0.0.1")),
        (
            "a target on another port",
            absolute(&format!("localhost:{port}")),
        ),
        ("a target with a user", absolute("user@localhost")),
        ("a foreign target", absolute("evil.example")),
        (
            "two lengths",
            call.replace(HOST, &format!("{HOST}content-length: 3\r\n")),
        ),
    ] {
        let reply = raw_exchange(&scene.gateway, request.as_bytes()).await?;
        assert!(reply.starts_with("HTTP/1.1 400 "), "{what}: {reply}");
        scene.unchanged(what).await?;
    }
    for (what, request) in [
        ("lines that end with LF alone", call.replace("\r\n", "\n")),
        (
            "one line that ends with LF alone",
            call.replacen("\r\n", "\n", 2).replacen('\n', "\r\n", 1),
        ),
        (
            "an empty line of LF alone",
            call.replace("\r\n\r\n", "\r\n\n"),
        ),
    ] {
        let reply = raw_exchange(&scene.gateway, request.as_bytes()).await?;
        assert!(!reply.contains(" 200 "), "{what}: {reply}");
        scene.unchanged(what).await?;
    }
    let reply = raw_exchange(&scene.gateway, absolute("LOCALHOST").as_bytes()).await?;
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    scene.count += 1;
    scene.unchanged("a target on the same host").await
}
