//! A rolling upgrade, and back: the primary and its replica are builds that write different versions of records, and
//! change places while a client works. No session is lost, every number grows, and what only the newer build knows of a
//! record outlives the older one.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, ensure};
use mooring_tests::redis::{Module, Redis};
use mooring_tests::{paths, wait};

use super::cluster::client::Client;
use super::cluster::load::Walker;
use super::resp::Connection;

const SETTLED_WITHIN: Duration = Duration::from_secs(30);

/// After so many rounds a walker has ended and created each session anew.
const ROUNDS: usize = 8;

/// A server with the module of one build.
async fn start(build: &Path) -> anyhow::Result<Redis> {
    let build = build.display().to_string();
    let arguments = [
        "--appendonly",
        "no",
        "--loadmodule",
        &build,
        // The shortest time in which a new primary grants only turns that are claimed again.
        "turn-lease-max-ms",
        "100",
    ];
    Redis::start_with(Module::Absent, &arguments).await
}

/// Lets `replica` follow `primary`, and waits until it does.
async fn follow(replica: &Redis, primary: &Redis) -> anyhow::Result<()> {
    let mut c = Connection::open(replica)?;
    c.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port()))?;
    wait::until_true("the link to the primary", SETTLED_WITHIN, async || {
        Ok(c.show("INFO replication")?
            .contains("master_link_status:up"))
    })
    .await
}

/// Lets primary and replica change places, once the replica has everything.
async fn change_places(primary: &Redis, replica: &Redis) -> anyhow::Result<()> {
    let failover = format!("FAILOVER TO 127.0.0.1 {}", replica.port());
    let mut before = Connection::open(primary)?;
    wait::until_true("the failover to begin", SETTLED_WITHIN, async || {
        Ok(before.show(&failover)? == "OK")
    })
    .await?;
    wait::until_true("the places to be changed", SETTLED_WITHIN, async || {
        Ok(before
            .show("INFO replication")?
            .contains("master_link_status:up"))
    })
    .await
}

/// Every record as it stands: which version wrote it last, which is the oldest that may read it, and whether it has the
/// field that only the newer build knows.
fn check_written(redis: &Redis, keys: &[String], versions: &str) -> anyhow::Result<()> {
    let mut c = Connection::open(redis)?;
    for key in keys {
        let record = c.run(&format!("HGETALL {key}"))?;
        let lifetime = record.field("s").to_string();
        ensure!(
            lifetime.starts_with(versions),
            "{key}: {record}, not {versions}"
        );
        assert_eq!(
            record.field("x").to_string(),
            "of the next version",
            "{key}"
        );
    }
    Ok(())
}

/// A walker at work.
struct Work {
    rounds: Arc<AtomicUsize>,
    is_done: Arc<AtomicBool>,
    walking: JoinHandle<anyhow::Result<Walker>>,
}

impl Work {
    fn start(mut walker: Walker) -> Self {
        let rounds = Arc::new(AtomicUsize::new(0));
        let is_done = Arc::new(AtomicBool::new(false));
        let walking = std::thread::spawn({
            let (rounds, is_done) = (Arc::clone(&rounds), Arc::clone(&is_done));
            move || {
                while !is_done.load(Ordering::Acquire) {
                    walker.walk()?;
                    rounds.fetch_add(1, Ordering::AcqRel);
                }
                Ok(walker)
            }
        });
        Self {
            rounds,
            is_done,
            walking,
        }
    }

    /// Waits until every session was changed by whoever serves now.
    async fn changes_all(&self) -> anyhow::Result<()> {
        let enough = self.rounds.load(Ordering::Acquire) + ROUNDS;
        wait::until_true("the client's rounds", SETTLED_WITHIN, async || {
            let is_enough = self.rounds.load(Ordering::Acquire) >= enough;
            Ok(is_enough || self.walking.is_finished())
        })
        .await
    }

    fn end(self) -> anyhow::Result<Walker> {
        self.is_done.store(true, Ordering::Release);
        self.walking.join().expect("the client panicked")
    }
}

#[tokio::test]
#[ignore = "soak"]
async fn soak_a_rolling_upgrade_loses_no_session() -> anyhow::Result<()> {
    let (older, newer) = (paths::redis_module()?, paths::next_redis_module()?);
    let first = start(&older).await?;
    let second = start(&newer).await?;
    let third = start(&newer).await?;
    follow(&second, &first).await?;
    follow(&third, &second).await?;
    let walker = Walker::new(Client::of([&first, &second, &third]), "rolled");
    let keys = walker.keys();
    let work = Work::start(walker);
    let rolled = async {
        work.changes_all().await?;
        change_places(&first, &second).await?;
        work.changes_all().await?;
        check_written(&second, &keys, "2 1 ")?;
        // The older build serves what the newer one wrote, and keeps what it does not know.
        change_places(&second, &first).await?;
        work.changes_all().await?;
        check_written(&first, &keys, "1 1 ")?;
        change_places(&first, &second).await?;
        // The last of the older build goes.
        Connection::open(&first)?.say(&[b"SHUTDOWN", b"NOSAVE"])?;
        change_places(&second, &third).await?;
        work.changes_all().await?;
        check_written(&third, &keys, "2 1 ")
    };
    let rolled = rolled.await;
    let mut walker = work.end().context("the client")?;
    rolled?;
    walker.walk()
}
