//! The indexes are true whoever writes the keyspace: an operator's commands, deadlines, eviction, whole databases that
//! come and go, a start with data.

use std::time::Duration;

use mooring_tests::paths;
use mooring_tests::redis::{Module, Redis};
use mooring_tests::wait;

use super::resp::{Connection, Value};
use super::traffic::{Mix, Traffic};
use super::truth;

const GONE_WITHIN: Duration = Duration::from_secs(10);

/// Makes `count` sessions in the selected database; every third has a binding, every fourth is ended.
fn populate(c: &mut Connection, prefix: &str, count: usize) -> anyhow::Result<()> {
    for n in 0..count {
        let key = format!("mcpgw:{prefix}{n}");
        c.run(&format!("SESSION.CREATE {key} s{n} zoe TTL 900000"))?;
        if n % 3 == 0 {
            bind(c, &key, &format!("i{}", n % 2))?;
        }
        if n % 4 == 0 {
            c.run(&format!("SESSION.END {key} zoe"))?;
        }
    }
    Ok(())
}

fn bind(c: &mut Connection, key: &str, instance: &str) -> anyhow::Result<()> {
    let words =
        format!("SESSION.BIND {key} zoe tools w:1 t LEASE 60000 INSTANCES 1 {instance} UPSTREAM u");
    assert_eq!(c.run(&words)?.field("won").integer(), 1);
    Ok(())
}

#[tokio::test]
async fn they_follow_commands_that_know_no_sessions() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    populate(&mut c, "a", 20)?;
    assert_eq!(truth::holds(&redis, "sessions made").await?, 20);
    for (commands, count) in [
        (&["RENAME mcpgw:a1 mcpgw:r1"][..], 20),
        (&["RENAME mcpgw:a2 elsewhere"], 19),
        (&["RENAME elsewhere mcpgw:a2"], 20),
        (&["RENAME mcpgw:a2 mcpgw:a3"], 19),
        (&["RENAMENX mcpgw:a5 mcpgw:r5"], 19),
        (
            &["COPY mcpgw:a6 mcpgw:c6", "COPY mcpgw:a6 mcpgw:c6 DB 2"],
            21,
        ),
        (&["MOVE mcpgw:a7 1"], 21),
        (&["UNLINK mcpgw:a8"], 20),
        (&["DEL mcpgw:a9 mcpgw:a10"], 18),
        (&["SET mcpgw:a11 overwritten"], 17),
        (&["MSET mcpgw:a12 x other y"], 16),
        (&["GETDEL mcpgw:a11", "SETEX mcpgw:a13 100 x"], 15),
        (&["SUNIONSTORE mcpgw:a14 nothing"], 14),
        (&["RPUSH list 3 1 2", "SORT list STORE mcpgw:a15"], 13),
        (&["HSET mcpgw:c6 p amy"], 13),
        (&["HDEL mcpgw:c6 id"], 12),
        (&["HSET mcpgw:made x y"], 12),
        (&["PEXPIRE mcpgw:a16 1000000", "PERSIST mcpgw:a16"], 12),
        (&["EXPIREAT mcpgw:a17 1"], 11),
        (&["EVAL redis.call('del',KEYS[1]) 1 mcpgw:a18"], 10),
        (
            &["MULTI", "DEL mcpgw:a19", "COPY mcpgw:r1 mcpgw:c1", "EXEC"],
            10,
        ),
    ] {
        for command in commands {
            let reply = c.run(command)?;
            assert!(!matches!(reply, Value::Error(_)), "{command}: {reply}");
        }
        assert_eq!(truth::holds(&redis, &commands.join(", ")).await?, count);
    }
    Ok(())
}

#[tokio::test]
async fn they_follow_dumps_hand_edits_and_filters() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    populate(&mut c, "a", 12)?;
    let Value::Text(dump) = c.run("DUMP mcpgw:a1")? else {
        anyhow::bail!("DUMP is bytes");
    };
    for words in [
        &[&b"RESTORE"[..], b"mcpgw:d", b"0", &dump][..],
        &[b"RESTORE", b"mcpgw:a2", b"900000", &dump, b"REPLACE"],
    ] {
        assert_eq!(c.send(words)?.to_string(), "OK");
    }
    assert_eq!(truth::holds(&redis, "restored").await?, 13);
    c.run("HSET mcpgw:a3 p amy")?;
    c.run("SESSION.TOUCH mcpgw:a1 zoe LABEL l v")?;
    truth::holds(&redis, "a principal edited by hand").await?;
    let of_amy = truth::listed(&mut c, " PRINCIPAL amy")?;
    assert_eq!(of_amy.keys().collect::<Vec<_>>(), ["mcpgw:a3"]);
    assert_eq!(
        truth::listed(&mut c, " PRINCIPAL zoe STATE active")?.len(),
        9
    );
    assert_eq!(truth::listed(&mut c, " MATCH mcpgw:a1*")?.len(), 3);
    Ok(())
}

