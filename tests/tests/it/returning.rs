//! A client comes back to its expired session while a reaper cleans up after it: whoever is first, what the old
//! incarnation held is deleted, and what the new one holds never is.
//!
//! The client here is the test itself, which speaks to Redis as a gateway does for a session whose key outlives it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::Gateway;
use mooring_tests::redis::Redis;
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::faulty::{Fate, FaultyProxy};
use crate::reaping::{CLEANED_WITHIN, calls, deletes_and_live, reaped, reaping};

/// How many clients come back at about the same time, each to a session of its own.
const CLIENTS: u64 = 4;
/// How many times.
const ROUNDS: u64 = 8;
/// The first comes back when its session has just expired, the last when the reaper has looked about twice.
const APART: Duration = Duration::from_millis(25);
/// A time to live that no test sees the end of.
const LONG_MS: &str = "600000";

/// Which of the two found what the old incarnation held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Client,
    Reaper,
}

struct Returning {
    redis: Redis,
    fixture: Fixture,
    /// The name of the fixture in bindings: its own URL, or that of what stands before it.
    instance: String,
    http: HttpClient,
}

impl Returning {
    fn json(&self, command: &[&str]) -> anyhow::Result<Value> {
        let text = self.redis.cli(&[&["-3", "--json"], command].concat())?;
        serde_json::from_str(&text).with_context(|| format!("read the reply: {text}"))
    }

    fn create(&self, number: u64, ttl_ms: &str) -> anyhow::Result<Value> {
        let id = format!("returning-{number}");
        let key = format!("mcpgw:session_affinity:{id}");
        self.json(&["SESSION.CREATE", &key, &id, "local", "TTL", ttl_ms])
    }

    /// An upstream session made by hand, as what the record is bound to.
    async fn bind(&self, number: u64) -> anyhow::Result<McpSession> {
        let upstream = McpSession::open(&self.http, &[self.fixture.url()]).await?;
        let key = format!("mcpgw:session_affinity:returning-{number}");
        let id = upstream.id().context("an upstream session")?.to_owned();
        let token = format!("token-{number}");
        let bind = [
            "SESSION.BIND",
            &key,
            "local",
            "tools",
            "client:1",
            &token,
            "LEASE",
            "10000",
            "INSTANCES",
            "1",
            &self.instance,
            "UPSTREAM",
            &id,
        ];
        let bound = self.json(&bind)?;
        assert_eq!(bound["state"], "bound", "{bound}");
        Ok(upstream)
    }

