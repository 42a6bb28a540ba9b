//! Calls that another takes out of the queue: LEAVE with WAITING.

use super::super::resp::Connection;
use super::{KEY, SHORT_QUIET, enter, hear, hear_turn, leave, server, turn, until_waiting};

fn withdraw(beginning: &str) -> String {
    format!("SESSION.LEAVE {KEY} zoe tools {beginning} WAITING")
}

#[tokio::test]
async fn who_waits_is_taken_out_and_its_worker_told() -> anyhow::Result<()> {
    let (redis, mut c) = server(&SHORT_QUIET).await?;
    c.run("CONFIG SET mooring.turn-lease-max-ms 60000")?;
    let mut waiting = Connection::open_resp3(&redis)?;
    let first = turn(&c.run(&enter("a:1", "a1.x", 60_000, ""))?);
    for ticket in ["b1.x", "b1.y", "b10.x"] {
        assert_eq!(turn(&c.run(&enter("b:1", ticket, 60_000, ""))?), None);
    }
    c.run(&enter("c:1", "c1.x", 60_000, ""))?;
    // Whoever sits in WAIT is woken by it.
    waiting.say(&[b"WORKER.WAIT", b"b:1", b"TIMEOUT", b"20000"])?;
    until_waiting(&mut c, 1).await?;
    assert_eq!(c.show(&withdraw("b1."))?, "{left: 2}");
    let heard = waiting.read()?.to_string();
    let expected = |ticket: &str| {
        format!("{{event: withdrawn, key: {KEY}, server: tools, ticket: {ticket}, turn: null}}")
    };
    assert_eq!(
        heard,
        format!("[{}, {}]", expected("b1.x"), expected("b1.y"))
    );
    assert!(c.show(&withdraw("b1."))?.starts_with("STALE"));
    assert!(c.show(&leave("b1.x"))?.starts_with("STALE"));
    // Who has its turn keeps it, and nothing was done to the others.
    assert!(c.show(&withdraw("a1"))?.starts_with("BUSY a turn is held"));
    assert_eq!(turn(&c.run(&enter("a:1", "a1.x", 60_000, ""))?), first);
    c.run(&leave("a1.x"))?;
    hear_turn(&mut c, "b:1", "b10.x")?;
    c.run(&leave("b10.x"))?;
    hear_turn(&mut c, "c:1", "c1.x")?;
    let stats = c.run("SESSION.STATS")?;
    assert_eq!(stats.field("turn_waiters").integer(), 0);
    assert_eq!(stats.field("turns_lost").integer(), 0);
    Ok(())
}

#[tokio::test]
async fn a_turn_that_has_come_unheard_goes_to_the_next() -> anyhow::Result<()> {
    let (_redis, mut c) = server(&SHORT_QUIET).await?;
    c.run("CONFIG SET mooring.turn-lease-max-ms 60000")?;
    for (worker, ticket) in [("a:1", "a1"), ("b:1", "b1"), ("c:1", "c1")] {
        c.run(&enter(worker, ticket, 60_000, ""))?;
    }
    // In one go, before the grant could run out.
    let replies = c.run_all(&[leave("a1"), withdraw("b1")])?;
    let shown: Vec<String> = replies.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["{left: 1}", "{left: 1}"]);
    assert_eq!(hear(&mut c, "b:1", 5_000)?, ["withdrawn b1"]);
    hear_turn(&mut c, "c:1", "c1")?;
    // And one who has heard of it is under way.
    assert!(c.show(&withdraw("c1"))?.starts_with("BUSY"));
    Ok(())
}

#[tokio::test]
async fn it_is_refused_as_every_leave_is() -> anyhow::Result<()> {
    let (_redis, mut c) = server(&SHORT_QUIET).await?;
    c.run("CONFIG SET mooring.turn-lease-max-ms 60000")?;
    c.run(&enter("a:1", "a1", 60_000, ""))?;
    c.run(&enter("b:1", "b1", 60_000, ""))?;
    c.run(&format!("SESSION.CREATE {KEY}x s2 zoe TTL 900000"))?;
    c.run(&format!("SESSION.END {KEY}x zoe"))?;
    for (command, expected) in [
        (
            format!("SESSION.LEAVE {KEY} eve tools b1 WAITING"),
            "DENIED",
        ),
        (
            format!("SESSION.LEAVE {KEY}y zoe tools b1 WAITING"),
            "NOSESSION",
        ),
        (
            format!("SESSION.LEAVE {KEY}x zoe tools b1 WAITING"),
            "ENDED",
        ),
        (format!("SESSION.LEAVE {KEY} zoe other b1 WAITING"), "STALE"),
        (
            format!("SESSION.LEAVE {KEY} zoe tools b1 WAITING WAITING"),
            "ERR syntax error",
        ),
        (
            format!("SESSION.LEAVE {KEY} zoe tools b1 HELD"),
            "ERR syntax error near 'HELD'",
        ),
    ] {
        let shown = c.show(&command)?;
        assert!(shown.starts_with(expected), "{command}: {shown}");
    }
    assert_eq!(c.show(&withdraw("b1"))?, "{left: 1}", "it still waits");
    Ok(())
}
