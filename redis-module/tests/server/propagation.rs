//! What a command sends to replicas and to the append-only file: one transaction of absolute effects for a change,
//! nothing for a no-op or a refusal, and nothing for most touches.

use std::collections::BTreeSet;

use mooring_tests::redis::Redis;

use super::resp::{Connection, Value};
use super::stream::{Sent, Stream};
use super::traffic::{Mix, Traffic, shown};

const KEY: &str = "mcpgw:session_affinity:a";

#[tokio::test]
async fn one_change_is_one_transaction_of_absolute_effects() -> anyhow::Result<()> {
    let primary = Redis::start().await?;
    let mut c = Connection::open(&primary)?;
    let mut stream = Stream::of(&primary)?;
    let tail = "LEASE 60000 INSTANCES 2 one two";
    let new = ["MULTI", "HSET", "PEXPIREAT", "EXEC"].as_slice();
    let changed = ["HSET"].as_slice();
    let mut say = |command: &str, expected: &[&str]| -> anyhow::Result<Value> {
        let reply = c.run(command)?;
        assert!(!matches!(reply, Value::Error(_)), "{command}: {reply}");
        assert_eq!(stream.names()?, expected, "{command}");
        Ok(reply)
    };
    say(
        &format!("SESSION.CREATE {KEY} s zoe TTL 900000 LABEL a 1"),
        new,
    )?;
    let bind = format!("SESSION.BIND {KEY} zoe tools w:1 t1 {tail}");
    let epoch = say(&bind, changed)?.field("epoch").integer();
    say(
        &format!("SESSION.CONFIRM {KEY} zoe tools {epoch} t1 UPSTREAM u"),
        changed,
    )?;
    let rebind = format!("SESSION.REBIND {KEY} zoe tools {epoch} w:2 t2 {tail}");
    let epoch = say(&rebind, changed)?.field("epoch").integer();
    say(
        &format!("SESSION.UNBIND {KEY} zoe tools {epoch} t2"),
        &["HDEL"],
    )?;
    say(&format!("SESSION.TOUCH {KEY} zoe HASH h"), changed)?;
    say(&format!("SESSION.TOUCH {KEY} zoe TTL 700000"), new)?;
    say(&format!("SESSION.CREATE {KEY} s zoe TTL 900000"), new)?;
    say(&bind, changed)?;
    // Its tombstone is to live no longer than the key already does.
    say(&format!("SESSION.END {KEY} zoe"), changed)?;
    // A new incarnation on the tombstone drops what the old one held.
    say(
        &format!("SESSION.CREATE {KEY} s zoe TTL 900000"),
        &["MULTI", "HSET", "HDEL", "EXEC"],
    )?;
    // It holds nothing, and goes soon.
    let killed = say(&format!("SESSION.KILL {KEY}"), new)?;
    // The reaper's part: whoever ended it has said nothing of a worker, so any may say that it is cleaned up.
    let generation = killed.field("gen").integer();
    let forget = format!("SESSION.FORGET {KEY} {generation} w:1");
    say(&forget, &["UNLINK"])?;
    say("SESSION.RATE mcpgw:rate:1 LIMIT 2 WINDOW 3600000", &["SET"])?;
    Ok(())
}

#[tokio::test]
async fn a_cleaning_is_one_write() -> anyhow::Result<()> {
    let primary = Redis::start().await?;
    let mut c = Connection::open(&primary)?;
    c.run(&format!("SESSION.CREATE {KEY} s zoe TTL 1000"))?;
    // A session that was last used long ago.
    let long_ago = "1 1 active 1700000000000 1700000000000 1700000000000 1000";
    c.send(&[b"HSET", KEY.as_bytes(), b"s", long_ago.as_bytes()])?;
    let mut stream = Stream::of(&primary)?;
    let claimed = c.run(&format!("SESSION.CLAIM {KEY} w:1 LEASE 60000"))?;
    assert_eq!(stream.names()?, ["HSET"]);
    c.run(&format!("SESSION.CLAIM {KEY} w:2 LEASE 60000"))?;
    let generation = claimed.field("gen").integer();
    c.run(&format!("SESSION.FORGET {KEY} {generation} w:2"))?;
    c.run(&format!("SESSION.FORGET {KEY} {} w:1", generation - 1))?;
    assert_eq!(stream.names()?, [""; 0], "refused");
    c.run(&format!("SESSION.FORGET {KEY} {generation} w:1"))?;
    assert_eq!(stream.names()?, ["UNLINK"]);
    Ok(())
}

