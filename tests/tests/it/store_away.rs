//! Redis goes away and returns: what is served meanwhile, what is refused and how, and what holds afterwards.
//!
//! A request may be answered 200 or 503 and nothing else while the store is away: 404 would make a client throw away a
//! session that is only out of sight.

use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::fleet::{Fleet, settings_toml};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::{Module, Redis};
use mooring_tests::session::McpSession;
use mooring_tests::wait;

use crate::recovery::{Pair, attempt, binding, mark_of, readiness, rebinds, record, whoami};

const NOTICED_WITHIN: Duration = Duration::from_secs(60);

/// How Redis is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// The process is dead, and connections are refused.
    Killed,
    /// The process hangs: connections stand, and nothing is answered.
    Hanging,
}

impl Outage {
    pub(crate) fn begin(self, redis: &mut Redis) -> anyhow::Result<()> {
        match self {
            Self::Killed => redis.process().kill_now(),
            Self::Hanging => redis.process().stop(),
        }
    }

    pub(crate) async fn end(self, redis: &mut Redis) -> anyhow::Result<()> {
        match self {
            Self::Killed => redis.restart().await,
            Self::Hanging => redis.process().cont(),
        }
    }
}

/// Waits until every gateway's `/readyz` says `word`.
pub(crate) async fn until_all(gateways: &[Gateway], word: &str) -> anyhow::Result<()> {
    for gateway in gateways {
        wait::until_true(
            &format!("a gateway to be {word}"),
            NOTICED_WITHIN,
            async || Ok(readiness(gateway).await?.1 == word),
        )
        .await?;
    }
    Ok(())
}

/// A session opened and used through one gateway only.
async fn opened_at(gateway: &Gateway) -> anyhow::Result<McpSession> {
    let mut session = McpSession::open(&HttpClient::default(), &[gateway.mcp_url("tools")]).await?;
    assert_eq!(session.increment().await?, 1);
    Ok(session)
}

/// The same session through another gateway.
fn through(session: &McpSession, gateway: &Gateway) -> McpSession {
    session.fork(&HttpClient::default(), &[gateway.mcp_url("tools")])
}

/// Waits until every gateway has asked Redis for the others: it does so with each heartbeat.
async fn until_all_have_met(fleet: &Fleet) -> anyhow::Result<()> {
    let beats = || -> anyhow::Result<String> { fleet.redis.cli(&["WORKER.LIST"]) };
    let beaten_at = |list: &str| -> Vec<String> {
        let mut lines = list.lines();
        let mut found = Vec::new();
        while let Some(line) = lines.next() {
            if line.trim_matches('"') == "last_beat_at" {
                found.extend(lines.next().map(str::to_owned));
            }
        }
        found
    };
    for _ in 0..2 {
        let before = beaten_at(&beats()?);
        assert_eq!(before.len(), fleet.gateways.len(), "{before:?}");
        wait::until_true("heartbeats", NOTICED_WITHIN, async || {
            let now = beaten_at(&beats()?);
            Ok(before.iter().all(|beat| !now.contains(beat)))
        })
        .await?;
    }
    Ok(())
}

async fn assert_begins_later(gateway: &Gateway) -> anyhow::Result<()> {
    let client = HttpClient::default();
    let opened = McpSession::open(&client, &[gateway.mcp_url("tools")]).await;
    let error = format!("{:#}", opened.expect_err("no session can begin"));
    assert!(error.contains("503"), "{error}");
    Ok(())
}

