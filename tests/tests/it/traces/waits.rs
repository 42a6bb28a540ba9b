//! What a call waits for besides its server: its client's answer, and an agent.

use mooring_tests::agent::{AgentHome, Ids};
use mooring_tests::client::HttpClient;
use mooring_tests::code::USER;
use mooring_tests::collector::Collector;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::Gateway;
use mooring_tests::session::{McpSession, Opening};
use serde_json::json;

use super::{SECRET, has, only, telemetry_toml};
use crate::rig::kept;

#[tokio::test]
async fn a_question_to_the_client_is_part_of_the_call_that_asks_it() -> anyhow::Result<()> {
    let (collector, fixture) = (Collector::start().await?, Fixture::start("one").await?);
    let settings = kept(&[fixture.url()]).more_toml(&telemetry_toml(&collector));
    let gateway = Gateway::start("traced", settings).await?;
    let opening = Opening {
        capabilities: json!({"elicitation": {}}),
        ..Opening::default()
    };
    let endpoints = [gateway.mcp_url("tools")];
    let mut session = McpSession::open_with(&HttpClient::default(), &endpoints, opening).await?;
    let params = json!({"name": "ask", "arguments": {"message": SECRET, "secret": SECRET}});
    let answer = json!({"action": "accept", "content": {"answer": SECRET}});
    let answering = |_: &_| Ok(answer.clone());
    session
        .request_answering("tools/call", params, answering)
        .await?;
    let spans = collector
        .until("the call", |spans| has(spans, "tools/call ask", "SERVER"))
        .await?;
    let asked = only(&spans, "elicitation/create", "CLIENT");
    assert!(asked.is_child_of(only(&spans, "tools/call ask", "SERVER")));
    assert_eq!(
        asked.attribute("mcp.method.name"),
        "Str(elicitation/create)"
    );
    assert!(!collector.text().contains(SECRET));
    Ok(())
}

#[tokio::test]
async fn a_run_of_an_agent_is_part_of_its_call() -> anyhow::Result<()> {
    let (collector, home) = (Collector::start().await?, AgentHome::new(Ids::Stay)?);
    let settings = home.settings("embedded", "")?;
    let settings = settings.more_toml(&telemetry_toml(&collector));
    let gateway = Gateway::start("traced", settings).await?;
    let opening = Opening::default().header(USER, "ada@example.org")?;
    let endpoints = [gateway.mcp_url("assistant")];
    let mut session = McpSession::open_with(&HttpClient::default(), &endpoints, opening).await?;
    session.call("assistant", json!({"prompt": SECRET})).await?;
    let spans = collector
        .until("the call", |spans| {
            has(spans, "tools/call assistant", "SERVER")
        })
        .await?;
    let ran = only(&spans, "invoke_agent assistant", "INTERNAL");
    assert!(ran.is_child_of(only(&spans, "tools/call assistant", "SERVER")));
    assert_eq!(ran.attribute("gen_ai.operation.name"), "Str(invoke_agent)");
    assert!(!collector.text().contains(SECRET));
    Ok(())
}
