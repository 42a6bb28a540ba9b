//! Affinity off by the settings: no record, no store, any instance; and a server's own word wins over the global switch.

use http::{HeaderValue, StatusCode};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::{McpSession, Opening, read_exchange};
use serde_json::json;

use crate::rig::{increment, post_of, post_text, refusal, store_commands};
use crate::scripted::Scripted;

/// What the id of a session that is not kept begins with.
const STATELESS_PREFIX: &str = "stateless-";

fn settings(instances: &[String]) -> Settings {
    Settings::toml(format!(
        "[affinity]\nenabled = false\n[[servers]]\nid = \"tools\"\ninstances = {instances:?}\n"
    ))
}

#[tokio::test]
async fn nothing_is_kept_and_the_store_is_never_asked() -> anyhow::Result<()> {
    let (first, second) = (Fixture::start("a").await?, Fixture::start("b").await?);
    let gateway = Gateway::start("off", settings(&[first.url(), second.url()])).await?;
    let client = HttpClient::default();
    let endpoint = [gateway.mcp_url("tools")];
    let mut session = McpSession::open(&client, &endpoint).await?;
    let id = session
        .id()
        .expect("the fixture insists on sessions")
        .to_owned();
    let random = id
        .strip_prefix(STATELESS_PREFIX)
        .expect("an id that says that nothing is kept");
    assert!(
        random.len() == 32 && random.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{id}"
    );

    for _ in 0..6 {
        session.increment().await?;
    }
    for fixture in [&first, &second] {
        let stats = fixture.stats().await?;
        assert_eq!(
            stats.calls_of("increment"),
            3,
            "calls go to the instances in turn"
        );
        assert_eq!(stats.initializes, 1, "over one pooled session each");
    }
    let mut other = McpSession::open(&client, &endpoint).await?;
    assert_ne!(other.id(), Some(id.as_str()));
    let counted = other.increment().await?;
    assert_eq!(
        counted, 4,
        "upstream state is shared by the requests of one principal"
    );

    let refused = refusal(session.listen(None).await?).await?;
    assert_eq!(
        refused,
        (StatusCode::METHOD_NOT_ALLOWED, -32000),
        "no GET stream"
    );
    assert_eq!(session.delete().await?.status, 204);
    assert!(
        session.increment().await.is_ok(),
        "nothing was kept, so nothing has ended"
    );

    let mut request = post_of(&mut session, increment("1"))?;
    request.headers_mut().insert(
        "mcp-session-id",
        HeaderValue::from_static("ffa516e288ad46855b4e96c5dd8acecb"),
    );
    let refused = refusal(client.send(request).await?).await?;
    assert_eq!(
        refused,
        (StatusCode::NOT_FOUND, -32001),
        "the id of a session that would be kept"
    );
    let mut request = post_of(&mut session, increment("1"))?;
    request.headers_mut().remove("mcp-session-id");
    assert_eq!(client.send(request).await?.status, 200, "no id is needed");

    assert_eq!(store_commands(&gateway).await?, 0.0);
    assert_eq!(
        gateway
            .metric("session_affinity_bindings_active", &[])
            .await?,
        0.0
    );
    Ok(())
}

#[tokio::test]
async fn a_server_without_sessions_gets_none() -> anyhow::Result<()> {
    let fixture = Fixture::start_with("plain", &["--replies", "stateless-json"]).await?;
    let gateway = Gateway::start("off", settings(&[fixture.url()])).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    assert_eq!(session.id(), None);
    let result = session.call("whoami", json!({})).await?;
    assert_eq!(result["structuredContent"]["instance"], "plain");
    assert_eq!(store_commands(&gateway).await?, 0.0);
    Ok(())
}

#[tokio::test]
async fn clients_of_one_pooled_session_may_use_the_same_ids() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let gateway = Gateway::start("off", settings(&[fixture.url()])).await?;
    let client = HttpClient::default();
    let endpoint = [gateway.mcp_url("tools")];
    let mut calls = Vec::new();
    for delay_ms in [400, 200, 0] {
        let mut session = McpSession::open(&client, &endpoint).await?;
        let arguments = json!({"delay_ms": delay_ms});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "slow_increment", "arguments": arguments}});
        let reply = session.post(&call).await?;
        calls.push((call, reply));
    }
    // They were begun in this order, and end in the other one.
    for (expected, (call, reply)) in (1..).zip(calls) {
        let response = read_exchange(reply, &call).await?.response;
        assert_eq!(response["result"]["structuredContent"]["count"], expected);
    }
    Ok(())
}

#[tokio::test]
async fn principals_do_not_share_a_pooled_session() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let settings = settings(&[fixture.url()]).users_by_header();
    let gateway = Gateway::start("off", settings).await?;
    let client = HttpClient::default();
    let endpoint = [gateway.mcp_url("tools")];
    let mut sessions = Vec::new();
    for user in ["ada", "bob"] {
        let opening = Opening::default().header("x-mooring-user", user)?;
        sessions.push(McpSession::open_with(&client, &endpoint, opening).await?);
    }
    for count in 1..=2 {
        for session in &mut sessions {
            assert_eq!(session.increment().await?, count);
        }
    }
    assert_eq!(fixture.stats().await?.initializes, 2);
    // Even with the other's session id, each is served by a pooled session of its own.
    let stolen = sessions[1].id().expect("an id").to_owned();
    let mut request = post_of(&mut sessions[0], increment("1"))?;
    request
        .headers_mut()
        .insert("mcp-session-id", HeaderValue::from_str(&stolen)?);
    let mut reply = client.send(request).await?;
    let answer = reply.next_message().await?.expect("an answer");
    assert_eq!(
        answer["result"]["structuredContent"]["count"], 3,
        "ada's own"
    );
    assert_eq!(sessions[1].increment().await?, 3, "bob's is untouched");
    Ok(())
}

