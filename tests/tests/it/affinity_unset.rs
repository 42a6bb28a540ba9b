//! No word about affinity in the settings: each server's own answer decides, and clients never share what an upstream
//! remembers.

use http::StatusCode;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::servers::Server;
use mooring_tests::session::{McpSession, read_exchange, result_of};
use mooring_tests::wait::{STARTED_WITHIN, until_true};
use serde_json::json;

use crate::everything_streams::{read_up_to, text_of};
use crate::rig::{increment, store_commands};

const STATELESS: &[&str] = &["--replies", "stateless-json"];

fn settings(instances: &[String]) -> Settings {
    Settings::toml(format!(
        "[[servers]]\nid = \"tools\"\ninstances = {instances:?}\n"
    ))
}

/// Waits until the gateway has decided so.
async fn decided(gateway: &Gateway, affinity: &str) -> anyhow::Result<()> {
    let client = HttpClient::default();
    until_true("the decision", STARTED_WITHIN, async || {
        let ready = client.get(&gateway.url("/readyz")).await?.json().await?;
        Ok(ready["parts"]["servers"]["tools"]["affinity"] == affinity)
    })
    .await
}

/// Two clients of one user each count from one.
async fn check_not_shared(gateway: &Gateway) -> anyhow::Result<()> {
    let (client, endpoint) = (HttpClient::default(), [gateway.mcp_url("tools")]);
    let mut sessions = Vec::new();
    for _ in 0..2 {
        sessions.push(McpSession::open(&client, &endpoint).await?);
    }
    for count in 1..=3 {
        for session in &mut sessions {
            assert_eq!(session.increment().await?, count);
        }
    }
    for mut session in sessions {
        assert_eq!(session.delete().await?.status, 204);
    }
    Ok(())
}

#[tokio::test]
async fn clients_do_not_share_what_an_upstream_remembers() -> anyhow::Result<()> {
    let (one, other) = (Fixture::start("a").await?, Fixture::start("b").await?);
    let mut gateway = Gateway::start("unset", settings(&[one.url(), other.url()])).await?;
    check_not_shared(&gateway).await?;
    until_true("the log line", STARTED_WITHIN, async || {
        let log = gateway.process().log_text();
        Ok(log.contains("the server assigns session ids: its sessions are kept"))
    })
    .await?;
    // What the gateway asked for itself is deleted again.
    until_true("no session is left", STARTED_WITHIN, async || {
        let (one, other) = (one.stats().await?, other.stats().await?);
        Ok(one.sessions_live + other.sessions_live == 0)
    })
    .await
}

#[tokio::test]
async fn clients_do_not_share_a_server_that_could_not_be_asked_at_the_start() -> anyhow::Result<()>
{
    let mut fixture = Fixture::start("late").await?;
    fixture.process().kill_now()?;
    let mut gateway = Gateway::start("unset", settings(&[fixture.url()])).await?;
    until_true("the log line", STARTED_WITHIN, async || {
        let log = gateway.process().log_text();
        Ok(log.contains("its sessions are kept until they have answered"))
    })
    .await?;
    fixture.restart().await?;
    check_not_shared(&gateway).await
}

