//! A replica's index follows its primary, through every way in which data reaches it, and is the one that serves after
//! a promotion.

use std::time::Duration;

use mooring_tests::redis::{Module, Redis};
use mooring_tests::wait;

use super::resp::{Connection, Value};
use super::truth;

const LINKED_WITHIN: Duration = Duration::from_secs(20);

fn populate(c: &mut Connection, prefix: &str, count: usize) -> anyhow::Result<()> {
    for n in 0..count {
        let key = format!("mcpgw:{prefix}{n}");
        c.run(&format!("SESSION.CREATE {key} s{n} zoe TTL 900000"))?;
        if n % 3 == 0 {
            let bind = format!("SESSION.BIND {key} zoe tools w:1 t LEASE 60000 INSTANCES 1 i");
            c.run(&bind)?;
        }
    }
    Ok(())
}

/// Waits until the replica has everything that its primary has said so far.
async fn in_step(primary: &Redis, replica: &Redis) -> anyhow::Result<()> {
    let mut here = Connection::open(primary)?;
    let mut there = Connection::open(replica)?;
    let said = replication(&mut here, "master_repl_offset")?;
    wait::until_true("the replica to be in step", LINKED_WITHIN, async || {
        let is_linked = replication(&mut there, "master_link_status")? == Some("up".to_owned());
        Ok(is_linked
            && number(replication(&mut there, "slave_repl_offset")?) >= number(said.clone()))
    })
    .await
}

/// One line of INFO replication.
fn replication(c: &mut Connection, name: &str) -> anyhow::Result<Option<String>> {
    let Value::Text(info) = c.run("INFO replication")? else {
        anyhow::bail!("INFO is text");
    };
    let info = String::from_utf8(info)?;
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    Ok(lines
        .find(|(line, _)| *line == name)
        .map(|(_, value)| value.to_owned()))
}

fn number(value: Option<String>) -> u64 {
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_default()
}

#[tokio::test]
async fn it_follows_a_full_synchronisation_and_every_command() -> anyhow::Result<()> {
    for load in ["disabled", "swapdb", "on-empty-db"] {
        let primary = Redis::start().await?;
        let mut c = Connection::open(&primary)?;
        populate(&mut c, "a", 60)?;
        c.run("SELECT 2")?;
        populate(&mut c, "a", 7)?;
        let replica = Redis::start_with(Module::Loaded, &["--repl-diskless-load", load]).await?;
        // What stands there before is replaced.
        let mut there = Connection::open(&replica)?;
        populate(&mut there, "old", 9)?;
        there.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port()))?;
        in_step(&primary, &replica).await?;
        assert_eq!(truth::holds(&replica, load).await?, 67, "{load}");
        for command in [
            "SESSION.KILL mcpgw:a0",
            "SESSION.TOUCH mcpgw:a1 zoe LABEL l v",
            "DEL mcpgw:a2",
            "RENAME mcpgw:a3 mcpgw:r3",
            "SWAPDB 0 2",
            "MOVE mcpgw:a4 3",
            "SELECT 0",
            "COPY mcpgw:a5 mcpgw:c5",
        ] {
            c.run(command)?;
        }
        in_step(&primary, &replica).await?;
        let there = truth::holds(&replica, load).await?;
        assert_eq!(there, truth::holds(&primary, load).await?, "{load}");
        c.run("FLUSHALL ASYNC")?;
        in_step(&primary, &replica).await?;
        assert_eq!(truth::holds(&replica, "flushed").await?, 0);
    }
    Ok(())
}

#[tokio::test]
async fn a_load_beside_the_data_that_is_served_ends_in_a_rebuild() -> anyhow::Result<()> {
    let mut primary = Redis::start().await?;
    let mut c = Connection::open(&primary)?;
    populate(&mut c, "a", 60)?;
    let mut replica = Redis::start_replica(
        &primary,
        Module::Loaded,
        &["--repl-diskless-load", "swapdb"],
    )
    .await?;
    in_step(&primary, &replica).await?;
    // The same history and too short a backlog: a full synchronisation that leaves the old data in place meanwhile.
    let mut there = Connection::open(&replica)?;
    there.run("REPLICAOF 127.0.0.1 1")?;
    c.run("CONFIG SET repl-backlog-size 16384")?;
    let filling = "x".repeat(10_000);
    for n in 0..20 {
        c.run(&format!("SET plain{n} {filling}"))?;
    }
    c.run("DEL mcpgw:a1")?;
    populate(&mut c, "b", 30)?;
    there.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port()))?;
    in_step(&primary, &replica).await?;
    assert_eq!(truth::holds(&replica, "loaded beside").await?, 89);
    let log = replica.process().log_text();
    assert!(
        log.contains("indexes of 1 databases are rebuilt: a full synchronization ended"),
        "{log}"
    );
    primary.stop_server().await?;
    Ok(())
}