async fn check_outage(outage: Outage) -> anyhow::Result<()> {
    let mut pair = Pair::start().await?;
    let mut fleet = Fleet::start(2, &pair.urls()).await?;
    let mut known = opened_at(&fleet.gateways[0]).await?;
    let mut ended = opened_at(&fleet.gateways[0]).await?;
    let home = whoami(&mut known).await?;
    until_all_have_met(&fleet).await?;
    outage.begin(&mut fleet.redis)?;
    until_all(&fleet.gateways, "degraded").await?;
    for gateway in &fleet.gateways {
        assert_eq!(
            readiness(gateway).await?.0,
            200,
            "a degraded gateway is ready"
        );
        assert_eq!(gateway.metric("mooring_degraded", &[]).await? as u64, 1);
    }

    // What the first gateway read a moment ago it serves; the second one has never heard of it.
    let served = attempt(&mut known, "increment").await?;
    assert_eq!(served.count(), 2);
    assert!(served.is_degraded, "{served:?}");
    let unknown_there = attempt(&mut through(&known, &fleet.gateways[1]), "increment").await?;
    unknown_there.assert_try_again();
    assert!(unknown_there.is_degraded, "{unknown_there:?}");

    // The other gateway would not know a session that begins now.
    for gateway in &fleet.gateways {
        assert_begins_later(gateway).await?;
    }

    // An end is an end, and the upstream session goes at once.
    assert_eq!(ended.delete().await?.status, 204);
    assert_eq!(attempt(&mut ended, "increment").await?.status, 404);
    let deletes = |stats: &[u64]| stats.iter().sum::<u64>();
    let [a, b] = pair.both();
    assert_eq!(
        deletes(&[a.stats().await?.deletes, b.stats().await?.deletes]),
        1
    );

    outage.end(&mut fleet.redis).await?;
    until_all(&fleet.gateways, "ok").await?;
    for gateway in &fleet.gateways {
        assert_eq!(gateway.metric("mooring_degraded", &[]).await? as u64, 0);
        let revived = attempt(&mut through(&ended, gateway), "increment").await?;
        assert_eq!(
            revived.status, 404,
            "an ended session is not revived: {revived:?}"
        );
    }
    assert_eq!(record(&fleet.redis, &ended)?["state"], "ended");
    assert_eq!(binding(&fleet.redis, &known)?["rebinds"], 0);

    let mut known_there = through(&known, &fleet.gateways[1]);
    let answered = attempt(&mut known_there, "increment").await?;
    assert_eq!((answered.count(), answered.is_degraded), (3, false));
    assert_eq!(
        whoami(&mut known_there).await?,
        home,
        "nothing was made anew"
    );
    assert_eq!(pair.initializes().await?, 2);
    opened_at(&fleet.gateways[1]).await?;
    assert_eq!(rebinds(&fleet.gateways, "upstream").await?, 0);
    Ok(())
}

#[tokio::test]
async fn what_is_safe_is_served_while_redis_is_dead() -> anyhow::Result<()> {
    check_outage(Outage::Killed).await
}

#[tokio::test]
async fn what_is_safe_is_served_while_redis_hangs() -> anyhow::Result<()> {
    check_outage(Outage::Hanging).await
}

/// A Redis without a file to return with.
async fn forgetful_fleet(pair: &Pair, gateways: usize) -> anyhow::Result<Fleet> {
    let redis = Redis::start_with(Module::Loaded, &["--appendonly", "no"]).await?;
    let toml = settings_toml(&redis.url(), &pair.urls());
    let gateways = Gateway::fleet(gateways, &Settings::toml(toml)).await?;
    Ok(Fleet { gateways, redis })
}

async fn assert_begins_again(fleet: &Fleet, lost: &McpSession) -> anyhow::Result<()> {
    for gateway in &fleet.gateways {
        let answered = attempt(&mut through(lost, gateway), "increment").await?;
        assert_eq!(answered.status, 404, "{answered:?}");
    }
    let mut again = McpSession::open(&HttpClient::default(), &fleet.endpoints()).await?;
    for expected in 1..=3 {
        assert_eq!(again.increment().await?, expected);
    }
    Ok(())
}

#[tokio::test]
async fn a_redis_that_returns_empty_makes_clients_initialize_again() -> anyhow::Result<()> {
    let pair = Pair::start().await?;
    let mut fleet = forgetful_fleet(&pair, 2).await?;
    let lost = opened_at(&fleet.gateways[0]).await?;
    fleet.redis.process().kill_now()?;
    until_all(&fleet.gateways, "degraded").await?;
    fleet.redis.restart().await?;
    until_all(&fleet.gateways, "ok").await?;
    assert_begins_again(&fleet, &lost).await
}

/// No other gateway could be asked for a session that begins meanwhile.
#[tokio::test]
async fn a_gateway_without_others_begins_sessions_while_redis_is_away() -> anyhow::Result<()> {
    let pair = Pair::start().await?;
    let mut fleet = forgetful_fleet(&pair, 1).await?;
    until_all_have_met(&fleet).await?;
    fleet.redis.process().kill_now()?;
    until_all(&fleet.gateways, "degraded").await?;
    let minted = opened_at(&fleet.gateways[0]).await?;
    fleet.redis.restart().await?;
    until_all(&fleet.gateways, "ok").await?;
    // It tells Redis, which another gateway reads.
    let toml = settings_toml(&fleet.redis.url(), &pair.urls());
    let later = Gateway::start("later", Settings::toml(toml)).await?;
    assert_eq!(through(&minted, &later).increment().await?, 2);
    Ok(())
}

