//! What names the session: a header or cookie, the user, or an argument of a tool.

use std::collections::BTreeSet;

use mooring_tests::client::HttpClient;
use mooring_tests::code::USER;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::Gateway;
use mooring_tests::session::McpSession;
use serde_json::json;
use tokio::task::JoinSet;

use super::{Count, SESSION_ENDED, SESSION_HEADER, Scene, Sessionless};
use crate::rig::kept;

/// How many requests begin one session at once.
const AT_ONCE: usize = 20;

#[tokio::test]
async fn a_key_that_the_gateway_has_issued_names_the_session() -> anyhow::Result<()> {
    let scene = Scene::start("header").await?;
    let mut ada = scene.user("ada");
    ada.request("server/discover", json!({})).await?;
    ada.request("tools/list", json!({})).await?;
    let body = ada.body("tools/call", json!({"name": "increment", "arguments": {}}));
    let reply = ada.send(&body).await?;
    let key = reply.header(SESSION_HEADER).expect("a key").to_owned();
    let cookie = reply.header("set-cookie").expect("a cookie").to_owned();
    let first = Count::of(mooring_tests::session::read_exchange(reply, &body).await?)?;
    assert_eq!(
        (first.number, first.session_note()),
        (1, &json!({"new": true}))
    );

    let (cookie, _) = cookie.split_once(';').expect("attributes");
    let mut named = ada.clone().header(SESSION_HEADER, &key);
    let mut cookied = ada.clone().header("cookie", cookie);
    for expected in [2, 3, 4] {
        let count = named.increment().await?;
        assert_eq!(
            (count.number, count.session_note()),
            (expected, &json!(null))
        );
    }
    for expected in [5, 6, 7] {
        assert_eq!(cookied.increment().await?.number, expected);
    }
    assert_eq!(
        ada.increment().await?.number,
        1,
        "without a key, a new session"
    );

    // The key is no use to others, nor is one that names no session.
    let others = scene.user("bob").header(SESSION_HEADER, &key);
    let unknown = ada
        .clone()
        .header(SESSION_HEADER, &key.replacen(&key[..8], "00000000", 1));
    for mut client in [others, unknown] {
        let refused = client.call("increment", json!({})).await?;
        assert_eq!(
            refused.response["error"]["code"], SESSION_ENDED,
            "{refused:?}"
        );
    }
    // One for lists and discovery, one for each key.
    assert_eq!(scene.fixture.stats().await?.initializes, 3);
    Ok(())
}

#[tokio::test]
async fn a_key_of_the_client_names_a_session_of_its_user() -> anyhow::Result<()> {
    let scene = Scene::start("header").await?;
    let mut ada = scene.user("ada").header(SESSION_HEADER, "work");
    let mut bob = scene.user("bob").header(SESSION_HEADER, "work");
    for expected in 1..=4 {
        assert_eq!(ada.increment().await?.number, expected);
    }
    for expected in 1..=2 {
        assert_eq!(bob.increment().await?.number, expected);
    }
    let spaced = ada.clone().header(SESSION_HEADER, "a b").increment().await;
    assert!(spaced.is_err_and(|error| error.to_string().contains("400")));
    Ok(())
}

#[tokio::test]
async fn a_user_has_one_session_whatever_client_it_uses() -> anyhow::Result<()> {
    let scene = Scene::start("principal").await?;
    let discovered = scene
        .user("ada")
        .request("server/discover", json!({}))
        .await?;
    let discovered = &discovered.response["result"];
    assert_eq!(discovered["supportedVersions"], json!([super::REVISION]));
    assert!(
        discovered["capabilities"]["tools"].is_object(),
        "{discovered}"
    );
    for expected in 1..=4 {
        let mut client = scene.user("ada");
        client.turn = expected;
        assert_eq!(client.increment().await?.number, expected as u64);
    }
    assert_eq!(scene.user("bob").increment().await?.number, 1);
    assert_eq!(scene.fixture.stats().await?.initializes, 2);
    Ok(())
}

