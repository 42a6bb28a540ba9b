//! REAP, CLAIM and FORGET: what is over and holds something is named, taken once, and dropped.

use std::time::Duration;

use mooring_tests::redis::Redis;
use mooring_tests::wait;

use super::resp::{Connection, Value};

/// Generous: the machine is shared, and the index follows ten times a second.
const SOON: Duration = Duration::from_secs(20);

pub(super) fn due(c: &mut Connection, worker: &str) -> anyhow::Result<Vec<String>> {
    named(c, &format!("{worker} COUNT 10"))
}

/// The keys that REAP names, in order.
fn named(c: &mut Connection, words: &str) -> anyhow::Result<Vec<String>> {
    let reply = c.run(&format!("SESSION.REAP {words}"))?;
    assert_eq!(reply.field("complete").integer(), 1);
    let Value::Array(keys) = reply.field("keys") else {
        panic!("keys are an array: {reply}");
    };
    let mut keys: Vec<String> = keys.iter().map(Value::to_string).collect();
    keys.sort();
    Ok(keys)
}

/// A session that expires in a second, bound if there is something to bind.
pub(super) fn short(c: &mut Connection, key: &str, bind: Option<&str>) -> anyhow::Result<()> {
    c.run(&format!("SESSION.CREATE mcpgw:{key} id zoe TTL 1000"))?;
    if let Some(rest) = bind {
        let words = format!("SESSION.BIND mcpgw:{key} zoe tools {rest} INSTANCES 1 one");
        assert_eq!(c.run(&words)?.field("won").integer(), 1, "{key}");
    }
    Ok(())
}

pub(super) async fn expired(c: &mut Connection, sessions: i64) -> anyhow::Result<()> {
    wait::until_true("the sessions to expire", SOON, async || {
        Ok(c.run("SESSION.STATS")?.field("sessions_expired").integer() == sessions)
    })
    .await
}

#[tokio::test]
async fn what_holds_something_is_named_until_it_is_cleaned_up() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    short(&mut c, "bound", Some("w:1 t LEASE 10 UPSTREAM u"))?;
    short(&mut c, "empty", None)?;
    short(&mut c, "claimed", Some("w:1 t LEASE 600000"))?;
    c.run("SESSION.CREATE mcpgw:mounted id zoe TTL 1000 HASH abc")?;
    c.run("SESSION.CREATE mcpgw:active id zoe TTL 900000 HASH abc")?;
    assert_eq!(due(&mut c, "w:1")?, [""; 0]);
    expired(&mut c, 4).await?;
    assert_eq!(due(&mut c, "w:9")?, ["mcpgw:bound", "mcpgw:mounted"]);

    let record = c.run("SESSION.CLAIM mcpgw:bound w:9 LEASE 60000")?;
    assert_eq!(due(&mut c, "w:9")?, ["mcpgw:mounted"]);
    assert!(
        c.show("SESSION.CLAIM mcpgw:bound w:8 LEASE 60000")?
            .starts_with("BUSY")
    );
    let generation = record.field("gen").integer();
    let forgotten = c.run(&format!("SESSION.FORGET mcpgw:bound {generation} w:9"))?;
    assert_eq!(forgotten.field("forgotten").integer(), 1);
    assert_eq!(c.run("EXISTS mcpgw:bound")?.integer(), 0);
    expired(&mut c, 3).await?;

    // A lease that is over lets another in.
    c.run("SESSION.CLAIM mcpgw:mounted w:9 LEASE 10")?;
    wait::until_true("the lease to be over", SOON, async || {
        Ok(due(&mut c, "w:8")? == ["mcpgw:mounted"])
    })
    .await
}

