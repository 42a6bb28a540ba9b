//! Gateways and instances that die, sessions that end, and clients that leave.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use mooring_tests::client::HttpClient;
use mooring_tests::code::USER;
use mooring_tests::journal::{Event, Journal};
use serde_json::{Value, json};

use super::{SESSION_ENDED, SESSION_HEADER, Scene, Sessionless};

/// How long a call may need to begin, or to be cancelled, on a busy machine.
const EVENT_WITHIN: Duration = Duration::from_secs(60);

/// Ends the session that has this id, as a client with a session does.
async fn end_session(scene: &Scene, id: &str) -> anyhow::Result<()> {
    let request = Request::delete(scene.gateways[0].mcp_url("tools"))
        .header(USER, "ada")
        .header("mcp-session-id", id)
        .body(Bytes::new())?;
    assert_eq!(HttpClient::default().send(request).await?.status, 204);
    Ok(())
}

/// A client in a session that counted to three, at the first gateway last.
async fn counted_to_three(scene: &Scene) -> anyhow::Result<Sessionless> {
    let mut ada = scene.user("ada").header(SESSION_HEADER, "work");
    ada.turn = 1;
    for expected in 1..=3 {
        assert_eq!(ada.increment().await?.number, expected);
    }
    Ok(ada)
}

#[tokio::test]
async fn a_session_outlives_its_gateways() -> anyhow::Result<()> {
    let mut scene = Scene::start("header").await?;
    let mut ada = counted_to_three(&scene).await?;
    for at in [0, 1] {
        scene.gateways[at].process().kill_now()?;
    }
    ada.endpoints = vec![scene.gateways[2].mcp_url("tools")];
    for expected in [4, 5] {
        let count = ada.increment().await?;
        assert_eq!(count.number, expected);
        assert!(count.result["_meta"].is_null(), "{count:?}");
    }
    Ok(())
}

#[tokio::test]
async fn lost_state_is_told_in_the_next_result() -> anyhow::Result<()> {
    let mut scene = Scene::start("header").await?;
    let mut ada = counted_to_three(&scene).await?;
    scene.fixture.restart().await?;
    let count = ada.increment().await?;
    assert_eq!(count.number, 1);
    assert_eq!(
        count.result["_meta"]["mooring/rebound"]["state_lost"], true,
        "{count:?}"
    );
    assert!(
        count.texts().contains("lost its state"),
        "the model reads it: {count:?}"
    );
    let count = ada.increment().await?;
    assert_eq!((count.number, &count.result["_meta"]), (2, &Value::Null));
    Ok(())
}

#[tokio::test]
async fn a_session_that_has_ended_is_not_replaced_in_silence() -> anyhow::Result<()> {
    let scene = Scene::start("header").await?;
    let mut ada = scene.user("ada");
    let body = ada.body("tools/call", json!({"name": "increment", "arguments": {}}));
    let reply = ada.send(&body).await?;
    let key = reply.header(SESSION_HEADER).expect("a key").to_owned();
    reply.bytes().await?;
    let mut named = ada.clone().header(SESSION_HEADER, &key);
    for expected in [2, 3, 4] {
        assert_eq!(named.increment().await?.number, expected);
    }
    end_session(&scene, &key).await?;
    // Each gateway, whether or not it knew the session.
    for _ in 0..6 {
        let body = named.body("tools/call", json!({"name": "increment", "arguments": {}}));
        let reply = named.send(&body).await?;
        let cookie = reply
            .header("set-cookie")
            .expect("its cookie is taken back");
        assert!(cookie.ends_with("Max-Age=0"), "{cookie}");
        let refused = reply.json().await?;
        assert_eq!(refused["error"]["code"], SESSION_ENDED, "{refused}");
    }
    let mut anew = named.without_header(SESSION_HEADER);
    assert_eq!(anew.increment().await?.number, 1);
    Ok(())
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_request() -> anyhow::Result<()> {
    let journal = Journal::new()?;
    let path = journal.path().display().to_string();
    let scene = Scene::start_with("principal", &["--journal", &path]).await?;
    let mut ada = scene.user("ada");
    let params = json!({"name": "hang", "arguments": {"token": "left"}});
    let body = ada.body("tools/call", params);
    let leaving = ada.clone();
    let hanging = tokio::spawn(async move {
        let mut leaving = leaving;
        let mut reply = leaving.send(&body).await?;
        reply.next_message().await
    });
    journal.wait_for(Event::Begin, 1, EVENT_WITHIN).await?;
    hanging.abort();
    journal.wait_for(Event::Cancelled, 1, EVENT_WITHIN).await?;
    // Its turn is free again.
    assert_eq!(ada.increment().await?.number, 1);
    Ok(())
}