#[tokio::test]
async fn one_stateful_instance_makes_a_server_stateful() -> anyhow::Result<()> {
    let stateful = Fixture::start("stateful").await?;
    let stateless = Fixture::start_with("stateless", STATELESS).await?;
    for instances in [
        [stateful.url(), stateless.url()],
        [stateless.url(), stateful.url()],
    ] {
        let gateway = Gateway::start("unset", settings(&instances)).await?;
        let (client, endpoint) = (HttpClient::default(), [gateway.mcp_url("tools")]);
        for _ in 0..4 {
            let session = McpSession::open(&client, &endpoint).await?;
            assert!(session.id().is_some(), "every session is kept");
        }
        decided(&gateway, "on").await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_server_without_session_ids_costs_no_record() -> anyhow::Result<()> {
    let fixture = Fixture::start_with("plain", STATELESS).await?;
    let mut gateway = Gateway::start("unset", settings(&[fixture.url()])).await?;
    decided(&gateway, "off").await?;
    assert!(
        (gateway.process().log_text()).contains("no instance of the server assigns session ids")
    );
    let before = store_commands(&gateway).await?;
    let mut session = McpSession::open(&HttpClient::default(), &[gateway.mcp_url("tools")]).await?;
    assert_eq!(session.id(), None);
    let result = session.call("whoami", json!({})).await?;
    assert_eq!(result["structuredContent"]["instance"], "plain");
    assert_eq!(store_commands(&gateway).await?, before);
    Ok(())
}

#[tokio::test]
async fn gateways_that_know_different_things_of_a_server_serve_each_others_clients()
-> anyhow::Result<()> {
    let shared = tempfile::TempDir::new()?;
    let fixture = Fixture::start_with("plain", STATELESS).await?;
    let mut gone = Fixture::start_with("gone", STATELESS).await?;
    let both = settings(&[fixture.url(), gone.url()]).state_home(shared.path());
    let knows = Gateway::start("knows", both.clone()).await?;
    decided(&knows, "off").await?;
    gone.process().kill_now()?;
    let knows_not = Gateway::start("knows-not", both).await?;
    decided(&knows_not, "on").await?;

    let client = HttpClient::default();
    for first in [[&knows, &knows_not], [&knows_not, &knows]] {
        let endpoints = first.map(|gateway| gateway.mcp_url("tools"));
        let mut session = McpSession::open(&client, &endpoints).await?;
        for _ in 0..4 {
            let result = session.call("whoami", json!({})).await?;
            assert_eq!(result["structuredContent"]["instance"], "plain");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_becomes_stateful_is_not_shared() -> anyhow::Result<()> {
    let mut fixture = Fixture::start_with("changing", STATELESS).await?;
    let gateway = Gateway::start("unset", settings(&[fixture.url()])).await?;
    decided(&gateway, "off").await?;
    let client = HttpClient::default();
    let mut early = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    early.call("whoami", json!({})).await?;

    fixture.restart_with(&[]).await?;
    // The instance's own refusal, and then the gateway's: this client has to initialize again.
    for _ in 0..2 {
        let call: serde_json::Value = serde_json::from_str(&increment("1"))?;
        assert_eq!(early.post(&call).await?.status, StatusCode::BAD_REQUEST);
    }
    check_not_shared(&gateway).await?;
    decided(&gateway, "on").await
}

/// server-everything asks its client, which it may only do where it knows who that is.
#[tokio::test]
async fn a_real_server_asks_its_client_in_a_default_installation() -> anyhow::Result<()> {
    let server = Server::everything("default").await?;
    let gateway = Gateway::start("unset", settings(&[server.url()])).await?;
    let client = HttpClient::default();
    for (tool, method, answer, expected) in [
        (
            "trigger-elicitation-request",
            "elicitation/create",
            json!({"action": "accept", "content": {"name": "Ada"}}),
            "- Name: Ada",
        ),
        (
            "trigger-sampling-request",
            "sampling/createMessage",
            json!({"role": "assistant", "model": "model-1", "content": {"type": "text", "text": "said"}}),
            "\"model\": \"model-1\"",
        ),
    ] {
        let mut session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
        let params = json!({"name": tool, "arguments": {"prompt": "ask"}});
        let call = session.request_body("tools/call", params);
        let mut stream = session.post(&call).await?;
        let asked = read_up_to(&mut stream, method).await?;
        let id = asked.last().map(|question| question["id"].clone());
        let message = json!({"jsonrpc": "2.0", "id": id, "result": answer});
        assert_eq!(session.post(&message).await?.status, 202);
        let answered = result_of(read_exchange(stream, &call).await?.response)?;
        let text = text_of(&answered);
        assert!(text.contains(expected), "{tool}: {text}");
    }
    Ok(())
}