#[tokio::test]
async fn they_follow_deadlines() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    // No reaping by the server: keys whose time has come go when a command opens them.
    c.run("DEBUG SET-ACTIVE-EXPIRE 0")?;
    populate(&mut c, "a", 8)?;
    for key in ["mcpgw:a0", "mcpgw:a1", "mcpgw:a2", "mcpgw:a3"] {
        c.run(&format!("PEXPIRE {key} 1"))?;
    }
    // The commands of the module itself open them.
    for (command, code) in [
        ("SESSION.GET mcpgw:a0", "NOSESSION"),
        ("SESSION.TOUCH mcpgw:a1 zoe", "NOSESSION"),
        ("SESSION.ROUTE mcpgw:a2 zoe tools w:1", "NOSESSION"),
    ] {
        wait::until_true("the key to be gone", GONE_WITHIN, async || {
            Ok(c.show(command)?.starts_with(code))
        })
        .await?;
    }
    assert_eq!(
        c.run("SESSION.CREATE mcpgw:a3 s3 amy TTL 900000")?
            .field("created")
            .integer(),
        1
    );
    assert_eq!(truth::holds(&redis, "opened").await?, 5);
    c.run("PEXPIRE mcpgw:a5 1")?;
    c.run("DEBUG SET-ACTIVE-EXPIRE 1")?;
    wait::until_true("the key to be gone", GONE_WITHIN, async || {
        Ok(c.run("DBSIZE")?.integer() == 4)
    })
    .await?;
    assert_eq!(truth::holds(&redis, "expired").await?, 4);
    Ok(())
}

/// Many keys may go in one second, and none of them holds anything.
#[tokio::test]
async fn a_key_that_is_gone_is_not_read() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    populate(&mut c, "a", 8)?;
    let reads = |c: &mut Connection| -> anyhow::Result<i64> {
        Ok(c.run("SESSION.STATS")?.field("index_reads").integer())
    };
    let before = reads(&mut c)?;
    c.run("DEL mcpgw:a0 mcpgw:a1")?;
    c.run("UNLINK mcpgw:a2")?;
    c.run("PEXPIRE mcpgw:a3 1")?;
    c.run("PEXPIREAT mcpgw:a4 1")?;
    wait::until_true("the key to be gone", GONE_WITHIN, async || {
        Ok(c.run("DBSIZE")?.integer() == 3)
    })
    .await?;
    assert_eq!(truth::listed(&mut c, "")?.len(), 3);
    assert_eq!(reads(&mut c)?, before);
    assert_eq!(truth::holds(&redis, "gone").await?, 3);
    Ok(())
}

#[tokio::test]
async fn they_follow_eviction() -> anyhow::Result<()> {
    for policy in ["noeviction", "volatile-lru", "allkeys-lru"] {
        let redis = Redis::start().await?;
        let mut c = Connection::open(&redis)?;
        c.run(&format!("CONFIG SET maxmemory-policy {policy}"))?;
        populate(&mut c, "a", 300)?;
        let info = c.show("INFO memory")?;
        let used = info
            .split("used_memory:")
            .nth(1)
            .and_then(|rest| rest.split(['\\', '\r']).next())
            .and_then(|bytes| bytes.parse::<u64>().ok())
            .unwrap_or_default();
        c.run(&format!("CONFIG SET maxmemory {}", used + 40_000))?;
        // Of SET, of CREATE, and of a TOUCH that makes the record grow.
        let mut refused = [0; 3];
        for n in 0..400 {
            let value = "x".repeat(2_000);
            let replies = [
                c.run(&format!("SET plain{n} {value}"))?,
                c.run(&format!("SESSION.CREATE mcpgw:b{n} s zoe TTL 900000"))?,
                c.run(&format!("SESSION.TOUCH mcpgw:b{n} zoe LABEL init digest"))?,
            ];
            for (reply, refused) in replies.iter().zip(&mut refused) {
                *refused += usize::from(matches!(reply, Value::Error(e) if e.starts_with("OOM")));
            }
        }
        c.run("CONFIG SET maxmemory 0")?;
        let left = truth::holds(&redis, policy).await?;
        let evicted = c.show("INFO stats")?;
        let of_ours = c.run("SESSION.STATS")?.field("evicted_active").integer();
        match policy {
            "noeviction" => {
                assert!(refused[0] > 0 && refused[1] > 0, "memory was short");
                assert!(left >= 300, "and nothing was evicted");
            }
            _ => {
                assert!(!evicted.contains("evicted_keys:0"), "{policy} evicted");
                assert_eq!(refused[1..], [0, 0], "{policy}: {refused:?}");
            }
        }
        match policy {
            "noeviction" => assert_eq!(of_ours, 0),
            "allkeys-lru" => assert_eq!(refused[0], 0, "SET"),
            // Sessions alone have a time to live.
            "volatile-lru" => assert!(of_ours > 0, "active sessions were evicted"),
            _ => {}
        }
    }
    Ok(())
}