#[tokio::test]
async fn a_no_op_or_a_refusal_sends_nothing() -> anyhow::Result<()> {
    let primary = Redis::start().await?;
    let mut c = Connection::open(&primary)?;
    c.run(&format!(
        "SESSION.CREATE {KEY} s zoe TTL 900000 HASH h LABEL a 1"
    ))?;
    let bind =
        format!("SESSION.BIND {KEY} zoe tools w:1 t1 LEASE 60000 INSTANCES 1 one UPSTREAM u");
    let epoch = c.run(&bind)?.field("epoch").integer();
    c.run("SET mcpgw:text x")?;
    let mut stream = Stream::of(&primary)?;
    for nothing in [
        format!("SESSION.CREATE {KEY} s zoe TTL 900000"),
        format!("SESSION.CREATE {KEY} s eve TTL 900000"),
        format!("SESSION.TOUCH {KEY} zoe"),
        format!("SESSION.TOUCH {KEY} zoe TTL 900000 HASH h LABEL a 1"),
        format!("SESSION.ROUTE {KEY} zoe tools w:1"),
        format!("SESSION.ROUTE {KEY} zoe tools w:2"),
        format!("SESSION.ROUTE {KEY} zoe other w:2"),
        format!("SESSION.ROUTE {KEY} eve tools w:2"),
        bind,
        format!("SESSION.BIND {KEY} zoe tools w:2 t2 LEASE 60000 INSTANCES 1 two"),
        format!("SESSION.CONFIRM {KEY} zoe tools {epoch} t1 UPSTREAM u"),
        format!("SESSION.CONFIRM {KEY} zoe tools {epoch} t1 UPSTREAM v"),
        format!("SESSION.REBIND {KEY} zoe tools 1 w:2 t2 LEASE 60000 INSTANCES 1 two"),
        format!("SESSION.UNBIND {KEY} zoe tools 1"),
        format!("SESSION.GET {KEY}"),
        "SESSION.GET mcpgw:none".to_owned(),
        format!("SESSION.EXPLAIN {KEY}"),
        "SESSION.TOUCH mcpgw:none zoe".to_owned(),
        "SESSION.TOUCH mcpgw:text zoe".to_owned(),
        "WORKER.BEAT w:1 a TTL 60000".to_owned(),
        "WORKER.LIST".to_owned(),
        "WORKER.GONE w:3".to_owned(),
        "SESSION.STATS".to_owned(),
        "SESSION.LIST".to_owned(),
        "SESSION.COUNT".to_owned(),
        "SESSION.REAP w:1 COUNT 10".to_owned(),
        "SESSION.REINDEX".to_owned(),
        "SESSION.HELP".to_owned(),
        // Turns and news are in memory.
        format!("SESSION.ENTER {KEY} zoe tools w:1 ticket LEASE 1000"),
        format!("SESSION.LEAVE {KEY} zoe tools ticket"),
        format!("SESSION.LEAVE {KEY} zoe tools ticket"),
        "WORKER.WAIT w:1 TIMEOUT 1".to_owned(),
        format!("SESSION.CLAIM {KEY} w:1 LEASE 1000"),
        format!("SESSION.FORGET {KEY} 1 w:1"),
        "SESSION.RATE mcpgw:text LIMIT 1 WINDOW 1000".to_owned(),
    ] {
        c.run(&nothing)?;
        assert_eq!(stream.names()?, [""; 0], "{nothing}");
    }
    c.run(&format!("SESSION.END {KEY} zoe"))?;
    assert_ne!(stream.names()?, [""; 0], "an end is a change");
    c.run(&format!("SESSION.END {KEY} zoe"))?;
    assert_eq!(stream.names()?, [""; 0], "a second one is not");
    Ok(())
}

