//! Replies of upstream servers as clients get them.

use std::collections::VecDeque;

use axum::body::Body;
use futures_util::FutureExt;
use http::{Request, StatusCode};
use mooring_session::names::{Principal, ServerName, SessionId};
use mooring_store::{Session, SessionKey};
use serde_json::{Value, json};

use super::{Answer, Gateway, post, request};

#[tokio::test]
async fn json_comes_back_byte_for_byte_under_the_clients_id() {
    let gateway = Gateway::start().await;
    let session = gateway.open("a").await;
    let answer = gateway.echo("a", &session, json!({"n": 1})).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(
        answer.header("mcp-session-id"),
        None,
        "the upstream's is its own"
    );
    let result = json!({"content": [], "structuredContent": {"arguments": {"n": 1}, "by": "a"}});
    let expected = format!(r#"{{ "x-vendor": 1.0e0,"id" :7,"result":{result},"jsonrpc":"2.0"}}"#);
    assert_eq!(answer.text, expected);
    assert_eq!(answer.length, Some(expected.len() as u64));
}

#[tokio::test]
async fn events_come_back_whole_with_their_ids() {
    let gateway = Gateway::start().await;
    let session = gateway.open("a").await;
    let answer = gateway.call("a", &session, "stream", json!({})).await;
    assert_eq!(
        answer.header("cache-control"),
        Some("no-cache, no-transform")
    );
    let events = answer.events();
    assert_eq!(events[0]["method"], "notifications/message");
    assert_eq!(
        (&events[1]["id"], &events[1]["x-vendor"]),
        (&json!(7), &json!(1.0))
    );
    let ids: Vec<_> = answer
        .text
        .lines()
        .filter(|line| line.starts_with("id: "))
        .collect();
    // Behind the name of the request, which is sealed.
    let of_server: Vec<_> = (ids.iter())
        .filter_map(|line| line.strip_prefix("id: mooring:")?.rsplit('.').next())
        .collect();
    assert_eq!(of_server, ["1", "2"], "{ids:?}");
}

#[tokio::test]
async fn every_call_of_a_session_reaches_the_instance_that_knows_it() {
    let gateway = Gateway::start().await;
    let mut by = Vec::new();
    for _ in 0..4 {
        let session = gateway.open("pair").await;
        let first = gateway.echo("pair", &session, json!({})).await.json();
        for _ in 0..4 {
            let again = gateway.echo("pair", &session, json!({})).await.json();
            assert_eq!(again["result"], first["result"]);
        }
        by.push(first["result"]["structuredContent"]["by"].clone());
    }
    by.sort_by_key(Value::to_string);
    assert_eq!(by, ["a", "a", "b", "b"], "sessions are spread");
}

/// As the stream of a group does for the programs of its members.
#[tokio::test]
async fn a_binding_that_is_made_here_ends_the_wait_for_it() {
    let gateway = Gateway::start().await;
    let session = gateway.open("a").await;
    let router = &gateway.routes.app.as_ref().unwrap().core.session_router;
    let id = SessionId::parse(session.as_bytes()).unwrap();
    let key = SessionKey::mcp(&router.options().key_prefix, &id);
    let of_client = Session::new(key, id, Principal::parse(b"anybody").unwrap());
    let server = ServerName::parse(b"a").unwrap();
    let mut watch = router.watch_binding(&of_client, &server);
    gateway.echo("a", &session, json!({})).await;
    let is_made = watch.may_be_made().now_or_never().is_some();
    assert!(!is_made, "the session has its binding");
    gateway.a.forget_sessions();
    gateway.echo("a", &session, json!({})).await;
    assert!(watch.may_be_made().now_or_never().is_some());
}

#[tokio::test]
async fn a_lost_upstream_session_is_replaced_and_the_reply_says_so() {
    let gateway = Gateway::start().await;
    let session = gateway.open("a").await;
    gateway.a.forget_sessions();
    let events = gateway.echo("a", &session, json!({})).await.events();
    let told = "/params/data/mooring~1rebound/state_lost";
    assert_eq!(events[0].pointer(told), Some(&json!(true)), "{events:?}");
    let marked = "/result/_meta/mooring~1rebound/state_lost";
    assert_eq!(events[1].pointer(marked), Some(&json!(true)), "{events:?}");
    assert_eq!(gateway.a.sessions(), 1);
    let after = gateway.echo("a", &session, json!({})).await;
    assert_eq!(
        after.json()["result"]["_meta"],
        Value::Null,
        "it is told once"
    );
}

#[tokio::test]
async fn a_batch_of_2025_03_26_is_answered_on_one_stream() {
    let gateway = Gateway::start().await;
    let session = gateway.open("a").await;
    let call = |id| {
        request(
            id,
            "tools/call",
            json!({"name": "echo", "arguments": {"id": id}}),
        )
    };
    let batch = json!([call(1), {"jsonrpc": "2.0", "method": "notifications/x"}, call(2)]);
    let mut http = post("a", Some(&session));
    let revision = "2025-03-26".parse().unwrap();
    http.headers_mut()
        .unwrap()
        .insert("mcp-protocol-version", revision);
    let http = http.body(Body::from(batch.to_string())).unwrap();
    let answer = Answer::read(gateway.send(http).await).await;
    let ids: Vec<_> = answer
        .events()
        .iter()
        .map(|event| event["id"].clone())
        .collect();
    assert_eq!(ids, [json!(1), json!(2)]);
}

#[tokio::test]
async fn a_group_lists_and_calls_the_tools_of_its_members() {
    let gateway = Gateway::start().await;
    let session = gateway.open("both").await;
    let list = request(1, "tools/list", json!({}));
    let listed = gateway.post("both", Some(&session), &list).await.json();
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<_> = tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["a__echo", "a__stream", "b__echo", "b__stream"]);

    let echoed = gateway
        .call("both", &session, "b__echo", json!({}))
        .await
        .json();
    assert_eq!(echoed["result"]["structuredContent"]["by"], "b");
    let streamed = gateway.call("both", &session, "a__stream", json!({})).await;
    assert!(streamed.text.contains(".a/call/2\n"), "{}", streamed.text);
}

