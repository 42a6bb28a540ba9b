//! server-everything, the reference server, in two instances behind three gateways. It does not count, but it
//! keeps two things per session that do: whether simulated logging runs, which a tool toggles and says, and
//! the resources that the session has made.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use mooring_tests::fleet::Fleet;
use mooring_tests::servers::Server;
use mooring_tests::wait;
use serde_json::{Map, Value};
use tokio::task::JoinSet;

use crate::fleet::round_robin;
use crate::rmcp_client::RmcpSession;

/// Three gateways and the two instances behind them.
pub(crate) struct Rig {
    pub(crate) fleet: Fleet,
    _instances: (Server, Server),
}

impl Rig {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let instances = tokio::try_join!(Server::everything("a"), Server::everything("b"))?;
        let fleet = Fleet::start(3, &[instances.0.url(), instances.1.url()]).await?;
        Ok(Self {
            fleet,
            _instances: instances,
        })
    }
}

/// What the toggle said: whether logging runs now, and in which session of the server's.
fn toggled(answer: &Value) -> anyhow::Result<(bool, &str)> {
    let text = answer.as_str().context("a text")?;
    let (verb, rest) = text.split_once(' ').context("a verb")?;
    let session = rest.split_once("for session ").context("a session")?.1;
    let session = session
        .split_whitespace()
        .next()
        .context("a session's id")?;
    match verb {
        "Started" => Ok((true, session)),
        "Stopped" => Ok((false, session)),
        _ => anyhow::bail!("neither started nor stopped: {text}"),
    }
}

/// Many sessions toggle at once. One call that reached another session would break the alternation of both.
async fn check_toggles(script: &str, sdk: &[&str]) -> anyhow::Result<()> {
    const SESSIONS: usize = 32;
    let rig = Rig::start().await?;
    let common = [
        "--sessions",
        "32",
        "--calls",
        "6",
        "--tool",
        "toggle-simulated-logging",
    ];
    let report = round_robin(script, &rig.fleet.endpoints(), &[&common, sdk].concat()).await?;
    assert!(report.errors.is_empty(), "{report:?}");
    assert_eq!(report.sessions.len(), SESSIONS);
    let mut upstream_sessions = BTreeSet::new();
    for (session, answers) in &report.sessions {
        let toggles = answers
            .iter()
            .map(toggled)
            .collect::<anyhow::Result<Vec<_>>>()?;
        let states: Vec<bool> = toggles.iter().map(|(runs, _)| *runs).collect();
        assert_eq!(
            states,
            [true, false, true, false, true, false],
            "session {session}"
        );
        let used: BTreeSet<&str> = toggles.iter().map(|(_, upstream)| *upstream).collect();
        assert_eq!(used.len(), 1, "one upstream session: {toggles:?}");
        upstream_sessions.extend(used);
    }
    assert_eq!(upstream_sessions.len(), SESSIONS, "none is shared");
    Ok(())
}

#[tokio::test]
async fn the_python_sdk_toggles_what_is_its_own() -> anyhow::Result<()> {
    check_toggles("round_robin.py", &[]).await
}

#[tokio::test]
async fn the_typescript_sdk_v2_toggles_what_is_its_own() -> anyhow::Result<()> {
    check_toggles("round_robin.mjs", &["--sdk", "v2"]).await
}

#[tokio::test]
async fn the_typescript_sdk_v1_toggles_what_is_its_own() -> anyhow::Result<()> {
    check_toggles("round_robin.mjs", &["--sdk", "v1"]).await
}

/// Makes `files` resources in one session and expects it to list, after the n-th, exactly its own first n.
/// Making one is idempotent by name, so that a client may send it again.
async fn make_files(
    endpoints: Vec<String>,
    number: usize,
    files: usize,
    made: Arc<AtomicUsize>,
) -> anyhow::Result<()> {
    let session = RmcpSession::open(&endpoints, number).await?;
    let mut expected = BTreeSet::new();
    for file in 1..=files {
        let name = format!("session-{number}-file-{file}");
        let mut arguments = Map::new();
        arguments.insert("name".to_owned(), name.as_str().into());
        arguments.insert("data".to_owned(), "data:text/plain,mooring".into());
        session.call("gzip-file-as-resource", arguments).await?;
        made.fetch_add(1, Ordering::Relaxed);
        expected.insert(format!("demo://resource/session/{name}"));
        let listed: BTreeSet<String> = session
            .resource_uris()
            .await?
            .into_iter()
            .filter(|uri| uri.starts_with("demo://resource/session/"))
            .collect();
        assert_eq!(listed, expected, "session {number} after its file {file}");
    }
    session.close().await
}

#[tokio::test]
async fn the_rmcp_client_finds_every_resource_it_made_and_no_other() -> anyhow::Result<()> {
    let rig = Rig::start().await?;
    let made = Arc::new(AtomicUsize::new(0));
    let mut sessions = JoinSet::new();
    for number in 0..32 {
        sessions.spawn(make_files(
            rig.fleet.endpoints(),
            number,
            5,
            Arc::clone(&made),
        ));
    }
    while let Some(session) = sessions.join_next().await {
        session??;
    }
    Ok(())
}

/// The server gives its events ids, so that rmcp resumes a stream that the kill broke, through another
/// gateway and by its own means.
#[tokio::test]
async fn sigkill_of_a_gateway_loses_no_resource_of_the_rmcp_client() -> anyhow::Result<()> {
    const SESSIONS: usize = 16;
    const FILES: usize = 12;
    let mut rig = Rig::start().await?;
    let made = Arc::new(AtomicUsize::new(0));
    let mut sessions = JoinSet::new();
    for number in 0..SESSIONS {
        sessions.spawn(make_files(
            rig.fleet.endpoints(),
            number,
            FILES,
            Arc::clone(&made),
        ));
    }
    wait::until_true(
        "a third of the files",
        Duration::from_secs(60),
        async || Ok(made.load(Ordering::Relaxed) > SESSIONS * FILES / 3),
    )
    .await?;
    rig.fleet.gateways[1].process().kill_now()?;
    assert!(
        made.load(Ordering::Relaxed) < SESSIONS * FILES,
        "the kill came in the middle"
    );
    while let Some(session) = sessions.join_next().await {
        session??;
    }
    for survivor in [&rig.fleet.gateways[0], &rig.fleet.gateways[2]] {
        let moved = survivor
            .metric("session_affinity_rebinds_total", &["reason=\"upstream\""])
            .await?;
        assert_eq!(moved, 0.0, "a gateway's death moves no session");
    }
    Ok(())
}
