//! What a killed server comes back with, by whatever file it keeps: all of it, for a server with the module and for
//! one without.

use std::path::PathBuf;
use std::time::Duration;

use mooring_tests::redis::{Module, Redis};
use mooring_tests::wait;

use super::keyspace::{Keyspace, hold_still};
use super::resp::{Connection, Value};
use super::traffic::{Mix, Traffic};

const WRITTEN_WITHIN: Duration = Duration::from_secs(20);

const MIX: Mix = Mix { bad: 5, foreign: 8 };

/// Random traffic over one connection, every touch written.
fn drive(redis: &Redis, seed: u64) -> anyhow::Result<()> {
    let mut c = Connection::open(redis)?;
    c.run("CONFIG SET mooring.touch-step 1000")?;
    let mut traffic = Traffic::new(&mut c, seed, MIX)?;
    traffic.run(&mut [&mut c], 2_000)
}

/// Waits until everything is handed to the operating system, which outlives the server.
async fn written(redis: &Redis) -> anyhow::Result<()> {
    let mut c = Connection::open(redis)?;
    wait::until_true(
        "the append-only file to be written",
        WRITTEN_WITHIN,
        async || {
            let info = c.show("INFO persistence")?;
            // Said only where there is such a file.
            Ok(!info.contains("aof_buffer_length:") || info.contains("aof_buffer_length:0"))
        },
    )
    .await
}

/// Writes the append-only file anew.
async fn rewrite(redis: &Redis) -> anyhow::Result<()> {
    let mut c = Connection::open(redis)?;
    c.run("BGREWRITEAOF")?;
    wait::until_true("the rewrite", WRITTEN_WITHIN, async || {
        let info = c.show("INFO persistence")?;
        ensure_ok(&info)?;
        Ok(info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0"))
    })
    .await
}

fn ensure_ok(info: &str) -> anyhow::Result<()> {
    anyhow::ensure!(info.contains("aof_last_bgrewrite_status:ok"), "{info}");
    Ok(())
}

/// Kills the server and starts it with the module, without it, and with it again: always the same.
async fn returns(redis: &mut Redis, what: &str) -> anyhow::Result<()> {
    hold_still(redis)?;
    written(redis).await?;
    let before = Keyspace::of(redis)?;
    assert!(before.len() > 5, "the traffic left something behind");
    for module in [Module::Loaded, Module::Absent, Module::Loaded] {
        redis.process().kill_now()?;
        redis.restart_as(module).await?;
        before.assert_same(&Keyspace::of(redis)?, &format!("{what}, {module:?}"));
        let mut c = Connection::open_resp3(redis)?;
        let is_served = |reply: &Value| matches!(reply, Value::Map(fields) if !fields.is_empty());
        let mut served = 0;
        for session in 0..10 {
            let key = super::traffic::words::key_of(session);
            if c.show(&format!("TYPE {key}"))? == "hash" {
                served += 1;
                assert!(is_served(&c.run(&format!("HGETALL {key}"))?), "{what}");
            }
        }
        assert!(served > 0, "{what}: no session is left");
    }
    Ok(())
}

#[tokio::test]
async fn append_only_files_bring_everything_back() -> anyhow::Result<()> {
    for preamble in ["yes", "no"] {
        let arguments = [
            "--appendfsync",
            "everysec",
            "--aof-use-rdb-preamble",
            preamble,
        ];
        let mut redis = Redis::start_with(Module::Loaded, &arguments).await?;
        drive(&redis, 1)?;
        returns(&mut redis, &format!("preamble {preamble}")).await?;
        rewrite(&redis).await?;
        returns(&mut redis, &format!("rewritten, preamble {preamble}")).await?;
        drive(&redis, 2)?;
        returns(&mut redis, &format!("more on top, preamble {preamble}")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_snapshot_brings_everything_back() -> anyhow::Result<()> {
    let mut redis = Redis::start_with(Module::Loaded, &["--appendonly", "no"]).await?;
    drive(&redis, 3)?;
    hold_still(&redis)?;
    let mut c = Connection::open(&redis)?;
    assert_eq!(c.show("SAVE")?, "OK");
    returns(&mut redis, "snapshot").await?;
    hold_still(&redis)?;
    let before = Keyspace::of(&redis)?;
    let mut c = Connection::open(&redis)?;
    assert_eq!(c.show("DEBUG RELOAD")?, "OK");
    before.assert_same(&Keyspace::of(&redis)?, "reloaded");
    drive(&redis, 4)?;
    Ok(())
}

/// The part of the append-only file that still grows.
fn growing_file(redis: &Redis) -> anyhow::Result<PathBuf> {
    let files = std::fs::read_dir(redis.directory().join("appendonlydir"))?;
    let mut paths = files.filter_map(Result::ok).map(|entry| entry.path());
    let found = paths.find(|path| path.to_string_lossy().ends_with(".incr.aof"));
    found.ok_or_else(|| anyhow::anyhow!("no append-only file"))
}

#[tokio::test]
async fn a_file_cut_anywhere_holds_whole_records() -> anyhow::Result<()> {
    let mut redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    let mut traffic = Traffic::new(&mut c, 5, Mix::default())?;
    traffic.run(&mut [&mut c], 1_500)?;
    written(&redis).await?;
    let file = growing_file(&redis)?;
    let whole = std::fs::read(&file)?;
    let mut rng = fastrand::Rng::with_seed(5);
    for _ in 0..8 {
        redis.process().kill_now()?;
        let cut = rng.usize(whole.len() / 4..whole.len());
        std::fs::write(&file, &whole[..cut])?;
        redis.restart().await?;
        let mut c = Connection::open(&redis)?;
        let Value::Array(keys) = c.run("KEYS mcpgw:session_affinity:*")? else {
            anyhow::bail!("KEYS is an array");
        };
        assert!(!keys.is_empty(), "cut at {cut}");
        for key in keys {
            let record = c.run(&format!("SESSION.GET {key}"))?;
            assert!(record.field("gen").integer() > 0, "cut at {cut}: {record}");
            let ends_at = c.run(&format!("PEXPIRETIME {key}"))?.integer();
            assert!(ends_at > 0, "cut at {cut}: a session without an end");
        }
    }
    Ok(())
}
