//! Processes that begin or end all at once, or are killed: one session is opened, and no step of it is lost or doubled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mooring_tests::fixture::Fixture;
use mooring_tests::stdio_client::StdioClient;
use mooring_tests::wait;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::{SERVER, count, count_anew, with_fastmcp, with_fixture};
use crate::faulty::{Fate, FaultyProxy};
use crate::rig::kept;

/// How many processes are started at once, and how many are killed.
const PROCESSES: u64 = 20;

#[tokio::test]
async fn of_twenty_processes_that_begin_at_once_one_opens_the_session_of_all() -> anyhow::Result<()>
{
    let scene = with_fixture().await?;
    let mut processes = JoinSet::new();
    for _ in 0..PROCESSES {
        let settings = scene.settings.clone();
        processes.spawn(async move { count_anew(&settings, &[]).await });
    }
    let (mut counts, mut sessions) = (BTreeSet::new(), BTreeSet::new());
    while let Some(counted) = processes.join_next().await {
        let (count, session) = counted??;
        counts.insert(count);
        sessions.insert(session);
    }
    assert_eq!(counts, (1..=PROCESSES).collect());
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    let stats = scene.server.stats().await?;
    assert_eq!((stats.initializes, stats.sessions_live), (1, 1));
    Ok(())
}

#[tokio::test]
async fn a_process_that_is_killed_after_its_answer_takes_nothing_with_it() -> anyhow::Result<()> {
    let scene = with_fastmcp().await?;
    let mut sessions = BTreeSet::new();
    for expected in 1..=PROCESSES {
        let mut client = StdioClient::open(&scene.settings, SERVER, &[]).await?;
        let (counted, session) = count(&mut client).await?;
        client.kill().await?;
        assert_eq!(counted, expected);
        sessions.insert(session);
    }
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    Ok(())
}

#[tokio::test]
async fn a_process_that_is_killed_while_it_opens_the_session_leaves_it_to_the_next()
-> anyhow::Result<()> {
    let server = Fixture::start("one").await?;
    let is_held = Arc::new(AtomicBool::new(false));
    let holding = Arc::clone(&is_held);
    let proxy = FaultyProxy::start(server.port(), move |request| {
        // The first process's is never answered.
        let is_initialize = request.text.contains("\"initialize\"");
        if is_initialize && !holding.swap(true, Ordering::SeqCst) {
            Fate::Hold
        } else {
            Fate::Forward
        }
    })
    .await?;
    let state_home = TempDir::new()?;
    let settings = kept(&[proxy.url()]).state_home(state_home.path());
    let mut opening = StdioClient::start(&settings, SERVER, &[])?;
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "opening", "version": "1"},
    });
    opening.send("initialize", params.clone()).await?;
    wait::until_true(
        "the first process to open",
        wait::STARTED_WITHIN,
        async || Ok(is_held.load(Ordering::SeqCst)),
    )
    .await?;
    opening.kill().await?;

    for expected in 1..=2 {
        let mut client = StdioClient::start(&settings, SERVER, &[])?;
        client.request("initialize", params.clone()).await?;
        assert_eq!(count(&mut client).await?.0, expected);
        client.close().await?;
    }
    assert_eq!(server.stats().await?.initializes, 1);
    Ok(())
}
