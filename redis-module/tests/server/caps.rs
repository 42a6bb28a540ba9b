//! CREATE with CAP: how many active sessions a principal holds, and which of them was not used for longest.

use std::time::Duration;

use mooring_tests::redis::Redis;
use mooring_tests::wait;

use super::resp::Connection;
use super::truth;

/// Generous: the machine is shared, and the index follows ten times a second.
const SOON: Duration = Duration::from_secs(20);

fn create(c: &mut Connection, key: &str, principal: &str, cap: u32) -> anyhow::Result<String> {
    let command = format!("SESSION.CREATE mcpgw:{key} id {principal} TTL 900000 CAP {cap}");
    let reply = c.run(&command)?;
    Ok(match reply.to_string() {
        error if error.starts_with("LIMIT") => error,
        _ => format!("created {}", reply.field("created").integer()),
    })
}

#[tokio::test]
async fn at_the_cap_the_least_recently_used_session_is_named() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    for key in ["s1", "s2", "s3"] {
        assert_eq!(create(&mut c, key, "zoe", 3)?, "created 1");
    }
    // Each of these uses is so soon after the creation that none is written: the order is exact all the same.
    for (used, least_recently_used) in [
        ("", "s1"),
        ("SESSION.ROUTE mcpgw:s1 zoe tools w:1", "s2"),
        ("SESSION.TOUCH mcpgw:s2 zoe", "s3"),
        ("SESSION.GET mcpgw:s3", "s3"),
        ("SESSION.CREATE mcpgw:s3 id zoe TTL 900000", "s1"),
        (
            "SESSION.BIND mcpgw:s1 zoe tools w:1 t LEASE 60000 INSTANCES 1 one UPSTREAM u",
            "s2",
        ),
        ("SESSION.ROUTE mcpgw:s2 zoe tools w:1", "s3"),
        ("SESSION.ROUTE mcpgw:s3 zoe tools w:1", "s1"),
        ("SESSION.ROUTE mcpgw:s1 zoe tools w:1", "s2"),
    ] {
        if !used.is_empty() {
            c.run(used)?;
        }
        let expected = format!("LIMIT 3 mcpgw:{least_recently_used}");
        assert_eq!(create(&mut c, "s4", "zoe", 3)?, expected, "after {used:?}");
    }
    assert_eq!(c.run("EXISTS mcpgw:s4")?.integer(), 0);
    assert_eq!(
        c.run("SESSION.STATS")?.field("touches_written").integer(),
        0
    );
    Ok(())
}

#[tokio::test]
async fn what_is_there_or_over_does_not_count() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    for key in ["s1", "s2"] {
        create(&mut c, key, "zoe", 2)?;
    }
    assert_eq!(
        create(&mut c, "s1", "zoe", 1)?,
        "created 0",
        "it is there already"
    );
    assert_eq!(
        create(&mut c, "e1", "eve", 1)?,
        "created 1",
        "another principal"
    );
    assert_eq!(create(&mut c, "s3", "zoe", 3)?, "created 1", "a higher cap");
    // The way of a gateway at its cap.
    assert_eq!(create(&mut c, "s4", "zoe", 3)?, "LIMIT 3 mcpgw:s2");
    c.run("SESSION.END mcpgw:s2 zoe IFIDLE")?;
    assert_eq!(create(&mut c, "s4", "zoe", 3)?, "created 1");
    // A tombstone counts only once it is revived.
    assert_eq!(create(&mut c, "s2", "zoe", 3)?, "LIMIT 3 mcpgw:s1");
    c.run("DEL mcpgw:s1")?;
    assert_eq!(create(&mut c, "s2", "zoe", 3)?, "created 1");
    Ok(())
}

#[tokio::test]
async fn the_expired_do_not_count() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run("SESSION.CREATE mcpgw:short id zoe TTL 1000")?;
    assert_eq!(create(&mut c, "s1", "zoe", 1)?, "LIMIT 1 mcpgw:short");
    wait::until_true("the session to expire", SOON, async || {
        Ok(c.run("SESSION.GET mcpgw:short")?.field("state").to_string() == "expired")
    })
    .await?;
    assert_eq!(create(&mut c, "s1", "zoe", 1)?, "created 1");
    Ok(())
}

#[tokio::test]
async fn a_cap_counts_under_one_prefix() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let refused = "ERR CAP needs a key under one of mooring.prefixes";
    assert_eq!(
        c.show("SESSION.CREATE other:1 id zoe TTL 900000 CAP 1")?,
        refused
    );
    assert_eq!(create(&mut c, "s1", "zoe", 1)?, "created 1");
    c.send(&[
        b"CONFIG",
        b"SET",
        b"mooring.prefixes",
        b"mcpgw: mcpgw:code: other:",
    ])?;
    wait::until_true("the indexes to follow the setting", SOON, async || {
        Ok(c.run("SESSION.STATS")?.field("index_ready").integer() == 1)
    })
    .await?;
    assert_eq!(
        create(&mut c, "code:1", "zoe", 1)?,
        "created 1",
        "under the longer prefix"
    );
    assert_eq!(create(&mut c, "code:2", "zoe", 1)?, "LIMIT 1 mcpgw:code:1");
    assert_eq!(create(&mut c, "s2", "zoe", 1)?, "LIMIT 1 mcpgw:s1");
    let created = c.run("SESSION.CREATE other:1 id zoe TTL 900000 CAP 1")?;
    assert_eq!(created.field("created").integer(), 1);
    Ok(())
}

