//! CLAIM and FORGET at their edges: only what was cleaned up is dropped, everybody hears of it, and no number of what was
//! dropped comes again.

use std::time::Duration;

use mooring_tests::redis::{Module, Redis};
use mooring_tests::wait;

use super::resp::Connection;

const KEY: &str = "mcpgw:session_affinity:s1";
const CREATE: &str = "SESSION.CREATE mcpgw:session_affinity:s1 s1 zoe TTL 900000";
const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(20);

fn forget(c: &mut Connection, generation: i64, worker: &str) -> anyhow::Result<String> {
    c.show(&format!("SESSION.FORGET {KEY} {generation} {worker}"))
}

#[tokio::test]
async fn only_the_incarnation_that_was_cleaned_up_is_dropped() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let generation = c.run(CREATE)?.field("gen").integer();
    assert!(
        forget(&mut c, generation, "w:1")?.starts_with("STALE"),
        "it is active"
    );
    let claimed = c.show(&format!("SESSION.CLAIM {KEY} w:1 LEASE 1000"))?;
    assert_eq!(claimed, "BUSY the session is active");
    c.run(&format!("SESSION.END {KEY} zoe"))?;
    for other in [generation - 1, generation + 1, 0] {
        assert!(
            forget(&mut c, other, "w:1")?.starts_with("STALE"),
            "{other}"
        );
    }
    // It began anew before its cleaner was done.
    let again = c.run(CREATE)?;
    assert_eq!(again.field("gen").integer(), generation + 1);
    assert!(forget(&mut c, generation, "w:1")?.starts_with("STALE"));
    assert!(forget(&mut c, generation + 1, "w:1")?.starts_with("STALE"));
    assert_eq!(
        c.run(&format!("SESSION.GET {KEY}"))?
            .field("state")
            .to_string(),
        "active"
    );
    // Who ended it names no worker, so any worker that knows the number may drop it.
    c.run(&format!("SESSION.END {KEY} zoe"))?;
    assert_eq!(forget(&mut c, generation + 1, "w:9")?, "{forgotten: 1}");
    assert_eq!(c.show(&format!("EXISTS {KEY}"))?, "0");
    assert!(forget(&mut c, generation + 1, "w:9")?.starts_with("NOSESSION"));
    Ok(())
}

#[tokio::test]
async fn what_one_worker_claimed_no_other_drops() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let generation = c
        .run(&CREATE.replace("900000", "1000"))?
        .field("gen")
        .integer();
    wait::until_true("it expires", CAUGHT_UP_WITHIN, async || {
        let record = c.run(&format!("SESSION.GET {KEY}"))?;
        Ok(record.field("state").to_string() == "expired")
    })
    .await?;
    assert!(
        forget(&mut c, generation, "w:1")?.starts_with("STALE"),
        "nobody has claimed it"
    );
    for _ in 0..2 {
        let claimed = c.run(&format!("SESSION.CLAIM {KEY} w:1 LEASE 60000"))?;
        assert_eq!(claimed.field("gen").integer(), generation);
    }
    let other = c.show(&format!("SESSION.CLAIM {KEY} w:2 LEASE 60000"))?;
    assert_eq!(other, "BUSY another worker is cleaning it up");
    assert!(forget(&mut c, generation, "w:2")?.starts_with("STALE"));
    assert_eq!(forget(&mut c, generation, "w:1")?, "{forgotten: 1}");
    Ok(())
}

#[tokio::test]
async fn everybody_hears_of_it() -> anyhow::Result<()> {
    let redis = Redis::start_with(Module::Loaded, &["--notify-keyspace-events", "Ed"]).await?;
    let replica = Redis::start_replica(&redis, Module::Absent, &[]).await?;
    let mut c = Connection::open_resp3(&redis)?;
    let mut listening = Connection::open(&redis)?;
    listening.run("SUBSCRIBE __keyevent@0__:session.forgotten")?;
    let mut caching = Connection::open_resp3(&redis)?;
    let mut watching = Connection::open(&redis)?;
    let generation = c.run(CREATE)?.field("gen").integer();
    c.run(&format!("SESSION.END {KEY} zoe"))?;
    let mut followed = Connection::open(&replica)?;
    wait::until_true("the replica has it", CAUGHT_UP_WITHIN, async || {
        Ok(followed.show("DBSIZE")? == "1")
    })
    .await?;
    caching.run("CLIENT TRACKING ON")?;
    caching.run(&format!("SESSION.GET {KEY}"))?;
    watching.run(&format!("WATCH {KEY}"))?;
    assert_eq!(forget(&mut c, generation, "w:1")?, "{forgotten: 1}");
    assert_eq!(
        listening.read()?.to_string(),
        format!("[message, __keyevent@0__:session.forgotten, {KEY}]")
    );
    assert_eq!(
        caching.read()?.to_string(),
        format!("[invalidate, [{KEY}]]")
    );
    watching.run("MULTI")?;
    watching.run("PING")?;
    assert_eq!(watching.show("EXEC")?, "null");
    wait::until_true("the replica drops it", CAUGHT_UP_WITHIN, async || {
        Ok(followed.show("DBSIZE")? == "0")
    })
    .await
}

/// A record whose numbers are ahead of the clock, as after the clock was set back, is dropped: what comes under the key
/// next begins above them.
#[tokio::test]
async fn no_number_of_what_was_dropped_comes_again() -> anyhow::Result<()> {
    const HOUR: i64 = 3_600_000_000;
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let now = c.run(CREATE)?.field("gen").integer();
    for (identity, number) in [
        (format!("{} 0 s1", now + HOUR), now + HOUR),
        (format!("1 {} s1", now + 2 * HOUR), now + 2 * HOUR),
    ] {
        c.run(CREATE)?;
        c.send(&[b"HSET", KEY.as_bytes(), b"id", identity.as_bytes()])?;
        let ended = c.run(&format!("SESSION.END {KEY} zoe"))?;
        let generation = ended.field("gen").integer();
        assert_eq!(forget(&mut c, generation, "w:1")?, "{forgotten: 1}");
        let created = c.run(CREATE)?;
        assert_eq!(created.field("gen").integer(), number + 1, "{identity}");
        let bind = format!("SESSION.BIND {KEY} zoe tools w:1 t LEASE 1000 INSTANCES 1 one");
        assert!(
            c.run(&bind)?.field("epoch").integer() > number,
            "{identity}"
        );
        c.run(&format!("DEL {KEY}"))?;
    }
    Ok(())
}
