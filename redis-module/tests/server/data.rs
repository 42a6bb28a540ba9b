//! What stands in the keyspace: plain hashes, their lifetime, and what somebody else wrote there.

use std::time::Duration;

use mooring_tests::redis::Redis;
use mooring_tests::wait;

use super::resp::{Connection, Value};

const KEY: &str = "mcpgw:session_affinity:s1";

#[tokio::test]
async fn a_record_is_a_plain_hash_that_lives_as_long_as_its_tombstone() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run(&format!(
        "SESSION.CREATE {KEY} s1 zoe TTL 900000 HASH h1 LABEL init 1f"
    ))?;
    c.run(&format!(
        "SESSION.BIND {KEY} zoe tools w:1 token1 LEASE 60000 INSTANCES 1 one UPSTREAM up1"
    ))?;
    let hash = c.run(&format!("HGETALL {KEY}"))?;
    for (field, value) in [("p", "zoe"), ("l:init", "1f"), ("k:tools", "token1")] {
        assert_eq!(hash.field(field).to_string(), value, "{field}");
    }
    for (field, names) in [("id", " s1 h1"), ("b:tools", " 0 0 one w:1 - up1")] {
        let value = hash.field(field).to_string();
        assert!(value.ends_with(names), "{field}: {value}");
    }
    assert_eq!(c.show(&format!("OBJECT ENCODING {KEY}"))?, "listpack");
    let used_at = c
        .run(&format!("SESSION.GET {KEY}"))?
        .field("last_used_at")
        .integer();
    assert_eq!(
        c.run(&format!("PEXPIRETIME {KEY}"))?.integer(),
        used_at + 2 * 900_000 + 900_000 / 4,
        "a quarter longer, so that few uses have to write it"
    );
    c.run(&format!("SESSION.TOUCH {KEY} zoe TTL 1000"))?;
    let record = c.run(&format!("SESSION.GET {KEY}"))?;
    assert_eq!(
        c.run(&format!("PEXPIRETIME {KEY}"))?.integer(),
        record.field("expires_at").integer() + 1_000 / 16 + 600_000 + 1_000 / 4,
        "ten minutes after the last moment at which it may expire, and a quarter of its TTL"
    );
    Ok(())
}

#[tokio::test]
async fn the_expiry_that_is_told_is_the_ttl_after_the_last_use() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let created = c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    assert_eq!(
        created.field("expires_at").integer(),
        created.field("created_at").integer() + 900_000
    );
    let found = c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    let read = c.run(&format!("SESSION.GET {KEY}"))?;
    for record in [&found, &read] {
        assert_eq!(
            record.field("expires_at").integer(),
            record.field("last_used_at").integer() + 900_000
        );
    }
    let touched = c.run(&format!("SESSION.TOUCH {KEY} zoe"))?;
    let before = read.field("expires_at").integer();
    assert!(
        (before..before + 900_000 / 16).contains(&touched.field("expires_at").integer()),
        "it is not written, and has no slack: {touched}"
    );
    Ok(())
}

#[tokio::test]
async fn an_expired_session_is_gone_at_once_and_revived_with_what_it_held() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let created = c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 1000"))?;
    let generation = created.field("gen").integer();
    c.run(&format!(
        "SESSION.BIND {KEY} zoe tools w:1 token1 LEASE 60000 INSTANCES 1 one UPSTREAM up1"
    ))?;
    wait::until_true(
        "the session to expire",
        Duration::from_secs(10),
        async || {
            Ok(c.run(&format!("SESSION.GET {KEY}"))?
                .field("state")
                .to_string()
                == "expired")
        },
    )
    .await?;
    for gone in [
        format!("SESSION.ROUTE {KEY} zoe tools w:1"),
        format!("SESSION.TOUCH {KEY} zoe"),
        format!("SESSION.END {KEY} zoe"),
        format!("SESSION.CREATE {KEY} s1 zoe TTL 1000 NOREVIVE"),
    ] {
        assert!(c.show(&gone)?.starts_with("NOSESSION"), "{gone}");
    }
    let revived = c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    assert_eq!(revived.field("gen").integer(), generation + 1);
    let previous = revived.field("previous").to_string();
    assert!(
        previous.contains("instance: one, upstream_session: up1"),
        "{previous}"
    );
    assert_eq!(revived.field("bindings").to_string(), "[]");
    assert_eq!(c.run("SESSION.STATS")?.field("expirations").integer(), 1);
    Ok(())
}