#[tokio::test]
async fn an_ended_session_is_left_to_whoever_ended_it() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run("SESSION.CREATE mcpgw:s1 id zoe TTL 900000 HASH abc")?;
    c.run("SESSION.END mcpgw:s1 zoe")?;
    assert_eq!(due(&mut c, "w:1")?, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn what_is_owned_is_its_owners_while_that_lives() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    for worker in ["w:1", "v:1"] {
        c.run(&format!("WORKER.BEAT {worker} 127.0.0.1:1 TTL 600000"))?;
    }
    short(&mut c, "owned", Some("w:1 t LEASE 60000 OWNED UPSTREAM u"))?;
    short(&mut c, "shared", Some("w:1 t LEASE 60000 UPSTREAM u"))?;
    expired(&mut c, 2).await?;
    assert_eq!(due(&mut c, "w:1")?, ["mcpgw:owned", "mcpgw:shared"]);
    assert_eq!(due(&mut c, "v:1")?, ["mcpgw:shared"]);
    c.run("WORKER.GONE w:1")?;
    assert_eq!(due(&mut c, "v:1")?, ["mcpgw:owned", "mcpgw:shared"]);
    Ok(())
}

#[tokio::test]
async fn a_reaper_hears_of_keys_that_it_may_read() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    for key in ["a:1", "b:1"] {
        short(&mut c, key, Some("w:1 t LEASE 10 UPSTREAM u"))?;
    }
    expired(&mut c, 2).await?;
    c.run("ACL SETUSER reaper on >secret ~mcpgw:b:* +session.reap")?;
    let mut reaper = Connection::open(&redis)?;
    reaper.run("AUTH reaper secret")?;
    assert_eq!(due(&mut reaper, "w:1")?, ["mcpgw:b:1"]);
    assert_eq!(due(&mut c, "w:1")?, ["mcpgw:a:1", "mcpgw:b:1"]);
    Ok(())
}

#[tokio::test]
async fn a_reaper_is_named_what_its_pattern_matches() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    for key in ["code:a", "code:b", "mcp:a"] {
        short(&mut c, key, Some("w:1 t LEASE 10 UPSTREAM u"))?;
    }
    expired(&mut c, 3).await?;
    for (words, keys) in [
        (
            "MATCH mcpgw:code:* COUNT 10",
            &["mcpgw:code:a", "mcpgw:code:b"][..],
        ),
        ("COUNT 10 match mcpgw:[^c]*", &["mcpgw:mcp:a"]),
        ("COUNT 10 MATCH mcpgw:code:?a", &[]),
        ("COUNT 10 MATCH mcpgw:\\*", &[]),
    ] {
        assert_eq!(named(&mut c, &format!("w:1 {words}"))?, keys, "{words}");
    }
    for refused in [
        "w:1 MATCH *".to_owned(),
        "w:1 COUNT 1 MATCH".to_owned(),
        "w:1 COUNT 1 MATCH * MATCH *".to_owned(),
        format!("w:1 COUNT 1 MATCH {}", "x".repeat(257)),
    ] {
        let reply = c.show(&format!("SESSION.REAP {refused}"))?;
        assert!(reply.starts_with("ERR"), "{refused}: {reply}");
    }
    Ok(())
}

#[tokio::test]
async fn what_others_leave_lying_hides_nothing() -> anyhow::Result<()> {
    // More than one call looks at.
    const FOREIGN: usize = 10_500;
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let foreign: Vec<String> = (0..FOREIGN)
        .map(|n| format!("SESSION.CREATE mcpgw:other:{n} id zoe TTL 1000 HASH abc"))
        .collect();
    for commands in foreign.chunks(500) {
        c.run_all(commands)?;
    }
    c.run("SESSION.CREATE mcpgw:code:1 id zoe TTL 1000 HASH abc")?;
    expired(&mut c, i64::try_from(FOREIGN)? + 1).await?;
    let ours = "COUNT 10 MATCH mcpgw:code:*";
    assert_eq!(named(&mut c, &format!("w:1 {ours}"))?, [""; 0]);
    // Whoever asks next goes on behind.
    assert_eq!(named(&mut c, &format!("w:2 {ours}"))?, ["mcpgw:code:1"]);
    assert_eq!(named(&mut c, &format!("w:2 {ours}"))?, [""; 0]);
    assert_eq!(named(&mut c, "w:2 COUNT 1000")?.len(), 1_000);
    Ok(())
}