#[tokio::test]
async fn a_servers_own_word_wins_over_the_global_switch() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let url = fixture.url();
    let client = HttpClient::default();
    for enabled in [false, true] {
        let servers: String = ["inherit", "on", "off"]
            .map(|affinity| format!("[[servers]]\nid = \"{affinity}\"\naffinity = \"{affinity}\"\ninstances = [{url:?}]\n"))
            .concat();
        let toml = format!("[affinity]\nenabled = {enabled}\n{servers}");
        let gateway = Gateway::start("override", Settings::toml(toml)).await?;
        for (server, is_kept) in [("inherit", enabled), ("on", true), ("off", false)] {
            let before = store_commands(&gateway).await?;
            let mut session = McpSession::open(&client, &[gateway.mcp_url(server)]).await?;
            session.increment().await?;
            let what = format!("globally {enabled}, server {server}");
            let is_stateless = session
                .id()
                .is_some_and(|id| id.starts_with(STATELESS_PREFIX));
            assert_eq!(is_stateless, !is_kept, "{what}");
            assert_eq!(store_commands(&gateway).await? > before, is_kept, "{what}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn what_is_for_nobody_is_accepted_and_goes_nowhere() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let gateway = Gateway::start("off", settings(&[fixture.url()])).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    for text in [
        r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#,
        r#"{"jsonrpc":"2.0","id":"s:1:1","result":{}}"#,
    ] {
        assert_eq!(
            post_text(&client, &mut session, text).await?.status,
            202,
            "{text}"
        );
    }
    let reply = post_text(
        &client,
        &mut session,
        r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#,
    )
    .await?;
    assert_eq!(
        reply.json().await?,
        json!({"jsonrpc": "2.0", "id": "p", "result": {}})
    );
    Ok(())
}

/// Servers are told that nobody can be asked over a pooled session; one that asks all the same is not heard.
#[tokio::test]
async fn a_question_over_a_shared_session_reaches_nobody() -> anyhow::Result<()> {
    let mut upstream = Scripted::start().await?;
    let gateway = Gateway::start("off", settings(&[upstream.url()])).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    assert_eq!(
        upstream.seen()[0].json()["params"]["capabilities"],
        json!({})
    );
    let answered = async {
        let mut exchange = upstream.next().await?;
        let wire_id = exchange.wire_id();
        exchange.begin_events().await?;
        exchange
            .event(r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}"#)
            .await?;
        exchange
            .event(&format!(
                r#"{{"jsonrpc":"2.0","id":{wire_id},"result":{{"content":[]}}}}"#
            ))
            .await?;
        exchange.end().await
    };
    let call = session.request_body("tools/call", json!({"name": "x"}));
    let (reply, ()) = tokio::try_join!(session.post(&call), answered)?;
    let exchange = read_exchange(reply, &call).await?;
    assert!(exchange.before.is_empty(), "{:?}", exchange.before);
    assert_eq!(exchange.response["result"], json!({"content": []}));
    Ok(())
}

/// A server that asks and waits gets an answer from the gateway, so that the call ends.
#[tokio::test]
async fn a_server_that_asks_over_a_shared_session_is_told_that_nobody_is_there()
-> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let gateway = Gateway::start("off", settings(&[fixture.url()])).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    for (tool, arguments) in [
        ("test_sampling", json!({"prompt": "Hello"})),
        ("test_elicitation", json!({"message": "Who?"})),
    ] {
        let exchange = session
            .request("tools/call", json!({"name": tool, "arguments": arguments}))
            .await?;
        assert!(exchange.before.is_empty(), "{:?}", exchange.before);
        let is_refused = exchange.response["result"]["isError"] == json!(true)
            || exchange.response.get("error").is_some();
        assert!(is_refused, "{tool}: {}", exchange.response);
    }
    assert_eq!(session.increment().await?, 1, "the session goes on");
    Ok(())
}

/// Servers answer 400 to a message they dislike, as they do to a session they do not know; a ping tells the two apart.
#[tokio::test]
async fn a_refused_call_is_passed_on_and_never_sent_again() -> anyhow::Result<()> {
    let mut upstream = Scripted::start().await?;
    let gateway = Gateway::start("off", settings(&[upstream.url()])).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    let answered = async {
        let exchange = upstream.next().await?;
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32602,"message":"no such argument"}}}}"#,
            exchange.wire_id()
        );
        exchange
            .answer("400 Bad Request", "application/json", &body)
            .await
    };
    let call = session.request_body("tools/call", json!({"name": "x"}));
    let (reply, ()) = tokio::try_join!(session.post(&call), answered)?;
    let refused = refusal(reply).await?;
    assert_eq!(refused, (StatusCode::BAD_REQUEST, -32602));
    let sent = |method: &str| {
        let methods = upstream.seen_methods();
        methods.iter().filter(|seen| *seen == method).count()
    };
    assert_eq!((sent("tools/call"), sent("initialize")), (1, 1));
    Ok(())
}
