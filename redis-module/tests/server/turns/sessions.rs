//! Turns and the other commands of a session: ROUTE, END, REBIND, and what is refused.

use super::super::resp::Value;
use super::{KEY, SHORT_QUIET, enter, hear, hear_turn, leave, server, turn};

/// A reply to a caller that waits, without its last number: for how long the turn has been held.
fn without_age(reply: &str) -> &str {
    reply.trim_end_matches(|c: char| c.is_ascii_digit() || c == '}')
}

#[tokio::test]
async fn route_asks_for_a_turn_in_the_same_round_trip() -> anyhow::Result<()> {
    let (_redis, mut c) = server(&SHORT_QUIET).await?;
    let route = |ticket| format!("SESSION.ROUTE {KEY} zoe tools w:1 TURN {ticket} LEASE 1000");
    assert_eq!(c.show(&route("t1"))?, "{state: unbound, turn: #}");
    assert_eq!(
        without_age(&c.show(&route("t2"))?),
        "{state: unbound, turn: null, turn_holder: w:1, turn_held_ms: "
    );
    let bind =
        format!("SESSION.BIND {KEY} zoe tools w:1 t1 LEASE 60000 INSTANCES 1 one UPSTREAM u");
    c.run(&bind)?;
    assert_eq!(
        c.show(&route("t1"))?,
        "{state: bound, instance: one, driver: w:1, epoch: #, upstream_session: u, turn: #}"
    );
    assert_eq!(
        without_age(&c.show(&enter("w:1", "t2", 1_000, ""))?),
        "{state: bound, instance: one, driver: w:1, epoch: #, upstream_session: u, turn: null, turn_holder: w:1, \
            turn_held_ms: "
    );
    // Without one it is as it was.
    assert_eq!(
        c.show(&format!("SESSION.ROUTE {KEY} zoe tools w:1"))?,
        "{state: bound, instance: one, driver: w:1, epoch: #, upstream_session: u}"
    );
    Ok(())
}

#[tokio::test]
async fn what_is_refused_is_refused_by_its_code() -> anyhow::Result<()> {
    let (_redis, mut c) = server(&SHORT_QUIET).await?;
    c.run("CONFIG SET mooring.turn-queue-max 2")?;
    let held = turn(&c.run(&enter("w:1", "t1", 1_000, ""))?).expect("a turn");
    c.run(&enter("w:1", "t2", 1_000, ""))?;
    c.run(&enter("w:1", "t3", 1_000, ""))?;
    c.run(&format!("SESSION.CREATE {KEY}x s2 zoe TTL 900000"))?;
    c.run(&format!("SESSION.END {KEY}x zoe"))?;
    let lease = "ERR invalid LEASE: must be an integer from 10 to 1000";
    for (command, expected) in [
        (
            enter("w:1", "t4", 1_000, ""),
            "LIMIT turn-queue 2".to_owned(),
        ),
        (enter("w:1", "t4", 1_001, ""), lease.to_owned()),
        (enter("w:1", "t4", 9, ""), lease.to_owned()),
        (
            format!("SESSION.ROUTE {KEY} zoe tools w:1 TURN t4 LEASE 1001"),
            lease.to_owned(),
        ),
        (
            enter("w:1", "t4", 1_000, &format!(" HELD {}", held - 1)),
            "STALE".to_owned(),
        ),
        (
            enter("w:1", "t4", 1_000, " HELD 0"),
            "ERR invalid HELD".to_owned(),
        ),
        (
            format!("SESSION.ENTER {KEY} eve tools w:1 t4 LEASE 1000"),
            "DENIED".to_owned(),
        ),
        (
            format!("SESSION.ENTER {KEY}y zoe tools w:1 t4 LEASE 1000"),
            "NOSESSION".to_owned(),
        ),
        (
            format!("SESSION.ENTER {KEY}x zoe tools w:1 t4 LEASE 1000"),
            "ENDED".to_owned(),
        ),
        (leave("t9"), "STALE".to_owned()),
        (
            format!("SESSION.LEAVE {KEY} eve tools t1"),
            "DENIED".to_owned(),
        ),
        (
            format!("SESSION.LEAVE {KEY}y zoe tools t1"),
            "NOSESSION".to_owned(),
        ),
        (
            format!("SESSION.LEAVE {KEY}x zoe tools t1"),
            "ENDED".to_owned(),
        ),
        (
            format!("SESSION.LEAVE {KEY} zoe other t1"),
            "STALE".to_owned(),
        ),
    ] {
        let shown = c.show(&command)?;
        assert!(shown.starts_with(&expected), "{command}: {shown}");
    }
    // Nothing of it changed anything.
    assert_eq!(turn(&c.run(&enter("w:1", "t1", 1_000, ""))?), Some(held));
    c.run(&leave("t2"))?;
    c.run(&leave("t1"))?;
    assert_eq!(hear(&mut c, "w:1", 5_000)?, ["turn t3"]);
    Ok(())
}