#[tokio::test]
async fn touches_are_coalesced() -> anyhow::Result<()> {
    let primary = Redis::start().await?;
    let mut c = Connection::open(&primary)?;
    let mut stream = Stream::of(&primary)?;
    c.run("CONFIG SET mooring.touch-step 10")?;
    c.run(&format!("SESSION.CREATE {KEY} s zoe TTL 1000"))?;
    let created = c
        .run(&format!("SESSION.GET {KEY}"))?
        .field("last_used_at")
        .integer();
    stream.sent()?;
    let (mut uses, mut writes, mut expiries) = (0, 0, 0);
    // As often as it is used within half of its lifetime, it is written once in each tenth of it at most.
    let last = loop {
        c.run(&format!("SESSION.TOUCH {KEY} zoe"))?;
        c.run(&format!("SESSION.ROUTE {KEY} zoe tools w:1"))?;
        uses += 2;
        let sent = stream.names()?;
        if !sent.is_empty() {
            let with_expiry = ["MULTI", "HSET", "PEXPIREAT", "EXEC"].as_slice();
            assert!(sent == ["HSET"] || sent == with_expiry, "{sent:?}");
            expiries += i64::from(sent == with_expiry);
            writes += 1;
        }
        let last = c
            .run(&format!("SESSION.GET {KEY}"))?
            .field("last_used_at")
            .integer();
        if last - created > 500 {
            break last;
        }
    };
    assert!(
        writes * 100 <= last - created,
        "{writes} writes in {} ms",
        last - created
    );
    assert!(
        expiries * 250 <= last - created,
        "{expiries} deadlines of the key in {} ms",
        last - created
    );
    assert!(
        (1..uses / 2).contains(&writes),
        "{writes} writes of {uses} uses"
    );
    Ok(())
}

/// Whether Redis itself sent it, for a key of a rate, the only ones whose time is over so soon.
fn is_expiry(words: &Sent, rates: &BTreeSet<String>) -> bool {
    matches!(words[0].as_str(), "DEL" | "UNLINK") && rates.contains(&words[1])
}

#[tokio::test]
async fn random_traffic_sends_whole_changes_only() -> anyhow::Result<()> {
    /// Effects that come to the same whenever and wherever they are repeated.
    const ABSOLUTE: [&str; 6] = ["HSET", "HDEL", "PEXPIREAT", "UNLINK", "DEL", "SET"];
    let primary = Redis::start().await?;
    let mut c = Connection::open(&primary)?;
    let mut traffic = Traffic::new(
        &mut c,
        99,
        Mix {
            bad: 10,
            foreign: 0,
        },
    )?;
    let mut stream = Stream::of(&primary)?;
    let mut rates = BTreeSet::new();
    for _ in 0..1_500 {
        let said = traffic.draw();
        if said.words[0].eq_ignore_ascii_case(b"session.rate") {
            let key = said
                .words
                .get(1)
                .map(|key| String::from_utf8_lossy(key).into_owned());
            rates.extend(key);
        }
        let reply = traffic.say(&mut c, &said)?;
        let mut sent = stream.sent()?;
        sent.retain(|words| !is_expiry(words, &rates));
        let names: Vec<&str> = sent.iter().map(|words| words[0].as_str()).collect();
        let effects = match names.as_slice() {
            ["MULTI", effects @ .., "EXEC"] => effects,
            all => all,
        };
        assert!(
            effects.iter().all(|name| ABSOLUTE.contains(name)),
            "{}: {sent:?}",
            shown(&said)
        );
        assert!(
            names.len() <= 1 || names.len() == effects.len() + 2,
            "{names:?}"
        );
        if let Value::Error(text) = reply {
            assert!(sent.is_empty(), "{}: {text}: {sent:?}", shown(&said));
        }
        for words in &sent {
            let relative = ["PX", "EX", "KEEPTTL"]
                .iter()
                .any(|word| words.iter().any(|w| w == word));
            assert!(!relative, "a relative time: {words:?}");
        }
    }
    Ok(())
}