#[tokio::test]
async fn a_flushed_redis_makes_clients_initialize_again() -> anyhow::Result<()> {
    let pair = Pair::start().await?;
    let fleet = Fleet::start(2, &pair.urls()).await?;
    let lost = opened_at(&fleet.gateways[0]).await?;
    fleet.redis.cli(&["FLUSHALL"])?;
    assert_begins_again(&fleet, &lost).await
}

#[tokio::test]
async fn a_dropped_connection_to_redis_is_no_outage() -> anyhow::Result<()> {
    let pair = Pair::start().await?;
    let fleet = Fleet::start(3, &pair.urls()).await?;
    let mut session = McpSession::open(&HttpClient::default(), &fleet.endpoints()).await?;
    for expected in 1..=12 {
        fleet
            .redis
            .cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])?;
        let answered = attempt(&mut session, "increment").await?;
        assert_eq!(
            (answered.status.as_u16(), answered.is_degraded),
            (200, false),
            "{answered:?}"
        );
        assert_eq!(answered.count(), expected);
    }
    assert_eq!(binding(&fleet.redis, &session)?["rebinds"], 0);
    Ok(())
}

#[tokio::test]
async fn without_a_fallback_nothing_is_served_while_redis_is_away() -> anyhow::Result<()> {
    let pair = Pair::start().await?;
    let mut redis = Redis::start().await?;
    let settings = Settings::toml(settings_toml(&redis.url(), &pair.urls()))
        .env("MOORING_STORE_ON_UNAVAILABLE", "fail");
    let gateways = Gateway::fleet(2, &settings).await?;
    let mut session = opened_at(&gateways[0]).await?;
    redis.process().kill_now()?;
    until_all(&gateways, "unavailable").await?;
    for gateway in &gateways {
        assert_eq!(readiness(gateway).await?.0, 503);
        let refused = attempt(&mut through(&session, gateway), "increment").await?;
        refused.assert_try_again();
        assert!(
            !refused.is_degraded,
            "nothing is served without the store: {refused:?}"
        );
        let client = HttpClient::default();
        let opened = McpSession::open(&client, &[gateway.mcp_url("tools")]).await;
        let error = format!("{:#}", opened.expect_err("no session can begin"));
        assert!(error.contains("503"), "{error}");
        assert_eq!(through(&session, gateway).delete().await?.status, 503);
    }
    redis.restart().await?;
    until_all(&gateways, "ok").await?;
    assert_eq!(session.increment().await?, 2);
    assert_eq!(through(&session, &gateways[1]).increment().await?, 3);
    Ok(())
}

/// A Redis that answers is not away: its refusals are passed on as 503, and nothing is served from memory.
#[tokio::test]
async fn a_redis_that_refuses_to_write_is_no_outage() -> anyhow::Result<()> {
    let pair = Pair::start().await?;
    let fleet = Fleet::start(2, &pair.urls()).await?;
    let mut session = opened_at(&fleet.gateways[0]).await?;
    let open = async || {
        McpSession::open(&HttpClient::default(), &fleet.endpoints())
            .await
            .map(drop)
    };

    // Out of memory: what is there is still found, nothing new begins.
    fleet.redis.cli(&["CONFIG", "SET", "maxmemory", "1"])?;
    let error = format!("{:#}", open().await.expect_err("nothing new begins"));
    assert!(error.contains("503"), "{error}");
    assert_eq!(session.increment().await?, 2);
    assert_eq!(
        readiness(&fleet.gateways[0]).await?,
        (200.try_into()?, "ok".to_owned())
    );
    fleet.redis.cli(&["CONFIG", "SET", "maxmemory", "0"])?;
    open().await?;

    // A replica, as after a failover behind a fixed address.
    let away = mooring_tests::port::free_port()?.to_string();
    fleet.redis.cli(&["REPLICAOF", "127.0.0.1", &away])?;
    for gateway in &fleet.gateways {
        let refused = attempt(&mut through(&session, gateway), "increment").await?;
        refused.assert_try_again();
        assert!(!refused.is_degraded, "{refused:?}");
        assert_eq!(readiness(gateway).await?.1, "ok");
    }
    fleet.redis.cli(&["REPLICAOF", "NO", "ONE"])?;
    assert_eq!(session.increment().await?, 3);
    assert_eq!(through(&session, &fleet.gateways[1]).increment().await?, 4);
    assert_eq!(binding(&fleet.redis, &session)?["rebinds"], 0);
    Ok(())
}