#[tokio::test]
async fn they_follow_whole_databases() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    let fill = |c: &mut Connection| -> anyhow::Result<()> {
        for (database, count) in [(1, 5), (2, 9), (0, 30)] {
            c.run(&format!("SELECT {database}"))?;
            populate(c, "a", count)?;
        }
        Ok(())
    };
    fill(&mut c)?;
    assert_eq!(truth::holds(&redis, "filled").await?, 44);
    for (command, count) in [
        ("SWAPDB 0 1", 44),
        ("SWAPDB 1 3", 44),
        ("FLUSHDB ASYNC", 39),
        ("SWAPDB 0 3", 39),
        ("DEBUG RELOAD", 39),
        ("DEBUG RELOAD NOSAVE NOFLUSH MERGE", 39),
        ("DEBUG LOADAOF", 39),
        ("SESSION.REINDEX", 39),
        ("FLUSHALL ASYNC", 0),
    ] {
        let reply = c.run(command)?;
        assert!(!matches!(reply, Value::Error(_)), "{command}: {reply}");
        assert_eq!(truth::holds(&redis, command).await?, count, "{command}");
    }
    fill(&mut c)?;
    assert_eq!(truth::holds(&redis, "filled again").await?, 44);
    c.run("FLUSHDB SYNC")?;
    assert_eq!(truth::holds(&redis, "FLUSHDB SYNC").await?, 14);
    c.run("FLUSHALL SYNC")?;
    assert_eq!(truth::holds(&redis, "FLUSHALL SYNC").await?, 0);
    Ok(())
}

#[tokio::test]
async fn they_follow_the_prefixes() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    populate(&mut c, "a", 6)?;
    assert_eq!(truth::listed(&mut c, "")?.len(), 6);
    c.run("CONFIG SET mooring.prefixes other:")?;
    c.run("SESSION.CREATE other:1 s zoe TTL 900000")?;
    for (prefixes, count) in [("other:", 1), ("x:", 0), ("mcpgw: other:", 7)] {
        c.send(&[b"CONFIG", b"SET", b"mooring.prefixes", prefixes.as_bytes()])?;
        truth::whole(&mut c).await?;
        assert_eq!(truth::listed(&mut c, "")?.len(), count, "{prefixes}");
    }
    Ok(())
}

#[tokio::test]
async fn they_follow_random_traffic() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    let mix = Mix {
        bad: 10,
        foreign: 15,
    };
    let mut traffic = Traffic::new(&mut c, 7, mix)?;
    for round in 0..8 {
        traffic.run(&mut [&mut c], 600)?;
        truth::holds(&redis, &format!("round {round}")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_start_with_data_finds_every_session() -> anyhow::Result<()> {
    let mut redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    // Otherwise Redis answers while a slow disk still makes it put off its writes, and SIGKILL takes them.
    c.run("CONFIG SET appendfsync always")?;
    populate(&mut c, "a", 40)?;
    let before = truth::listed(&mut c, "")?;
    redis.process().kill_now()?;
    redis.restart().await?;
    assert_eq!(truth::holds(&redis, "from the append-only file").await?, 40);
    c = Connection::open(&redis)?;
    assert_eq!(truth::listed(&mut c, "")?, before);
    // Without the module nobody follows, and with it again all is read anew.
    redis.stop_server().await?;
    redis.restart_as(Module::Absent).await?;
    c = Connection::open(&redis)?;
    c.run("DEL mcpgw:a1")?;
    let path = paths::redis_module()?.display().to_string();
    assert_eq!(c.show(&format!("MODULE LOAD {path}"))?, "OK");
    assert_eq!(
        truth::holds(&redis, "loaded into a running server").await?,
        39
    );
    Ok(())
}
