//! Three gateways, one Redis with the module, two stateful instances: a session survives whichever gateway
//! each of its requests reaches.

use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::Fleet;
use mooring_tests::script::{Counts, run_client};
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use tokio::task::JoinSet;

use crate::clients::assert_whole;
use crate::rmcp_client::RmcpSession;

#[tokio::test]
async fn a_session_counts_on_whichever_gateway_each_request_lands() -> anyhow::Result<()> {
    let (first, second) = (Fixture::start("a").await?, Fixture::start("b").await?);
    let fleet = Fleet::start(3, &[first.url(), second.url()]).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &fleet.endpoints()).await?;
    for expected in 1..=9 {
        assert_eq!(session.increment().await?, expected);
    }
    assert_eq!(session.delete().await?.status, 204);
    let (first, second) = (first.stats().await?, second.stats().await?);
    assert_eq!(
        first.initializes + second.initializes,
        1,
        "one upstream session, and no more"
    );
    assert_eq!(
        first.deletes + second.deletes,
        1,
        "the upstream session is ended too"
    );
    Ok(())
}

/// Runs a client of `tests/clients` whose requests go to these endpoints in turn.
pub(crate) async fn round_robin(
    script: &str,
    endpoints: &[String],
    more: &[&str],
) -> anyhow::Result<Counts> {
    let mut arguments = more.to_vec();
    for endpoint in endpoints {
        arguments.extend(["--url", endpoint]);
    }
    run_client(script, &arguments).await
}

async fn check_sdk(script: &str, sdk: &[&str]) -> anyhow::Result<()> {
    let (first, second) = (Fixture::start("a").await?, Fixture::start("b").await?);
    let fleet = Fleet::start(3, &[first.url(), second.url()]).await?;
    let arguments = [&["--sessions", "64", "--calls", "5"], sdk].concat();
    let report = round_robin(script, &fleet.endpoints(), &arguments).await?;
    assert_whole(&report, 64, 5);
    for fixture in [&first, &second] {
        let stats = fixture.stats().await?;
        assert!(
            stats.initializes > 0,
            "sessions are spread over the instances: {stats:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn the_python_sdk_counts_round_robin() -> anyhow::Result<()> {
    check_sdk("round_robin.py", &[]).await
}

#[tokio::test]
async fn the_typescript_sdk_counts_round_robin() -> anyhow::Result<()> {
    check_sdk("round_robin.mjs", &["--sdk", "v2"]).await
}

#[tokio::test]
async fn the_rmcp_client_counts_round_robin() -> anyhow::Result<()> {
    let (first, second) = (Fixture::start("a").await?, Fixture::start("b").await?);
    let fleet = Fleet::start(3, &[first.url(), second.url()]).await?;
    let endpoints = fleet.endpoints();
    let mut sessions = JoinSet::new();
    for offset in 0..64 {
        let endpoints = endpoints.clone();
        sessions.spawn(async move {
            let session = RmcpSession::open(&endpoints, offset).await?;
            for expected in 1..=5 {
                assert_eq!(session.increment().await?, expected);
            }
            session.close().await
        });
    }
    while let Some(session) = sessions.join_next().await {
        session??;
    }
    Ok(())
}

/// The report of a client one of whose gateways was killed while it counted. A call whose connection broke is
/// sent again by the client, as a load balancer would do, or made anew, and may by then have run: so each
/// broken call may leave one gap in its session's counts, and nothing else may.
pub(crate) fn assert_no_count_lost(report: &Counts, sessions: usize, calls: u64) {
    assert!(report.errors.is_empty(), "{report:?}");
    assert!(
        report.retries.refused + report.retries.broken > 0,
        "the kill was noticed: {report:?}"
    );
    assert_eq!(report.sessions.len(), sessions);
    let mut gaps = 0;
    for (session, counts) in &report.sessions {
        let counts: Vec<u64> = counts
            .iter()
            .filter_map(serde_json::Value::as_u64)
            .collect();
        assert_eq!(counts.len() as u64, calls, "session {session}: {counts:?}");
        assert!(
            counts.is_sorted_by(|earlier, later| earlier < later),
            "session {session}: {counts:?}"
        );
        gaps += counts.last().unwrap() - calls;
    }
    let retries = report.retries;
    assert!(gaps <= retries.broken, "{gaps} gaps: {retries:?}");
    assert!(
        retries.unknown <= retries.broken,
        "a gateway that lives knows what ran: {retries:?}"
    );
}

/// SIGKILL of one gateway of three while 64 sessions count.
async fn check_kill(script: &str) -> anyhow::Result<()> {
    const SESSIONS: u64 = 64;
    const CALLS: u64 = 20;
    let (first, second) = (Fixture::start("a").await?, Fixture::start("b").await?);
    let mut fleet = Fleet::start(3, &[first.url(), second.url()]).await?;
    let endpoints = fleet.endpoints();
    let arguments = ["--sessions", "64", "--calls", "20", "--pause-ms", "10"];
    let killing = async {
        wait::until_true(
            "all sessions and a third of their calls",
            // The Python client imports for seconds on a busy machine.
            Duration::from_secs(180),
            async || {
                let (first, second) = (first.stats().await?, second.stats().await?);
                let begun = first.initializes + second.initializes == SESSIONS;
                let calls = first.calls_of("increment") + second.calls_of("increment");
                Ok(begun && calls > SESSIONS * CALLS / 3)
            },
        )
        .await?;
        fleet.gateways[1].process().kill_now()
    };
    let (report, killed) = tokio::join!(round_robin(script, &endpoints, &arguments), killing);
    killed?;
    assert_no_count_lost(&report?, 64, CALLS);
    let initializes = first.stats().await?.initializes + second.stats().await?.initializes;
    assert_eq!(
        initializes, SESSIONS,
        "a gateway's death moves no session to a new upstream one"
    );
    Ok(())
}

#[tokio::test]
async fn sigkill_of_a_gateway_loses_no_count_of_the_python_sdk() -> anyhow::Result<()> {
    check_kill("round_robin.py").await
}

#[tokio::test]
async fn sigkill_of_a_gateway_loses_no_count_of_the_typescript_sdk() -> anyhow::Result<()> {
    check_kill("round_robin.mjs").await
}