/// Loads slowly enough to be watched: a reload of what it holds takes some seconds, in which it answers LOADING.
#[tokio::test]
async fn a_redis_that_is_loading_is_no_outage() -> anyhow::Result<()> {
    let pair = Pair::start().await?;
    let fleet = Fleet::start(2, &pair.urls()).await?;
    let mut session = opened_at(&fleet.gateways[0]).await?;
    let filler = "x".repeat(2048);
    for number in 0..100 {
        fleet
            .redis
            .cli(&["SET", &format!("filler:{number}"), &filler])?;
    }
    fleet.redis.cli(&[
        "CONFIG",
        "SET",
        "loading-process-events-interval-bytes",
        "1024",
    ])?;
    // In microseconds for each key.
    fleet
        .redis
        .cli(&["CONFIG", "SET", "key-load-delay", "20000"])?;
    let reloading = std::process::Command::new("redis-cli")
        .args(["-p", &fleet.redis.port().to_string(), "DEBUG", "RELOAD"])
        .stdout(std::process::Stdio::null())
        .spawn()?;
    let mut reloading = Reaped(reloading);
    let refused = wait::until("a refusal while Redis loads", NOTICED_WITHIN, async || {
        let answered = attempt(&mut session, "whoami").await?;
        Ok((answered.status != 200).then_some(answered))
    })
    .await?;
    refused.assert_try_again();
    assert!(!refused.is_degraded, "{refused:?}");
    for gateway in &fleet.gateways {
        assert_eq!(readiness(gateway).await?.1, "ok");
    }
    assert!(reloading.0.wait()?.success());
    assert_eq!(session.increment().await?, 2);
    assert_eq!(binding(&fleet.redis, &session)?["rebinds"], 0);
    Ok(())
}

/// A child that does not outlive its test.
struct Reaped(std::process::Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two losses at once: what the gateway does about the instance without Redis, Redis takes up when it returns.
#[tokio::test]
async fn an_instance_that_dies_while_redis_is_away_costs_no_more_than_otherwise()
-> anyhow::Result<()> {
    let mut pair = Pair::start().await?;
    let mut fleet = Fleet::start(2, &pair.urls()).await?;
    let mut session = opened_at(&fleet.gateways[0]).await?;
    let home = pair.home_and_other(&mut session).await?.0;
    fleet.redis.process().kill_now()?;
    until_all(&fleet.gateways, "degraded").await?;
    home.process().kill_now()?;
    let answered = attempt(&mut session, "increment").await?;
    assert_eq!((answered.count(), answered.is_degraded), (1, true));
    let exchange = answered.exchange.expect("a reply");
    assert!(mark_of(&exchange).is_some(), "{exchange:?}");
    assert_eq!(session.increment().await?, 2);

    fleet.redis.restart().await?;
    until_all(&fleet.gateways, "ok").await?;
    let bound = binding(&fleet.redis, &session)?;
    assert_eq!(
        (&bound["state"], &bound["rebinds"]),
        (&"bound".into(), &1.into())
    );
    let [a, b] = pair.both();
    let alive = if a.process().exit_status()?.is_none() {
        a
    } else {
        b
    };
    assert_eq!(bound["instance"], alive.url());
    assert_eq!(through(&session, &fleet.gateways[1]).increment().await?, 3);
    assert_eq!(session.increment().await?, 4);
    assert_eq!(alive.stats().await?.initializes, 1);
    Ok(())
}

/// What a worker owns stands still until the store takes a beat of its, so it does not wait for the next regular one.
#[tokio::test]
async fn a_worker_beats_again_as_soon_as_redis_is_back() -> anyhow::Result<()> {
    const BEAT_INTERVAL: Duration = Duration::from_secs(10);
    let pair = Pair::start().await?;
    let more = format!(
        "[worker]\nbeat_interval_ms = {0}\nbeat_ttl_ms = {0}0\n",
        BEAT_INTERVAL.as_millis()
    );
    let mut fleet = Fleet::start_with(1, &pair.urls(), &more).await?;
    Outage::Killed.begin(&mut fleet.redis)?;
    let missed = "heartbeat not stored";
    wait::until_true("a missed beat", BEAT_INTERVAL * 2, async || {
        Ok(fleet.gateways[0].process().log_text().contains(missed))
    })
    .await?;
    Outage::Killed.end(&mut fleet.redis).await?;
    wait::until_true("a beat", BEAT_INTERVAL / 2, async || {
        let workers = fleet.redis.cli(&["-3", "--json", "WORKER.LIST"])?;
        Ok(workers.contains("gateway-1"))
    })
    .await
}