#[tokio::test]
async fn the_order_of_written_uses_outlives_a_restart() -> anyhow::Result<()> {
    let mut redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    // A step of one thousandth: nearly every use is written.
    c.run("CONFIG SET mooring.touch-step 1000")?;
    for key in ["s1", "s2", "s3"] {
        c.run(&format!("SESSION.CREATE mcpgw:{key} id zoe TTL 1000000"))?;
    }
    wait::until_true("a use of the first to be written", SOON, async || {
        c.run("SESSION.TOUCH mcpgw:s1 zoe")?;
        Ok(c.run("SESSION.STATS")?.field("touches_written").integer() > 0)
    })
    .await?;
    redis.stop_server().await?;
    redis.restart().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let refused = create(&mut c, "s4", "zoe", 3)?;
    assert!(
        ["LIMIT 3 mcpgw:s2", "LIMIT 3 mcpgw:s3"].contains(&refused.as_str()),
        "{refused}"
    );
    c.run(&format!("SESSION.END {} zoe", &refused["LIMIT 3 ".len()..]))?;
    let refused = create(&mut c, "s4", "zoe", 2)?;
    assert!(!refused.ends_with("s1"), "{refused}");
    Ok(())
}

/// Nobody would list, count or clean up what stands there.
#[tokio::test]
async fn no_session_begins_under_none_of_the_prefixes() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let create = "SESSION.CREATE other:1 id zoe TTL 900000";
    let refused = "ERR the key is under none of mooring.prefixes";
    assert_eq!(c.show(create)?, refused);
    assert_eq!(c.run("EXISTS other:1")?.integer(), 0);
    c.run("CONFIG SET mooring.prefixes other:")?;
    assert_eq!(c.run(create)?.field("created").integer(), 1);
    // What is there is served to its end, and no further.
    c.run("CONFIG SET mooring.prefixes mcpgw:")?;
    assert_eq!(c.run(create)?.field("created").integer(), 0);
    c.run("SESSION.END other:1 zoe")?;
    assert_eq!(c.show(create)?, refused);
    assert_eq!(
        c.run("SESSION.GET other:1")?.field("state").to_string(),
        "ended"
    );
    Ok(())
}

#[tokio::test]
async fn caps_that_were_refused_and_skipped_are_counted() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let figures = |c: &mut Connection| -> anyhow::Result<[i64; 4]> {
        let stats = c.run("SESSION.STATS")?;
        let names = [
            "caps_refused",
            "caps_skipped",
            "rebuild_databases",
            "rebuild_keys",
        ];
        Ok(names.map(|name| stats.field(name).integer()))
    };
    create(&mut c, "s1", "zoe", 1)?;
    create(&mut c, "s2", "zoe", 1)?;
    assert_eq!(figures(&mut c)?, [1, 0, 0, 0]);
    c.run(&format!("DEBUG POPULATE {OTHER_KEYS}"))?;
    // Another prefix: all is read again.
    c.send(&[b"CONFIG", b"SET", b"mooring.prefixes", b"mcpgw: x:"])?;
    assert_eq!(create(&mut c, "s2", "zoe", 1)?, "created 1");
    wait::until_true("the walk", SOON, async || {
        let [refused, skipped, databases, keys] = figures(&mut c)?;
        assert_eq!((refused, skipped), (1, 1));
        Ok(databases == 1 && keys > 0)
    })
    .await?;
    truth::whole(&mut c).await?;
    assert_eq!(figures(&mut c)?, [1, 1, 0, 0]);
    let stats = c.run("SESSION.STATS")?;
    for name in ["index_bytes", "tick_us_max"] {
        assert!(stats.field(name).integer() > 0, "{name}");
    }
    Ok(())
}

/// Keys of others, so that a walk over all keys takes a while.
const OTHER_KEYS: usize = 400_000;

#[tokio::test]
async fn caps_and_placement_hold_while_the_index_is_verified() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let bind = |c: &mut Connection, key: &str, instances: &str| -> anyhow::Result<String> {
        let bind = format!("SESSION.BIND mcpgw:{key} zoe tools w:1 t LEASE 60000 INSTANCES");
        let bound = c.run(&format!("{bind} {instances} UPSTREAM u"))?;
        Ok(bound.field("instance").to_string())
    };
    for n in 0..20 {
        create(&mut c, &format!("s{n}"), "zoe", 20)?;
        bind(&mut c, &format!("s{n}"), "1 one")?;
    }
    c.run(&format!("DEBUG POPULATE {OTHER_KEYS}"))?;
    for way in [
        &["REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"][..],
        &["SESSION.REINDEX"],
    ] {
        truth::whole(&mut c).await?;
        for command in way {
            c.run(command)?;
        }
        assert_eq!(create(&mut c, "more", "zoe", 20)?, "LIMIT 20 mcpgw:s0");
        for n in 0..6 {
            let key = format!("b{n}");
            c.run(&format!("DEL mcpgw:{key}"))?;
            c.run(&format!("SESSION.CREATE mcpgw:{key} s zoe TTL 900000"))?;
            assert_eq!(bind(&mut c, &key, "2 one two")?, "two", "{way:?}");
        }
        let ready = c.run("SESSION.STATS")?.field("index_ready").integer();
        assert_eq!(ready, 0, "{way:?}: it was still verified");
        for n in 0..6 {
            c.run(&format!("DEL mcpgw:b{n}"))?;
        }
    }
    Ok(())
}