#[tokio::test]
async fn a_session_with_a_turn_is_not_idle_and_one_that_ends_tells_who_waits() -> anyhow::Result<()>
{
    let (_redis, mut c) = server(&SHORT_QUIET).await?;
    c.run("CONFIG SET mooring.turn-lease-max-ms 60000")?;
    c.run(&enter("a:1", "a1", 60_000, ""))?;
    c.run(&enter("b:1", "b1", 60_000, ""))?;
    let shown = c.show(&format!("SESSION.END {KEY} zoe IFIDLE"))?;
    assert_eq!(shown, "BUSY a turn is held");
    assert_eq!(
        c.run(&format!("SESSION.END {KEY} zoe"))?
            .field("ended_now")
            .integer(),
        1
    );
    assert_eq!(hear(&mut c, "b:1", 5_000)?, ["settled"]);
    assert!(c.show(&leave("a1"))?.starts_with("ENDED"));
    Ok(())
}

/// Its owner drains, but somebody is in the middle of a call through it.
#[tokio::test]
async fn an_owned_binding_is_not_moved_within_a_turn() -> anyhow::Result<()> {
    let (_redis, mut c) = server(&SHORT_QUIET).await?;
    c.run("WORKER.BEAT a:1 127.0.0.1:1 TTL 600000")?;
    let bind =
        format!("SESSION.BIND {KEY} zoe tools a:1 t1 LEASE 60000 INSTANCES 1 one UPSTREAM u OWNED");
    let epoch = c.run(&bind)?.field("epoch").integer();
    c.run("WORKER.BEAT a:1 127.0.0.1:1 TTL 600000 DRAINING")?;
    c.run("CONFIG SET mooring.turn-lease-max-ms 60000")?;
    c.run(&enter("a:1", "a1", 60_000, ""))?;
    let rebind =
        format!("SESSION.REBIND {KEY} zoe tools {epoch} b:1 t2 LEASE 60000 INSTANCES 1 one OWNED");
    assert!(c.show(&rebind)?.starts_with("OWNED"));
    c.run(&leave("a1"))?;
    assert_eq!(c.run(&rebind)?.field("won").integer(), 1);
    Ok(())
}

/// What waits for the session that was there is told to ask again, and its turn holds nobody up for longer than its lease.
#[tokio::test]
async fn a_record_that_takes_a_key_takes_none_of_its_turns() -> anyhow::Result<()> {
    for command in ["RENAME", "COPY", "RESTORE"] {
        let (_redis, mut c) = server(&SHORT_QUIET).await?;
        c.run(&format!("SESSION.CREATE {KEY}x s2 zoe TTL 900000"))?;
        c.run(&enter("a:1", "a1", 1_000, ""))?;
        c.run(&enter("b:1", "b1", 1_000, ""))?;
        let other = format!("{KEY}x");
        let dump = c.run(&format!("DUMP {other}"))?;
        let (key, other) = (KEY.as_bytes(), other.as_bytes());
        let words: &[&[u8]] = match (command, &dump) {
            ("RENAME", _) => &[b"RENAME", other, key],
            ("COPY", _) => &[b"COPY", other, key, b"REPLACE"],
            (_, Value::Text(dump)) => &[b"RESTORE", key, b"0", dump, b"REPLACE"],
            _ => anyhow::bail!("DUMP is bytes"),
        };
        let replaced = c.send(words)?;
        assert!(
            !matches!(replaced, Value::Error(_)),
            "{command}: {replaced}"
        );
        assert_eq!(hear(&mut c, "b:1", 5_000)?, ["settled"], "{command}");
        if turn(&c.run(&enter("b:1", "b2", 1_000, ""))?).is_none() {
            hear_turn(&mut c, "b:1", "b2")?;
        }
    }
    Ok(())
}

/// Its holder has heard of nothing, and its call runs: who comes next waits for it, and it may go on.
#[tokio::test]
async fn a_session_that_comes_back_to_its_key_has_one_holder() -> anyhow::Result<()> {
    let (_redis, mut c) = server(&SHORT_QUIET).await?;
    c.run("CONFIG SET mooring.turn-lease-max-ms 60000")?;
    let Value::Text(dump) = c.run(&format!("DUMP {KEY}"))? else {
        anyhow::bail!("DUMP is bytes");
    };
    let key = KEY.as_bytes();
    let there_and_back: [&[&[&[u8]]]; 3] = [
        &[&[b"SWAPDB", b"0", b"1"], &[b"SWAPDB", b"0", b"1"]],
        &[&[b"RENAME", key, b"else"], &[b"RENAME", b"else", key]],
        &[&[b"RESTORE", key, b"0", &dump, b"REPLACE"]],
    ];
    for commands in there_and_back {
        let held = turn(&c.run(&enter("a:1", "a1", 60_000, ""))?);
        for words in commands {
            assert_eq!(c.send(words)?.to_string(), "OK");
        }
        let entered = c.run(&enter("b:1", "b1", 60_000, ""))?;
        assert_eq!(turn(&entered), None, "{entered}");
        let number = held.expect("a turn");
        let claimed = c.run(&enter("a:1", "a1", 60_000, &format!(" HELD {number}")))?;
        assert_eq!(turn(&claimed), held);
        c.run(&leave("a1"))?;
        hear_turn(&mut c, "b:1", "b1")?;
        c.run(&leave("b1"))?;
    }
    Ok(())
}
