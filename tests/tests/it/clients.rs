//! The SDK clients, against one fixture directly: what they report when nothing stands in between.

use mooring_tests::fixture::Fixture;
use mooring_tests::port::free_port;
use mooring_tests::script::{Counts, Retries, run_client};
use serde_json::json;

use crate::rmcp_client::RmcpSession;

/// Every session saw 1 to `calls`, and nothing went wrong.
pub(crate) fn assert_whole(report: &Counts, sessions: usize, calls: u64) {
    let expected: Vec<_> = (1..=calls).map(|count| json!(count)).collect();
    assert_eq!(report.sessions.len(), sessions);
    for (session, counts) in &report.sessions {
        assert_eq!(counts, &expected, "session {session}: {report:?}");
    }
    assert!(report.errors.is_empty(), "{report:?}");
    assert_eq!(report.retries.unknown, 0, "{report:?}");
}

async fn check(script: &str, sdk: &[&str]) -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let url = fixture.url();
    let mut arguments = vec!["--url", &url, "--sessions", "8", "--calls", "5"];
    arguments.extend(sdk);
    let report = run_client(script, &arguments).await?;
    assert_whole(&report, 8, 5);
    assert_eq!(report.retries, Retries::default());
    let stats = fixture.stats().await?;
    assert_eq!(
        (
            stats.initializes,
            stats.deletes,
            stats.calls_of("increment")
        ),
        (8, 8, 40)
    );

    // One endpoint in two refuses connections: its turn goes to the other, and no count is lost.
    let refusing = format!("http://127.0.0.1:{}/mcp", free_port()?);
    arguments.extend(["--url", &refusing]);
    let report = run_client(script, &arguments).await?;
    assert_whole(&report, 8, 5);
    assert!(report.retries.refused > 0, "{report:?}");
    assert_eq!(report.retries.broken, 0, "{report:?}");
    Ok(())
}

#[tokio::test]
async fn the_python_sdk_counts() -> anyhow::Result<()> {
    check("round_robin.py", &[]).await
}

#[tokio::test]
async fn the_typescript_sdk_v2_counts() -> anyhow::Result<()> {
    check("round_robin.mjs", &["--sdk", "v2"]).await
}

#[tokio::test]
async fn the_typescript_sdk_v1_counts() -> anyhow::Result<()> {
    check("round_robin.mjs", &["--sdk", "v1"]).await
}

#[tokio::test]
async fn the_rmcp_client_counts() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let refusing = format!("http://127.0.0.1:{}/mcp", free_port()?);
    let session = RmcpSession::open(&[fixture.url(), refusing], 0).await?;
    for expected in 1..=5 {
        assert_eq!(session.increment().await?, expected);
    }
    session.close().await?;
    assert_eq!(fixture.stats().await?.deletes, 1);
    Ok(())
}
