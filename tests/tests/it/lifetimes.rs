//! How a session begins, under which names its id travels, and how it ends: by DELETE, or by idling.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gate::Gate;
use mooring_tests::gateway::Gateway;
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::json;

use crate::rig::{increment, initialize_params, kept, post_of, post_text, refusal};
use crate::scene::{CountingScene, ScriptedScene};
use crate::scripted::Scripted;

/// How long an idle session may take to be forgotten, beyond its TTL.
const FORGOTTEN_WITHIN: Duration = Duration::from_secs(60);
/// A session in a call is touched eight times per TTL, but at most five times a second: so many take longer than a TTL
/// of one second.
const TOUCHES_PER_TTL: u32 = 6;

/// Waits until the gateway has touched sessions so many times.
async fn until_touched(gateway: &Gateway, touches: u32) -> anyhow::Result<()> {
    let name = "mooring_store_duration_seconds_count";
    let labels = ["command=\"SESSION.TOUCH\""];
    wait::until_true("the TTL to pass", FORGOTTEN_WITHIN, async || {
        Ok(gateway.metric(name, &labels).await? >= f64::from(touches))
    })
    .await
}

#[tokio::test]
async fn delete_ends_the_session_here_and_upstream_and_nobody_elses() -> anyhow::Result<()> {
    let mut scene = CountingScene::start().await?;
    let endpoint = [scene.gateway.mcp_url("tools")];
    let mut ended = McpSession::open(&scene.client, &endpoint).await?;
    assert_eq!(ended.increment().await?, 1);
    assert_eq!(scene.fixture.stats().await?.sessions_live, 2);

    let reply = ended.delete().await?;
    assert_eq!(reply.status, 204);
    assert_eq!(reply.bytes().await?.len(), 0);
    let stats = scene.fixture.stats().await?;
    assert_eq!((stats.deletes, stats.sessions_live), (1, 1));

    for method in [Method::DELETE, Method::GET, Method::POST] {
        let body = match method {
            Method::POST => Bytes::from(increment("1")),
            _ => Bytes::new(),
        };
        let request = ended.http_request(method.clone(), body)?;
        let refused = refusal(scene.client.send(request).await?).await?;
        assert_eq!(refused, (StatusCode::NOT_FOUND, -32001), "{method}");
    }
    assert_eq!(scene.session.increment().await?, 1);
    assert_eq!(scene.fixture.stats().await?.sessions_live, 1);
    Ok(())
}

#[tokio::test]
async fn the_session_id_is_given_and_taken_under_its_alias_too() -> anyhow::Result<()> {
    let mut scene = CountingScene::start().await?;
    let initialize = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize_params(),
    });
    let mut request = post_of(&mut scene.session, initialize.to_string())?;
    request.headers_mut().remove("mcp-session-id");
    let reply = scene.client.send(request).await?;
    let id = reply
        .header("mcp-session-id")
        .expect("a session id")
        .to_owned();
    assert_eq!(reply.header("x-mcp-session-id"), Some(id.as_str()));
    assert!(
        id.len() >= 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "128 bits: {id}"
    );
    assert_ne!(Some(id.as_str()), scene.session.id());

    for (expected, body) in [
        (
            202,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
        ),
        (200, increment("1")),
    ] {
        let mut request = post_of(&mut scene.session, body)?;
        request.headers_mut().remove("mcp-session-id");
        request
            .headers_mut()
            .insert("x-mcp-session-id", HeaderValue::from_str(&id)?);
        assert_eq!(scene.client.send(request).await?.status, expected);
    }
    assert_eq!(scene.session.increment().await?, 1, "another session");
    assert_eq!(scene.fixture.stats().await?.calls_of("increment"), 2);
    Ok(())
}

