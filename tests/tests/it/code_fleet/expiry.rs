//! Sessions that nobody uses any more: the next request gets a fresh one, the directory goes, and never one in use.

use std::time::Duration;

use mooring_tests::code::{CodeVolume, Coder};
use mooring_tests::fixture::Fixture;
use mooring_tests::gate::Gate;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::wait;

use crate::keyed::instances_table;

/// How long cleaning may take on a busy machine. A session's own time is one second, and whoever ended one has half a
/// minute before others clean up after it.
const CLEANED_WITHIN: Duration = Duration::from_secs(90);

/// Sessions live for a second. The reaper looks every so many milliseconds.
fn short(volume: &CodeVolume, store_url: &str, reap_interval_ms: u32) -> Settings {
    volume
        .settings(store_url)
        .env("MOORING_CODE_SESSION_TTL_SECONDS", "1")
        .env(
            "MOORING_AFFINITY_REAP_INTERVAL_MS",
            &reap_interval_ms.to_string(),
        )
}

const HOUR_MS: u32 = 3_600_000;

/// The only record of a code session in Redis.
fn key(redis: &Redis) -> anyhow::Result<String> {
    let found = redis.cli(&["--scan", "--pattern", "mcpgw:code_exec_session:*"])?;
    anyhow::ensure!(found.lines().count() == 1, "one record, and not {found:?}");
    Ok(found)
}

async fn until_gone(volume: &CodeVolume) -> anyhow::Result<()> {
    wait::until_true(
        "the session's directory to go",
        CLEANED_WITHIN,
        async || Ok(volume.sessions()?.is_empty() && volume.trashed_sessions()?.is_empty()),
    )
    .await
}

#[tokio::test]
async fn a_session_that_lapsed_begins_anew_also_before_anybody_cleaned_up() -> anyhow::Result<()> {
    let (volume, redis) = (CodeVolume::new()?, Redis::start().await?);
    let gateways = Gateway::fleet(2, &short(&volume, &redis.url(), HOUR_MS)).await?;
    let mut ada = Coder::open(&[&gateways[0], &gateways[1]], "ada@example.org").await?;
    ada.write("/scratch/old", "old").await?;
    let key = key(&redis)?;
    wait::until_true("the session to lapse", CLEANED_WITHIN, async || {
        Ok(redis.cli(&["SESSION.GET", &key])?.contains("expired"))
    })
    .await?;
    assert_eq!(ada.names("/scratch").await?, [""; 0]);
    ada.write("/scratch/new", "new").await?;
    assert_eq!(ada.names("/scratch").await?, ["new"]);
    assert_eq!(volume.sessions()?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn the_directory_of_a_lapsed_session_goes() -> anyhow::Result<()> {
    let (volume, redis) = (CodeVolume::new()?, Redis::start().await?);
    let gateways = Gateway::fleet(3, &short(&volume, &redis.url(), 200)).await?;
    let all: Vec<&Gateway> = gateways.iter().collect();
    for user in ["ada@example.org", "bob@example.org", "eve@example.org"] {
        let mut coder = Coder::open(&all, user).await?;
        coder.write("/results/deep/er/file", user).await?;
    }
    until_gone(&volume).await?;
    let records = redis.cli(&["--scan", "--pattern", "mcpgw:code_exec_session:*"])?;
    wait::until_true("the records to go", CLEANED_WITHIN, async || {
        Ok(redis
            .cli(&["--scan", "--pattern", "mcpgw:code_exec_session:*"])?
            .is_empty())
    })
    .await
    .map_err(|error| error.context(records))
}

#[tokio::test]
async fn an_ended_session_is_cleaned_up_and_begins_anew() -> anyhow::Result<()> {
    let (volume, redis) = (CodeVolume::new()?, Redis::start().await?);
    let settings = volume
        .settings(&redis.url())
        .env("MOORING_AFFINITY_REAP_INTERVAL_MS", "200");
    let gateway = Gateway::start("gateway", settings).await?;
    let mut ada = Coder::open(&[&gateway], "ada@example.org").await?;
    ada.write("/scratch/old", "old").await?;
    redis.cli(&["SESSION.KILL", &key(&redis)?])?;
    assert_eq!(ada.names("/scratch").await?, [""; 0]);
    redis.cli(&["SESSION.KILL", &key(&redis)?])?;
    until_gone(&volume).await
}

#[tokio::test]
async fn without_redis_unused_directories_go_all_the_same() -> anyhow::Result<()> {
    let (volume, mut redis) = (CodeVolume::new()?, Redis::start().await?);
    let gateway = Gateway::start("gateway", short(&volume, &redis.url(), 200)).await?;
    let mut ada = Coder::open(&[&gateway], "ada@example.org").await?;
    ada.write("/scratch/old", "old").await?;
    redis.process().kill_now()?;
    until_gone(&volume).await
}

#[tokio::test]
async fn a_session_in_use_is_never_cleaned_up() -> anyhow::Result<()> {
    let (volume, redis) = (CodeVolume::new()?, Redis::start().await?);
    let fixture = Fixture::start("one").await?;
    let web = instances_table("web", "http", &[fixture.url()]);
    let settings = short(&volume, &redis.url(), 100).more_toml(&web);
    let gateways = Gateway::fleet(2, &settings).await?;
    let mut ada = Coder::open(&[&gateways[0]], "ada@example.org").await?;
    ada.write("/scratch/before", "kept").await?;
    let gate = Gate::new()?;
    let code = format!(
        "import tools\n\
         tools.call('web', 'slow_increment', {{'until': {:?}}})\n\
         open('/scratch/after', 'w').write('kept')\n\
         import os; print(*sorted(os.listdir('/scratch')))",
        gate.path()
    );
    let run = tokio::spawn(async move { ada.python(&code).await });
    wait::until_true("the run to wait", CLEANED_WITHIN, async || {
        Ok(fixture.stats().await?.calls_of("slow_increment") == 1)
    })
    .await?;
    // Each of these outlasts the session's time to live, and all of them the backstop's, which is twice that.
    let mut bob = Coder::open(&[&gateways[1]], "bob@example.org").await?;
    for _ in 0..3 {
        bob.write("/scratch/idle", "").await?;
        wait::until_true("the idle session to go", CLEANED_WITHIN, async || {
            Ok(volume.sessions()?.len() == 1 && volume.trashed_sessions()?.is_empty())
        })
        .await?;
    }
    gate.open()?;
    assert_eq!(run.await??, "after before");
    Ok(())
}
