//! What reaches replicas and the append-only file: absolute effects, and nothing for a no-op.

use std::time::Duration;

use mooring_tests::redis::{Module, Redis};
use mooring_tests::wait;

use super::resp::Connection;

const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(20);

/// A life with every kind of write in it, for a few sessions.
fn traffic(c: &mut Connection) -> anyhow::Result<()> {
    for n in 0..20 {
        let key = format!("mcpgw:session_affinity:{n}");
        c.run(&format!(
            "SESSION.CREATE {key} s{n} zoe TTL 900000 HASH h LABEL init {n}"
        ))?;
        let bind = format!("SESSION.BIND {key} zoe tools w:1 t1 LEASE 60000 INSTANCES 2 one two");
        let epoch = c.run(&bind)?.field("epoch").integer();
        c.run(&format!(
            "SESSION.CONFIRM {key} zoe tools {epoch} t1 UPSTREAM u{n}"
        ))?;
        c.run(&format!("SESSION.TOUCH {key} zoe TTL 800000 LABEL more 1"))?;
        c.run(&format!("SESSION.ROUTE {key} zoe tools w:2"))?;
        let rebind = format!(
            "SESSION.REBIND {key} zoe tools {epoch} w:2 t2 LEASE 60000 INSTANCES 2 one two"
        );
        let epoch = c.run(&rebind)?.field("epoch").integer();
        match n % 4 {
            0 => c.run(&format!("SESSION.UNBIND {key} zoe tools {epoch} t2"))?,
            1 => c.run(&format!("SESSION.END {key} zoe"))?,
            2 => {
                c.run(&format!("SESSION.KILL {key}"))?;
                c.run(&format!("SESSION.CREATE {key} s{n} zoe TTL 900000"))?
            }
            _ => c.run(&format!("SESSION.GET {key}"))?,
        };
    }
    Ok(())
}

#[tokio::test]
async fn a_replica_without_the_module_holds_the_same() -> anyhow::Result<()> {
    let primary = Redis::start().await?;
    let replica = Redis::start_with(
        Module::Absent,
        &["--replicaof", &format!("127.0.0.1 {}", primary.port())],
    )
    .await?;
    let mut there = Connection::open(&replica)?;
    wait::until_true("the link to the primary", CAUGHT_UP_WITHIN, async || {
        Ok(there
            .show("INFO replication")?
            .contains("master_link_status:up"))
    })
    .await?;
    let mut c = Connection::open(&primary)?;
    traffic(&mut c)?;
    assert_eq!(c.show("WAIT 1 10000")?, "1");
    assert_eq!(there.show("DEBUG DIGEST")?, c.show("DEBUG DIGEST")?);
    let key = "mcpgw:session_affinity:3";
    assert_eq!(
        there.run(&format!("PEXPIRETIME {key}"))?,
        c.run(&format!("PEXPIRETIME {key}"))?
    );
    Ok(())
}

#[tokio::test]
async fn a_killed_server_comes_back_with_the_same() -> anyhow::Result<()> {
    let mut redis = Redis::start_with(Module::Loaded, &["--appendfsync", "always"]).await?;
    let (digest, expires) = {
        let mut c = Connection::open(&redis)?;
        traffic(&mut c)?;
        (
            c.show("DEBUG DIGEST")?,
            c.run("PEXPIRETIME mcpgw:session_affinity:3")?,
        )
    };
    redis.process().kill_now()?;
    redis.restart().await?;
    let mut c = Connection::open(&redis)?;
    assert_eq!(c.show("DEBUG DIGEST")?, digest);
    assert_eq!(c.run("PEXPIRETIME mcpgw:session_affinity:3")?, expires);
    // And after the file was written anew.
    c.run("BGREWRITEAOF")?;
    wait::until_true("the rewrite", CAUGHT_UP_WITHIN, async || {
        let info = c.show("INFO persistence")?;
        Ok(info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0"))
    })
    .await?;
    redis.process().kill_now()?;
    redis.restart().await?;
    let mut c = Connection::open(&redis)?;
    assert_eq!(c.show("DEBUG DIGEST")?, digest);
    assert_eq!(c.show("DEBUG RELOAD")?, "OK");
    assert_eq!(c.show("DEBUG DIGEST")?, digest);
    Ok(())
}

#[tokio::test]
async fn no_ops_are_not_replicated() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    let key = "mcpgw:session_affinity:a";
    c.run(&format!("SESSION.CREATE {key} s zoe TTL 900000"))?;
    let bind =
        format!("SESSION.BIND {key} zoe tools w:1 t1 LEASE 60000 INSTANCES 1 one UPSTREAM u");
    let epoch = c.run(&bind)?.field("epoch").integer();
    let offset = |c: &mut Connection| -> anyhow::Result<String> {
        let info = c.show("INFO persistence")?;
        let line = info
            .split("\\r\\n")
            .find(|line| line.starts_with("aof_current_size:"));
        Ok(line.unwrap_or_default().to_owned())
    };
    let before = offset(&mut c)?;
    assert!(before.len() > "aof_current_size:".len(), "{before}");
    for no_op in [
        format!("SESSION.CREATE {key} s zoe TTL 900000"),
        format!("SESSION.TOUCH {key} zoe"),
        format!("SESSION.ROUTE {key} zoe tools w:1"),
        format!("SESSION.ROUTE {key} zoe tools w:2"),
        format!("SESSION.ROUTE {key} eve tools w:2"),
        bind,
        format!("SESSION.CONFIRM {key} zoe tools {epoch} t1 UPSTREAM u"),
        format!("SESSION.UNBIND {key} zoe tools 1"),
        format!("SESSION.GET {key}"),
        "WORKER.BEAT w:1 a TTL 60000".to_owned(),
    ] {
        c.run(&no_op)?;
        assert_eq!(offset(&mut c)?, before, "{no_op}");
    }
    c.run(&format!("SESSION.TOUCH {key} zoe TTL 800000"))?;
    assert_ne!(offset(&mut c)?, before, "a new TTL is a write");
    Ok(())
}

#[tokio::test]
async fn one_command_is_one_transaction_of_absolute_effects() -> anyhow::Result<()> {
    let primary = Redis::start().await?;
    let mut c = Connection::open(&primary)?;
    let key = "mcpgw:session_affinity:a";
    c.run(&format!("SESSION.CREATE {key} s zoe TTL 900000"))?;
    let directory = c.run("CONFIG GET dir")?.field("dir").to_string();
    let log = std::fs::read_dir(format!("{directory}/appendonlydir"))?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().ends_with(".incr.aof"));
    let log = std::fs::read_to_string(log.expect("an append-only file"))?;
    let words: Vec<&str> = log
        .lines()
        .filter(|line| !line.starts_with(['*', '$', '#']))
        .collect();
    let commands: Vec<&str> = words
        .iter()
        .copied()
        .filter(|word| {
            [
                "MULTI",
                "HSET",
                "PEXPIREAT",
                "EXEC",
                "PEXPIRE",
                "SESSION.CREATE",
            ]
            .contains(word)
        })
        .collect();
    assert_eq!(commands, ["MULTI", "HSET", "PEXPIREAT", "EXEC"], "{log}");
    Ok(())
}