#[tokio::test]
async fn a_client_of_http_sse_reads_every_reply_on_its_stream() {
    let gateway = Gateway::start().await;
    let get = Request::get("/servers/a/sse")
        .header("host", "localhost")
        .header("accept", "text/event-stream");
    let response = gateway.send(get.body(Body::empty()).unwrap()).await;
    assert_eq!(response.status(), StatusCode::OK);
    let mut stream = response.into_body().into_data_stream();
    let mut arrived = VecDeque::new();
    let mut next = async || {
        use futures_util::StreamExt;
        if arrived.is_empty() {
            let chunk = stream.next().await.unwrap().unwrap();
            let text = String::from_utf8(chunk.to_vec()).unwrap();
            let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
            arrived.extend(data.map(str::to_owned));
        }
        arrived.pop_front().expect("an event with data")
    };
    let endpoint = next().await;
    let post = async |message: Value| {
        let request = Request::post(&endpoint)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(Body::from(message.to_string()));
        gateway.send(request.unwrap()).await.status()
    };
    let params = json!({"protocolVersion": "2024-11-05", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}});
    assert_eq!(
        post(request(0, "initialize", params)).await,
        StatusCode::ACCEPTED
    );
    let initialized: Value = serde_json::from_str(&next().await).unwrap();
    assert_eq!(initialized["result"]["serverInfo"]["name"], "a");
    let call = request(1, "tools/call", json!({"name": "stream", "arguments": {}}));
    assert_eq!(post(call).await, StatusCode::ACCEPTED);
    let logged: Value = serde_json::from_str(&next().await).unwrap();
    let answered: Value = serde_json::from_str(&next().await).unwrap();
    assert_eq!(logged["method"], "notifications/message");
    assert_eq!(
        (&answered["id"], &answered["result"]["content"]),
        (&json!(1), &json!([]))
    );
}

/// Otherwise a client that reads nothing has any number of calls.
#[tokio::test]
async fn a_reply_that_is_not_read_counts_as_a_call_at_once() {
    let gateway = Gateway::start_with("calls_per_user_at_once = 1\n").await;
    for (server, method, params) in [
        ("both", "tools/list", json!({})),
        ("a", "tools/call", json!({"name": "echo", "arguments": {}})),
    ] {
        let session = gateway.open(server).await;
        let body = Body::from(request(1, method, params).to_string());
        let unread = gateway.send(post(server, Some(&session)).body(body).unwrap());
        let unread = unread.await;
        assert_eq!(unread.status(), StatusCode::OK, "{server}");
        let ping = request(2, "ping", json!({}));
        let refused = gateway.post(server, Some(&session), &ping).await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{server}");
        drop(unread);
        let served = gateway.post(server, Some(&session), &ping).await;
        assert_eq!(served.status, StatusCode::OK, "{server}");
    }
}