/// All callers would share one session.
#[tokio::test]
async fn callers_that_are_not_authenticated_get_no_session_of_a_user() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let settings = kept(&[fixture.url()]).more_toml("continuity = \"principal\"\n");
    let gateway = Gateway::start("anonymous", settings).await?;
    let mut client = Sessionless::at(vec![gateway.mcp_url("tools")]);
    for method in ["server/discover", "tools/list"] {
        let body = client.body(method, json!({}));
        let reply = client.send(&body).await?;
        assert_eq!(reply.status, 403, "{method}");
        let error = reply.json().await?["error"].clone();
        assert!(
            error["message"].to_string().contains("not authenticated"),
            "{error}"
        );
    }
    // Clients with sessions of their own are served as before.
    let mut session = McpSession::open(&HttpClient::default(), &client.endpoints).await?;
    assert_eq!(session.increment().await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_model_names_the_session_in_an_argument() -> anyhow::Result<()> {
    let scene = Scene::start("handle").await?;
    let mut ada = scene.user("ada");
    let listed = ada.request("tools/list", json!({})).await?;
    let listed = &listed.response["result"];
    assert_eq!(listed["cacheScope"], "private");
    for tool in listed["tools"].as_array().expect("tools") {
        let argument = &tool["inputSchema"]["properties"]["mooring_session"];
        assert_eq!(argument["type"], "string", "{tool}");
        let required = tool["inputSchema"]["required"].to_string();
        assert!(!required.contains("mooring_session"), "{tool}");
    }
    let first = ada.increment().await?;
    let session = first.session_note()["name"]
        .as_str()
        .expect("a name")
        .to_owned();
    assert!(
        first.texts().contains(&session),
        "the model reads it: {first:?}"
    );
    for expected in [2, 3, 4] {
        let count = ada.increment_in(&session).await?;
        assert_eq!(count.number, expected);
        assert!(!count.texts().contains("mooring"), "{count:?}");
    }
    assert_eq!(
        ada.increment().await?.number,
        1,
        "without the argument, a new session"
    );

    let of_nobody = session.replacen(&session[..8], "00000000", 1);
    for (user, session) in [("bob", session.as_str()), ("ada", &of_nobody), ("ada", "x")] {
        let arguments = json!({"mooring_session": session});
        let refused = scene.user(user).call("increment", arguments).await?;
        let result = &refused.response["result"];
        assert_eq!(result["isError"], true, "{user} {session}: {refused:?}");
        let text = result["content"].to_string();
        assert!(text.contains("No session of yours"), "{text}");
    }
    let number = json!({"mooring_session": 1});
    let refused = ada.call("increment", number).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("must be a string")));
    Ok(())
}

#[tokio::test]
async fn requests_that_begin_a_session_at_once_initialize_its_server_once() -> anyhow::Result<()> {
    let scene = Scene::start("header").await?;
    let mut calls = JoinSet::new();
    for turn in 0..AT_ONCE {
        let mut client = scene.user("ada").header(SESSION_HEADER, "work");
        client.turn = turn;
        calls.spawn(async move { client.increment().await });
    }
    let counts = calls.join_all().await;
    let counts: Vec<Count> = counts.into_iter().collect::<anyhow::Result<_>>()?;
    let numbers: BTreeSet<u64> = counts.iter().map(|count| count.number).collect();
    assert_eq!(numbers, (1..=AT_ONCE as u64).collect());
    let new = counts
        .iter()
        .filter(|count| !count.session_note().is_null());
    assert_eq!(new.count(), 1, "one of them has begun it");
    assert_eq!(scene.fixture.stats().await?.initializes, 1);
    Ok(())
}

/// They are what they were, whatever the setting.
#[tokio::test]
async fn clients_with_sessions_keep_their_own() -> anyhow::Result<()> {
    let scene = Scene::start("header").await?;
    let opening = mooring_tests::session::Opening::default().header(USER, "ada")?;
    let client = HttpClient::default();
    let mut session = McpSession::open_with(&client, &scene.endpoints(), opening).await?;
    session.set_header(SESSION_HEADER, "work")?;
    let mut sessionless = scene.user("ada").header(SESSION_HEADER, "work");
    for expected in 1..=3 {
        assert_eq!(session.increment().await?, expected);
        assert_eq!(sessionless.increment().await?.number, expected);
    }
    Ok(())
}