    fn standing(&self, number: u64) -> anyhow::Result<Option<String>> {
        let key = format!("mcpgw:session_affinity:returning-{number}");
        match self.json(&["SESSION.GET", &key]) {
            Ok(record) => Ok(record["state"].as_str().map(str::to_owned)),
            Err(error) if error.to_string().contains("NOSESSION") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Comes back, and cleans up what the store says is left.
    async fn come_back(&self, number: u64) -> anyhow::Result<(First, McpSession)> {
        let created = self.create(number, LONG_MS)?;
        // Where the reaper was faster nothing stands under the key, and the reply has no such field.
        let previous = created["previous"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        for binding in previous {
            let id = binding["upstream_session"].as_str().context("an id")?;
            let request = http::Request::delete(self.fixture.url())
                .header("mcp-session-id", id)
                .header("accept", "application/json, text/event-stream")
                .body(bytes::Bytes::new())?;
            assert!(self.http.send(request).await?.status.is_success());
        }
        let first = if previous.is_empty() {
            First::Reaper
        } else {
            First::Client
        };
        Ok((first, self.bind(number).await?))
    }
}

#[tokio::test]
async fn a_client_that_comes_back_loses_nothing_to_the_reaper_and_leaves_nothing()
-> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let redis = Redis::start().await?;
    let settings = reaping(&redis.url(), &[fixture.url()]);
    let settings = settings.env("MOORING_AFFINITY_REAP_INTERVAL_MS", "200");
    let gateways = Gateway::fleet(2, &settings).await?;
    let scene = Returning {
        redis,
        instance: fixture.url(),
        fixture,
        http: HttpClient::default(),
    };
    let (mut old, mut new, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let numbers = round * CLIENTS..(round + 1) * CLIENTS;
        for number in numbers.clone() {
            let created = scene.create(number, "1000")?;
            assert_eq!(created["created"], 1, "{created}");
            old.push(scene.bind(number).await?);
        }
        for number in numbers {
            wait::until_true("the session to be over", CLEANED_WITHIN, async || {
                let standing = scene.standing(number)?;
                Ok(standing.is_none_or(|standing| standing == "expired"))
            })
            .await?;
            tokio::time::sleep(APART * u32::try_from(number % CLIENTS)?).await;
            let (first, upstream) = scene.come_back(number).await?;
            firsts.push(first);
            new.push(upstream);
        }
    }
    let reaper_first = firsts
        .iter()
        .filter(|first| **first == First::Reaper)
        .count();
    assert!(
        (1..firsts.len()).contains(&reaper_first),
        "a race has two sides: the reaper was first {reaper_first} times"
    );

    let looked = calls(&scene.redis, "session.reap")?;
    wait::until_true("the reapers to look again", CLEANED_WITHIN, async || {
        Ok(calls(&scene.redis, "session.reap")? >= looked + 6)
    })
    .await?;
    let (_, live) = deletes_and_live(&[&scene.fixture]).await?;
    assert_eq!(live, new.len(), "the new ones, and nothing else");
    let mut calling = JoinSet::new();
    for mut upstream in new {
        calling.spawn(async move { upstream.increment().await });
    }
    while let Some(count) = calling.join_next().await {
        assert_eq!(count??, 1, "what the client holds now is alive");
    }
    for (number, mut upstream) in old.into_iter().enumerate() {
        assert!(upstream.increment().await.is_err(), "old {number} is gone");
    }
    drop(gateways);
    Ok(())
}

/// A gateway that was paused in the middle of cleaning up goes on long after its lease, when another has finished the
/// work and the client is back.
#[tokio::test]
async fn a_gateway_paused_past_its_lease_harms_nothing_that_began_meanwhile() -> anyhow::Result<()>
{
    let fixture = Fixture::start("one").await?;
    let (is_held, held) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicBool::new(false)),
    );
    let (judge_holds, judge_notes) = (Arc::clone(&is_held), Arc::clone(&held));
    let proxy = FaultyProxy::start(fixture.port(), move |seen| {
        if seen.text.starts_with("DELETE ") && judge_holds.load(Ordering::SeqCst) {
            judge_notes.store(true, Ordering::SeqCst);
            return Fate::Hold;
        }
        Fate::Forward
    })
    .await?;
    let scene = Returning {
        redis: Redis::start().await?,
        instance: proxy.url(),
        fixture,
        http: HttpClient::default(),
    };
    let settings = reaping(&scene.redis.url(), &[proxy.url()]);
    let mut paused = [Gateway::start("paused", settings.clone()).await?];
    scene.create(0, "1000")?;
    let mut old = scene.bind(0).await?;
    wait::until_true("its DELETE to be under way", CLEANED_WITHIN, async || {
        Ok(held.load(Ordering::SeqCst))
    })
    .await?;
    paused[0].process().stop()?;
    is_held.store(false, Ordering::SeqCst);

    let _heir = Gateway::start("heir", settings).await?;
    wait::until_true("the heir to finish", CLEANED_WITHIN, async || {
        Ok(scene.standing(0)?.is_none())
    })
    .await?;
    assert!(old.increment().await.is_err(), "it is deleted");
    let (first, mut upstream) = scene.come_back(0).await?;
    assert!(first == First::Reaper);

    paused[0].process().cont()?;
    proxy.close_all();
    wait::until_true("the paused one to go on", CLEANED_WITHIN, async || {
        Ok(reaped(&paused, "put_off").await? == 1)
    })
    .await?;
    assert_eq!(scene.standing(0)?.as_deref(), Some("active"));
    assert_eq!(
        upstream.increment().await?,
        1,
        "what the client holds now is alive"
    );
    Ok(())
}
