//! The fixture's own promises, which every other test leans on.

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::session::{McpSession, read_exchange, result_of};
use serde_json::json;

#[tokio::test]
async fn sessions_count_apart_and_are_counted() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let client = HttpClient::default();
    let mut first = McpSession::open(&client, &[fixture.url()]).await?;
    let mut second = McpSession::open(&client, &[fixture.url()]).await?;
    for expected in 1..=3 {
        assert_eq!(first.increment().await?, expected);
    }
    assert_eq!(second.increment().await?, 1);

    let whoami = first.call("whoami", json!({})).await?;
    assert_eq!(whoami["structuredContent"]["instance"], "one");
    assert_eq!(whoami["structuredContent"]["session"].as_str(), first.id());

    assert!(second.delete().await?.status.is_success());
    let stats = fixture.stats().await?;
    assert_eq!(
        (stats.initializes, stats.deletes, stats.sessions_live),
        (2, 1, 1)
    );
    assert_eq!(
        (stats.calls_of("increment"), stats.calls_of("whoami")),
        (4, 1)
    );
    Ok(())
}

#[tokio::test]
async fn ask_returns_the_answer_beside_the_secret() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[fixture.url()]).await?;
    let call = session.request_body(
        "tools/call",
        json!({"name": "ask", "arguments": {"message": "Which?", "secret": "s1"}}),
    );
    let mut stream = session.post(&call).await?;
    let question = stream
        .next_message()
        .await?
        .expect("the question comes first");
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["message"], "Which?");

    let answer = json!({
        "jsonrpc": "2.0",
        "id": question["id"],
        "result": {"action": "accept", "content": {"answer": "that one"}},
    });
    assert_eq!(session.post(&answer).await?.status, 202);
    let result = result_of(read_exchange(stream, &call).await?.response)?;
    let expected = json!({"action": "accept", "answer": "that one", "secret": "s1"});
    assert_eq!(result["structuredContent"], expected);
    Ok(())
}

#[tokio::test]
async fn a_cut_stream_is_resumed_by_its_event_id() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[fixture.url()]).await?;
    let call = session.request_body(
        "tools/call",
        json!({"name": "test_reconnection", "arguments": {}}),
    );
    let mut stream = session.post(&call).await?;
    let mut last_event_id = None;
    while let Some(event) = stream.next_event().await? {
        assert_eq!(
            event.data, "",
            "nothing but the priming event before the cut"
        );
        last_event_id = event.id.or(last_event_id);
    }
    let resumed = session.listen(last_event_id.as_deref()).await?;
    result_of(read_exchange(resumed, &call).await?.response)?;
    Ok(())
}

#[tokio::test]
async fn a_restart_forgets_every_session() -> anyhow::Result<()> {
    let mut fixture = Fixture::start("one").await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[fixture.url()]).await?;
    session.increment().await?;
    fixture.restart().await?;
    let call = session.request_body("tools/call", json!({"name": "increment", "arguments": {}}));
    assert_eq!(session.post(&call).await?.status, 404);
    Ok(())
}