#[tokio::test]
async fn a_promoted_replica_serves_from_a_true_index() -> anyhow::Result<()> {
    let mut primary = Redis::start().await?;
    let mut c = Connection::open(&primary)?;
    let mut replica = Redis::start_replica(&primary, Module::Loaded, &[]).await?;
    in_step(&primary, &replica).await?;
    populate(&mut c, "a", 50)?;
    in_step(&primary, &replica).await?;
    let before = truth::listed(&mut c, "")?;
    primary.process().kill_now()?;
    let mut there = Connection::open(&replica)?;
    assert_eq!(there.show("REPLICAOF NO ONE")?, "OK");
    assert_eq!(truth::holds(&replica, "promoted").await?, 50);
    assert_eq!(truth::listed(&mut there, "")?, before);
    let log = replica.process().log_text();
    assert!(log.contains("rebuilt: this node was promoted"), "{log}");
    populate(&mut there, "b", 5)?;
    assert_eq!(truth::holds(&replica, "serving").await?, 55);
    Ok(())
}

/// What is replicated is several writes for each command, and several commands for each session.
#[tokio::test]
async fn it_reads_a_session_once_for_many_writes() -> anyhow::Result<()> {
    const SESSIONS: usize = 100;
    const WRITES: usize = 5;
    let primary = Redis::start().await?;
    let mut c = Connection::open(&primary)?;
    let replica = Redis::start_replica(&primary, Module::Loaded, &[]).await?;
    in_step(&primary, &replica).await?;
    let mut commands = Vec::new();
    for n in 0..SESSIONS {
        commands.push(format!("SESSION.CREATE mcpgw:a{n} s{n} zoe TTL 900000"));
        for n_ms in 1..WRITES {
            commands.push(format!(
                "SESSION.TOUCH mcpgw:a{n} zoe TTL {}",
                900_000 + n_ms
            ));
        }
    }
    c.run_all(&commands)?;
    in_step(&primary, &replica).await?;
    assert_eq!(truth::holds(&replica, "many writes").await?, SESSIONS);
    let mut there = Connection::open(&replica)?;
    let reads = |c: &mut Connection| -> anyhow::Result<usize> {
        let reads = c.run("SESSION.STATS")?.field("index_reads").integer();
        Ok(usize::try_from(reads)?)
    };
    let read = reads(&mut there)?;
    assert!((SESSIONS..2 * SESSIONS).contains(&read), "{read} reads");
    // The list of what is to be read changes places with its databases.
    c.run("SELECT 1")?;
    c.run_all(&[
        "SESSION.CREATE mcpgw:b s zoe TTL 900000".to_owned(),
        "SWAPDB 0 1".to_owned(),
        "SESSION.CREATE mcpgw:c s zoe TTL 900000".to_owned(),
    ])?;
    in_step(&primary, &replica).await?;
    assert_eq!(truth::holds(&replica, "swapped").await?, SESSIONS + 2);
    Ok(())
}

/// Workers beat to the primary, which alone can tell who is dead.
#[tokio::test]
async fn it_calls_no_owner_dead() -> anyhow::Result<()> {
    // What the primary waits for, the replica would have waited for long before.
    let grace = |ms| ["--mooring.worker-grace-ms", ms];
    let primary = Redis::start_with(Module::Loaded, &grace("5000")).await?;
    let replica = Redis::start_replica(&primary, Module::Loaded, &grace("1000")).await?;
    let mut here = Connection::open_resp3(&primary)?;
    let mut there = Connection::open_resp3(&replica)?;
    here.run("SESSION.CREATE mcpgw:a s1 zoe TTL 900000")?;
    here.run("SESSION.BIND mcpgw:a zoe tools w:1 t LEASE 1000 INSTANCES 1 i UPSTREAM u OWNED")?;
    in_step(&primary, &replica).await?;
    let state = |c: &mut Connection| -> anyhow::Result<String> {
        let record = c.run("SESSION.GET mcpgw:a")?;
        let Value::Array(bindings) = record.field("bindings") else {
            anyhow::bail!("bindings are an array: {record}");
        };
        Ok(bindings
            .first()
            .map_or_else(String::new, |binding| binding.field("state").to_string()))
    };
    assert_eq!(state(&mut there)?, "bound");
    wait::until_true("the end of the grace", LINKED_WITHIN, async || {
        Ok(state(&mut here)? == "orphaned")
    })
    .await?;
    assert_eq!(state(&mut there)?, "bound");
    // A primary that becomes a replica forgets what it knew.
    let port = replica.port();
    assert_eq!(there.show("REPLICAOF NO ONE")?, "OK");
    assert_eq!(here.show(&format!("REPLICAOF 127.0.0.1 {port}"))?, "OK");
    wait::until_true("the owner to be alive there", LINKED_WITHIN, async || {
        Ok(state(&mut here)? == "bound")
    })
    .await
}