#[tokio::test]
async fn a_session_expires_when_it_is_idle_and_only_then() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let settings = kept(&[fixture.url()]).env("MOORING_AFFINITY_TTL_SECONDS", "1");
    let gateway = Gateway::start("expiry", settings).await?;
    let client = HttpClient::default();
    let endpoint = [gateway.mcp_url("tools")];
    let mut used = McpSession::open(&client, &endpoint).await?;
    let mut calling = McpSession::open(&client, &endpoint).await?;
    let mut listening = McpSession::open(&client, &endpoint).await?;
    let stream = listening.listen(None).await?;
    assert_eq!(stream.status, 200);
    let gate = Gate::new()?;
    let call = json!({"name": "slow_increment", "arguments": {"until": gate.path()}});
    let call = calling.request_body("tools/call", call);
    let mut answer = calling.post(&call).await?;

    let mut count = 0;
    // Each of these is idle for the TTL while the call runs and the stream is open.
    for _ in 0..2 {
        let mut idle = McpSession::open(&client, &endpoint).await?;
        // The gauge counts what has not been idle for the TTL. Asking the session itself would be a use of it.
        let forgets_one = wait::until_true(
            "the idle session to be forgotten",
            FORGOTTEN_WITHIN,
            async || {
                count += 1;
                assert_eq!(used.increment().await?, count, "a session in use");
                Ok(gateway
                    .metric("session_affinity_bindings_active", &[])
                    .await?
                    <= 3.0)
            },
        );
        forgets_one.await?;
        let refused = refusal(post_text(&client, &mut idle, increment("1")).await?).await?;
        assert_eq!(refused, (StatusCode::NOT_FOUND, -32001));
    }

    gate.open()?;
    let answer = answer
        .next_message()
        .await?
        .expect("the slow call's answer");
    assert_eq!(answer["result"]["structuredContent"]["count"], 1);
    assert_eq!(
        calling.increment().await?,
        2,
        "twice the TTL passed in one call"
    );
    assert_eq!(
        listening.increment().await?,
        1,
        "twice the TTL passed on an open stream"
    );
    drop(stream);
    Ok(())
}

#[tokio::test]
async fn a_session_in_use_for_many_ttls_can_still_be_moved() -> anyhow::Result<()> {
    let mut fixture = Fixture::start("one").await?;
    let settings = kept(&[fixture.url()]).env("MOORING_AFFINITY_TTL_SECONDS", "1");
    let gateway = Gateway::start("renewal", settings).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    let gate = Gate::new()?;
    let call = json!({"name": "slow_increment", "arguments": {"until": gate.path()}});
    let call = session.request_body("tools/call", call);
    let mut answer = session.post(&call).await?;
    // Three TTLs in which nobody initializes: the params would be kept for two.
    until_touched(&gateway, 3 * TOUCHES_PER_TTL).await?;
    gate.open()?;
    answer.next_message().await?.expect("the call's answer");
    fixture.restart().await?;
    assert_eq!(
        session.increment().await?,
        1,
        "initialized anew with the client's own params"
    );
    assert_eq!(fixture.stats().await?.initializes, 1);
    Ok(())
}

/// An upstream that answers in one body says nothing until its tool is done.
#[tokio::test]
async fn a_call_whose_reply_has_not_begun_keeps_its_session() -> anyhow::Result<()> {
    let upstream = Scripted::start().await?;
    let settings = kept(&[upstream.url()])
        .env("MOORING_AFFINITY_TTL_SECONDS", "1")
        .env("MOORING_AFFINITY_REAP_INTERVAL_MS", "100");
    let mut scene = ScriptedScene::start_with(upstream, settings).await?;
    let client = scene.client.clone();
    let mut calling = scene
        .session
        .fork(&client, &[scene.gateway.mcp_url("tools")]);
    let called =
        tokio::spawn(async move { post_text(&client, &mut calling, increment("1")).await });
    let waiting = scene.upstream.next().await?;
    until_touched(&scene.gateway, 2 * TOUCHES_PER_TTL).await?;
    waiting.result(&json!({"content": [], "on": true})).await?;
    let body = called.await??.json().await?;
    assert_eq!(body["result"]["on"], true, "{body}");
    scene.goes_on("after a call of two TTLs").await?;
    assert!(!scene.upstream.seen_methods().contains(&"DELETE".to_owned()));
    Ok(())
}