#[tokio::test]
async fn what_is_no_record_is_named_and_left_alone() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    c.run(&format!(
        "SESSION.BIND {KEY} zoe tools w:1 token1 LEASE 60000 INSTANCES 1 one UPSTREAM up1"
    ))?;
    c.run(&format!("COPY {KEY} sound"))?;
    let edits: [(&[&str], &str); 9] = [
        (&["HSET", KEY, "s", "soon"], "s"),
        (
            &["HSET", KEY, "s", "2 2 active 1 1 1 1"],
            "s: written by a newer version (2)",
        ),
        (&["HDEL", KEY, "s"], "s"),
        (&["HDEL", KEY, "id"], "id"),
        (&["HDEL", KEY, "p"], "p"),
        (&["HSET", KEY, "id", "-1 0 s1"], "id"),
        (&["HSET", KEY, "b:tools", "bound x"], "b:tools"),
        (&["HDEL", KEY, "k:tools"], "k:tools"),
        (&["HSET", KEY, "z", "%s%n"], "z"),
    ];
    for (edit, field) in edits {
        c.run(&format!("COPY sound {KEY} REPLACE"))?;
        let words: Vec<&[u8]> = edit.iter().map(|word| word.as_bytes()).collect();
        c.send(&words)?;
        let before = c.run(&format!("HGETALL {KEY}"))?;
        for command in [
            format!("SESSION.GET {KEY}"),
            format!("SESSION.TOUCH {KEY} zoe HASH h2"),
            format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"),
        ] {
            let shown = c.show(&command)?;
            assert_eq!(
                shown,
                format!("ERR corrupt session record: {field}"),
                "{edit:?} {command}"
            );
        }
        assert_eq!(c.run(&format!("HGETALL {KEY}"))?, before, "{edit:?}");
        // Only KILL takes it, unless nothing says that it was a record.
        let killed = c.run(&format!("SESSION.KILL {KEY}"))?;
        let is_ours = edit != ["HDEL", KEY, "s"];
        if is_ours {
            let reason = killed.field("unreadable").to_string();
            assert_eq!(reason, format!("corrupt session record: {field}"));
            assert_eq!(killed.field("ended_now").integer(), 1);
        } else {
            let shown = killed.to_string();
            assert_eq!(shown, format!("ERR corrupt session record: {field}"));
        }
        let exists = c.run(&format!("EXISTS {KEY}"))?.integer();
        assert_eq!(exists, i64::from(!is_ours), "{edit:?}");
    }
    // ROUTE looks at what it needs, and names it where it is wrong.
    for (edit, field) in [
        (["HSET", KEY, "s", "soon"], "s"),
        (["HSET", KEY, "b:tools", "bound x"], "b:tools"),
        (
            ["HSET", KEY, "b:tools", "bound 1 1 0 0 one  - up1"],
            "b:tools",
        ),
    ] {
        c.run(&format!("COPY sound {KEY} REPLACE"))?;
        c.send(&edit.map(str::as_bytes))?;
        let shown = c.show(&format!("SESSION.ROUTE {KEY} zoe tools w:1"))?;
        assert_eq!(shown, format!("ERR corrupt session record: {field}"));
    }
    // A loss that cannot be read refuses a call before it asks for its turn.
    c.run(&format!("COPY sound {KEY} REPLACE"))?;
    c.send(&[
        b"HSET",
        KEY.as_bytes(),
        b"b:tools",
        b"bound 1 1 1 0 one w:1 - up1",
        b"m:tools",
        b"soon",
    ])?;
    let shown = c.show(&format!("SESSION.ENTER {KEY} zoe tools w:1 t1 LEASE 1000"))?;
    assert_eq!(shown, "ERR corrupt session record: m:tools");
    c.run(&format!("HDEL {KEY} m:tools"))?;
    let left = c.show(&format!("SESSION.LEAVE {KEY} zoe tools t1"))?;
    assert!(left.starts_with("STALE "), "{left}");
    // What is under none of the prefixes is not the module's.
    c.run("HSET cart:1 s 5")?;
    let shown = c.show("SESSION.KILL cart:1")?;
    assert_eq!(shown, "ERR corrupt session record: s");
    assert_eq!(c.run("EXISTS cart:1")?.integer(), 1);
    // A TOUCH that sets nothing looks at its own fields only.
    c.run(&format!("COPY sound {KEY} REPLACE"))?;
    c.run(&format!("HSET {KEY} b:tools broken"))?;
    let touched = c.run(&format!("SESSION.TOUCH {KEY} zoe"))?;
    assert!(touched.field("expires_at").integer() > 0, "{touched}");
    c.run(&format!("HSET {KEY} s soon"))?;
    let shown = c.show(&format!("SESSION.TOUCH {KEY} zoe"))?;
    assert_eq!(shown, "ERR corrupt session record: s");
    Ok(())
}

#[tokio::test]
async fn unknown_fields_are_kept() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    c.run(&format!("HSET {KEY} x:new 1 notes by-hand"))?;
    c.run(&format!(
        "SESSION.BIND {KEY} zoe tools w:1 token1 LEASE 60000 INSTANCES 1 one UPSTREAM up1"
    ))?;
    c.run(&format!("SESSION.END {KEY} zoe"))?;
    c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    let hash = c.run(&format!("HGETALL {KEY}"))?;
    assert_eq!(hash.field("x:new").to_string(), "1");
    assert_eq!(hash.field("notes").to_string(), "by-hand");
    let Value::Map(fields) = hash else {
        panic!("HGETALL is a map");
    };
    let ours: Vec<String> = fields.iter().map(|(name, _)| name.to_string()).collect();
    assert!(
        !ours.iter().any(|name| name.ends_with(":tools")),
        "{ours:?}"
    );
    Ok(())
}

#[tokio::test]
async fn hashes_too_wide_for_a_listpack_work_the_same() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let wide = "v".repeat(256);
    c.run(&format!(
        "SESSION.CREATE {KEY} s1 zoe TTL 900000 LABEL wide {wide}"
    ))?;
    assert_eq!(c.show(&format!("OBJECT ENCODING {KEY}"))?, "hashtable");
    for server in 0..64 {
        c.run(&format!(
            "SESSION.BIND {KEY} zoe server{server} w:1 token1 LEASE 60000 INSTANCES 1 one UPSTREAM up1"
        ))?;
    }
    let record = c.run(&format!("SESSION.GET {KEY}"))?;
    assert_eq!(record.field("labels").field("wide").to_string(), wide);
    let Value::Array(bindings) = record.field("bindings") else {
        panic!("bindings are an array");
    };
    assert_eq!(bindings.len(), 64);
    let routed = c.run(&format!("SESSION.ROUTE {KEY} zoe server63 w:1"))?;
    assert_eq!(routed.field("upstream_session").to_string(), "up1");
    Ok(())
}
