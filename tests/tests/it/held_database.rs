//! Another process holds the embedded store: clients hear of it before they give up.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use http::StatusCode;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::Gateway;
use mooring_tests::session::{McpSession, Opening};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::rig::{kept, sharing};

/// How long a client waits that gives a server ten seconds to initialize, and as much for a busy machine.
const CLIENT_WAITS: Duration = Duration::from_secs(20);

/// Begins a write and does not end it.
const HOLDER: &str = r#"
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"#;

#[tokio::test]
async fn initialize_is_refused_in_time_while_another_process_holds_the_database()
-> anyhow::Result<()> {
    let (fixture, home) = (Fixture::start("one").await?, TempDir::new()?);
    let settings = kept(&[fixture.url()]);
    let gateway: Gateway = sharing("held", &settings, home.path()).await?;
    let mut holder = Command::new("python3")
        .args(["-c", HOLDER])
        .arg(home.path().join("mooring/sessions.db"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = holder.stdout.take().context("its output")?;
    let held = BufReader::new(output).lines().next_line().await?;
    assert_eq!(held.as_deref(), Some("held"));
    let client = HttpClient::new(CLIENT_WAITS);
    let request = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": Opening::default().initialize_params(),
    });
    let request = http::Request::post(gateway.mcp_url("tools"))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(request.to_string().into())?;
    let refused = client.send(request).await?;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    drop(holder.stdin.take());
    holder.wait().await?;
    let mut session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    assert_eq!(session.increment().await?, 1);
    Ok(())
}
