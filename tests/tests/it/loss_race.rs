//! Many requests meet one loss at the same time, at several gateways: one of them moves the session, all are answered.

use mooring_tests::client::HttpClient;
use mooring_tests::fleet::{Fleet, settings_toml};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::McpSession;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::recovery::{Pair, binding, call, count_of, mark_of, rebinds, whoami};

/// Calls at once on each session.
const CALLS: u64 = 12;
/// Sessions opened before enough of them have the same home; two instances share them about evenly.
const OPENED_MAX: usize = 64;

/// Opens sessions until `count` have one home; the home is instance `a`.
async fn sessions_at_a(endpoints: &[String], count: usize) -> anyhow::Result<Vec<McpSession>> {
    let client = HttpClient::default();
    let mut at_a = Vec::new();
    for _ in 0..OPENED_MAX {
        if at_a.len() == count {
            break;
        }
        let mut session = McpSession::open(&client, endpoints).await?;
        // Every gateway reads the session and has a connection to its home.
        for _ in endpoints {
            session.increment().await?;
        }
        if whoami(&mut session).await?.instance == "a" {
            at_a.push(session);
        }
    }
    assert_eq!(at_a.len(), count, "enough sessions at one instance");
    Ok(at_a)
}

/// Kills the sessions' home, and makes every call at once, spread over the gateways.
async fn race(
    gateways: &[Gateway],
    pair: &mut Pair,
    sessions: &[McpSession],
) -> anyhow::Result<()> {
    let [home, other] = pair.both();
    let initializes_before = other.stats().await?.initializes;
    home.process().kill_now()?;
    let endpoints: Vec<String> = gateways
        .iter()
        .map(|gateway| gateway.mcp_url("tools"))
        .collect();
    let client = HttpClient::default();
    let mut calls = JoinSet::new();
    for (of, session) in sessions.iter().enumerate() {
        let mut last = session.fork(&client, &endpoints);
        for number in 0..usize::try_from(CALLS)? {
            let endpoint = &endpoints[number % endpoints.len()];
            // A fork of a fork: no two of them use the same request id.
            let mut fork = last.fork(&client, std::slice::from_ref(endpoint));
            last = fork.fork(&client, &[]);
            calls.spawn(async move { anyhow::Ok((of, call(&mut fork, "increment").await?)) });
        }
    }
    let mut counts = vec![Vec::new(); sessions.len()];
    let mut marked = vec![0; sessions.len()];
    while let Some(answered) = calls.join_next().await {
        let (of, exchange) = answered??;
        let count = count_of(&exchange).unwrap_or_else(|| panic!("a count: {exchange:?}"));
        counts[of].push(count);
        marked[of] += usize::from(mark_of(&exchange).is_some());
    }
    for (counts, marked) in counts.iter_mut().zip(marked) {
        counts.sort_unstable();
        assert_eq!(
            *counts,
            (1..=CALLS).collect::<Vec<_>>(),
            "each call ran once"
        );
        assert!(marked >= 1, "somebody is told of the loss");
    }
    let expected = u64::try_from(sessions.len())?;
    assert_eq!(
        rebinds(gateways, "upstream").await?,
        expected,
        "one rebind a session"
    );
    let initializes = other.stats().await?.initializes - initializes_before;
    assert_eq!(initializes, expected, "one new upstream session each");
    Ok(())
}

async fn race_on_redis(sessions: usize) -> anyhow::Result<()> {
    let mut pair = Pair::start().await?;
    let fleet = Fleet::start(3, &pair.urls()).await?;
    let sessions = sessions_at_a(&fleet.endpoints(), sessions).await?;
    race(&fleet.gateways, &mut pair, &sessions).await?;
    for session in &sessions {
        assert_eq!(binding(&fleet.redis, session)?["rebinds"], 1);
    }
    Ok(())
}

/// Three processes on one embedded file.
async fn race_on_a_file(sessions: usize) -> anyhow::Result<()> {
    let mut pair = Pair::start().await?;
    let state = TempDir::with_prefix("mooring-shared-")?;
    let settings = Settings::toml(settings_toml("embedded", &pair.urls())).state_home(state.path());
    let gateways = Gateway::fleet(3, &settings).await?;
    let endpoints: Vec<String> = gateways
        .iter()
        .map(|gateway| gateway.mcp_url("tools"))
        .collect();
    let sessions = sessions_at_a(&endpoints, sessions).await?;
    race(&gateways, &mut pair, &sessions).await
}

#[tokio::test]
async fn twelve_calls_at_once_over_redis_make_one_rebind() -> anyhow::Result<()> {
    race_on_redis(1).await
}

#[tokio::test]
async fn three_sessions_interleaved_over_redis_make_one_rebind_each() -> anyhow::Result<()> {
    race_on_redis(3).await
}

#[tokio::test]
async fn twelve_calls_at_once_over_one_file_make_one_rebind() -> anyhow::Result<()> {
    race_on_a_file(1).await
}

#[tokio::test]
async fn three_sessions_interleaved_over_one_file_make_one_rebind_each() -> anyhow::Result<()> {
    race_on_a_file(3).await
}
