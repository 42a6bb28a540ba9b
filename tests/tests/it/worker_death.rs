//! A gateway is killed: its sessions go on elsewhere, where they were; what it had begun is taken over.

use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::fleet::{Fleet, settings_toml};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::Value;
use tempfile::TempDir;

use crate::recovery::{Pair, attempt, binding, call, count_of, mark_of, rebinds, whoami};

/// Beats that lapse soon, so that the tests need not wait long for a death to be known; but not so soon that a gateway on a
/// busy machine counts as dead.
const QUICK_BEATS: &str = "[worker]\nbeat_interval_ms = 100\nbeat_ttl_ms = 2000\n";
const KNOWN_WITHIN: Duration = Duration::from_secs(30);
const DEATH_LOGGED: &str = "the worker that drove this session is dead";

/// Waits until the fleet's Redis counts the gateway of this name as dead.
async fn until_dead(fleet: &Fleet, name: &str) -> anyhow::Result<()> {
    wait::until_true(
        "the beat of the killed gateway to lapse",
        KNOWN_WITHIN,
        async || {
            let listed = fleet.redis.cli(&["-3", "--json", "WORKER.LIST"])?;
            let workers: Vec<Value> = serde_json::from_str(&listed)?;
            let has_name = |worker: &&Value| {
                let id = worker["worker"].as_str().unwrap_or_default();
                id.split(':').next() == Some(name)
            };
            let worker = workers.iter().find(has_name);
            Ok(worker.is_none_or(|worker| worker["alive"] == 0 || worker["alive"] == false))
        },
    )
    .await
}

#[tokio::test]
async fn a_dead_gateway_moves_no_healthy_instance() -> anyhow::Result<()> {
    let pair = Pair::start().await?;
    let mut fleet = Fleet::start_with(3, &pair.urls(), QUICK_BEATS).await?;
    let client = HttpClient::default();
    let endpoints = fleet.endpoints();
    let mut sessions = Vec::new();
    for _ in 0..4 {
        // All of them are driven by the first gateway, and by nobody else.
        let mut session = McpSession::open(&client, &endpoints[..1]).await?;
        assert_eq!(session.increment().await?, 1);
        let home = whoami(&mut session).await?;
        sessions.push((session.fork(&client, &endpoints[1..]), home));
    }
    fleet.gateways[0].process().kill_now()?;
    let survivors = fleet.gateways.split_off(1);

    // Before anybody knows of the death nothing is different, and nothing is counted.
    for (session, _) in &mut sessions {
        assert_eq!(session.increment().await?, 2);
    }
    until_dead(&fleet, "gateway-1").await?;
    for expected in 3..=6 {
        for (session, home) in &mut sessions {
            let exchange = call(session, "increment").await?;
            assert_eq!(count_of(&exchange), Some(expected), "{exchange:?}");
            assert_eq!(mark_of(&exchange), None, "nothing was lost");
            assert_eq!(whoami(session).await?, *home);
        }
    }
    for (session, _) in &sessions {
        assert_eq!(binding(&fleet.redis, session)?["rebinds"], 0);
    }
    assert_eq!(pair.initializes().await?, 4);
    assert_eq!(rebinds(&survivors, "upstream").await?, 0);
    assert_eq!(rebinds(&survivors, "worker").await?, 4, "once a session");
    let mut survivors = survivors;
    let logs = wait::until_logged(DEATH_LOGGED, 4, || {
        let gateways = survivors.iter_mut();
        gateways
            .map(|gateway| gateway.process().log_text())
            .collect()
    })
    .await?;
    assert_eq!(logs.matches(DEATH_LOGGED).count(), 4, "{logs}");
    Ok(())
}

/// A claim is made and never confirmed: the gateway dies while the instance hangs in its `initialize`.
#[tokio::test]
async fn a_gateway_killed_while_it_initialises_is_taken_over_when_its_lease_ends()
-> anyhow::Result<()> {
    let mut pair = Pair::start().await?;
    let short_lease = "[upstream]\nresponse_headers_timeout_ms = 1500\nclaim_lease_ms = 2000\n";
    let toml = format!("{short_lease}{QUICK_BEATS}");
    let mut fleet = Fleet::start_with(2, &pair.urls(), &toml).await?;
    let client = HttpClient::default();
    let endpoints = fleet.endpoints();
    let mut session = McpSession::open(&client, &endpoints).await?;
    assert_eq!(session.increment().await?, 1);
    let epoch = |bound: &Value| bound["epoch"].as_u64().unwrap_or_default();
    let first_epoch = epoch(&binding(&fleet.redis, &session)?);

    let (home, other) = pair.home_and_other(&mut session).await?;
    home.process().kill_now()?;
    other.process().stop()?;
    let mut fork = session.fork(&client, &endpoints[..1]);
    let abandoned = tokio::spawn(async move { attempt(&mut fork, "increment").await });
    let claimed = wait::until("the claim", KNOWN_WITHIN, async || {
        let bound = binding(&fleet.redis, &session)?;
        Ok((bound["state"] == "claimed").then_some(bound))
    })
    .await?;
    assert_eq!(claimed["instance"], other.url());
    fleet.gateways[0].process().kill_now()?;
    other.process().cont()?;
    assert!(abandoned.await?.is_err(), "its gateway is dead");

    let mut session = session.fork(&client, &endpoints[1..]);
    let exchange = call(&mut session, "increment").await?;
    assert_eq!(count_of(&exchange), Some(1), "{exchange:?}");
    assert!(mark_of(&exchange).is_some(), "{exchange:?}");
    let bound = binding(&fleet.redis, &session)?;
    assert_eq!(bound["state"], "bound");
    assert!(first_epoch < epoch(&claimed) && epoch(&claimed) < epoch(&bound));
    assert_eq!(session.increment().await?, 2);
    assert_eq!(whoami(&mut session).await?.instance, other.instance());
    assert_eq!(rebinds(&fleet.gateways[1..], "upstream").await?, 1);
    Ok(())
}

/// The same for processes that share one embedded file.
#[tokio::test]
async fn a_dead_process_on_one_file_moves_no_healthy_instance() -> anyhow::Result<()> {
    let pair = Pair::start().await?;
    let state = TempDir::with_prefix("mooring-shared-")?;
    let toml = settings_toml("embedded", &pair.urls()) + QUICK_BEATS;
    let settings = Settings::toml(toml).state_home(state.path());
    let mut gateways = Gateway::fleet(3, &settings).await?;
    let client = HttpClient::default();
    let endpoints: Vec<String> = gateways
        .iter()
        .map(|gateway| gateway.mcp_url("tools"))
        .collect();
    let mut session = McpSession::open(&client, &endpoints[..1]).await?;
    assert_eq!(session.increment().await?, 1);
    let home = whoami(&mut session).await?;
    gateways.remove(0).process().kill_now()?;

    let mut session = session.fork(&client, &endpoints[1..]);
    wait::until_true("the death to be noticed", KNOWN_WITHIN, async || {
        assert_eq!(whoami(&mut session).await?, home);
        Ok(rebinds(&gateways, "worker").await? == 1)
    })
    .await?;
    for expected in 2..=5 {
        assert_eq!(session.increment().await?, expected);
    }
    assert_eq!(rebinds(&gateways, "worker").await?, 1, "counted once");
    assert_eq!(rebinds(&gateways, "upstream").await?, 0);
    assert_eq!(pair.initializes().await?, 1);
    Ok(())
}
