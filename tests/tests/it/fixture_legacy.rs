//! The fixture over HTTP+SSE of 2024-11-05, and everything that it asks and tells its clients.

use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::legacy::LegacySession;
use mooring_tests::session::{McpSession, result_of};
use mooring_tests::wait;
use serde_json::{Value, json};

use crate::fixture_stdio::echo;

#[tokio::test]
async fn a_legacy_session_counts_asks_and_ends_with_its_stream() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let client = HttpClient::default();
    let mut first = LegacySession::open_at(&client, &fixture.sse_url()).await?;
    let mut second = LegacySession::open_at(&client, &fixture.sse_url()).await?;
    assert_eq!(first.initialize_result["protocolVersion"], "2024-11-05");
    assert_eq!((first.increment().await?, first.increment().await?), (1, 2));
    assert_eq!(second.increment().await?, 1);
    let params = json!({"name": "ask", "arguments": {"secret": "s2"}});
    let exchange = second.request_answering("tools/call", params, echo).await?;
    assert_eq!(
        result_of(exchange.response)?["structuredContent"]["answer"],
        "The secret is s2."
    );

    assert_eq!(fixture.stats().await?.sessions_live, 2);
    let endpoint = first.connection().endpoint().to_owned();
    drop(first);
    wait::until_true(
        "the end of a session",
        Duration::from_secs(15),
        async || Ok(fixture.stats().await?.sessions_live == 1),
    )
    .await?;
    let late = http::Request::post(endpoint).body("{}".into())?;
    assert_eq!(client.send(late).await?.status, 404);
    Ok(())
}

/// What is asked when no call runs comes on the stream of no request.
#[tokio::test]
async fn a_question_without_a_call_comes_on_the_common_stream() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let mut session = McpSession::open(&HttpClient::default(), &[fixture.url()]).await?;
    let mut stream = session.listen(None).await?;
    session.ask_later("s3").await?;
    let question = stream.next_message().await?.expect("the question");
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": echo(&question)?});
    assert_eq!(session.post(&answer).await?.status, 202);
    let answers = wait::until("the answer", Duration::from_secs(15), async || {
        let result = session.call("answers", json!({})).await?;
        let answers = result["structuredContent"]["answers"].clone();
        Ok((answers != json!([])).then_some(answers))
    })
    .await?;
    assert_eq!(answers[0]["content"]["answer"], "The secret is s3.");
    Ok(())
}

/// Every request and notification of a server that a client can get, once each.
#[tokio::test]
async fn the_fixture_asks_and_tells_everything() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let mut session = LegacySession::open_at(&HttpClient::default(), &fixture.sse_url()).await?;
    let watched = json!({"uri": "test://watched-resource"});
    session
        .request("resources/subscribe", watched.clone())
        .await?;
    let model =
        json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "hm"}});
    let roots = json!({"roots": [{"uri": "file:///r"}]});
    for (tool, arguments, expected, result) in [
        (
            "sample",
            json!({"secret": "s4"}),
            "sampling/createMessage",
            model,
        ),
        ("roots", json!({}), "roots/list", roots),
        ("ping_client", json!({}), "ping", json!({})),
        (
            "ask_url",
            json!({"secret": "s5"}),
            "elicitation/create",
            json!({"action": "accept"}),
        ),
        (
            "progress",
            json!({"n": 2}),
            "notifications/progress",
            Value::Null,
        ),
        (
            "log",
            json!({"text": "t"}),
            "notifications/message",
            Value::Null,
        ),
        (
            "notify_list_changed",
            json!({"kind": "tools"}),
            "notifications/tools/list_changed",
            Value::Null,
        ),
        (
            "notify_list_changed",
            json!({"kind": "prompts"}),
            "notifications/prompts/list_changed",
            Value::Null,
        ),
        (
            "notify_list_changed",
            json!({"kind": "resources"}),
            "notifications/resources/list_changed",
            Value::Null,
        ),
        (
            "touch",
            watched,
            "notifications/resources/updated",
            Value::Null,
        ),
    ] {
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": 1}});
        let exchange = session
            .request_answering("tools/call", params, |_| Ok(result.clone()))
            .await?;
        assert_eq!(exchange.before[0]["method"], expected, "{tool}");
        let called = result_of(exchange.response)?;
        assert_ne!(called["isError"], true, "{tool}: {called}");
    }
    Ok(())
}
