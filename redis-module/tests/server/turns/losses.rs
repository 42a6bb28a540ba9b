//! How a turn is lost: with its worker, its lease, or the connection that would have brought it; and how it is not.

use std::time::Duration;

use mooring_tests::wait;

use super::super::resp::{Connection, Value};
use super::{KEY, SHORT_QUIET, SOON, enter, hear, hear_turn, leave, server, turn, until_waiting};

#[tokio::test]
async fn a_worker_that_takes_its_leave_or_stops_beating_loses_its_turn() -> anyhow::Result<()> {
    let (redis, mut c) = server(&SHORT_QUIET).await?;
    c.run("CONFIG SET mooring.turn-lease-max-ms 60000")?;
    let mut waiting = Connection::open_resp3(&redis)?;
    for (death, ticket) in [("WORKER.GONE a:1", "b1"), ("PING", "b2")] {
        c.run("WORKER.BEAT a:1 127.0.0.1:1 TTL 100")?;
        assert!(turn(&c.run(&enter("a:1", "a1", 60_000, ""))?).is_some());
        assert_eq!(turn(&c.run(&enter("b:1", ticket, 60_000, ""))?), None);
        c.run(death)?;
        hear_turn(&mut waiting, "b:1", ticket)?;
        assert!(c.show(&leave("a1"))?.starts_with("STALE"));
        assert!(
            c.show(&enter("a:1", "a1", 60_000, ""))?
                .starts_with("STALE"),
            "the dead are not let in"
        );
        c.run(&leave(ticket))?;
    }
    assert_eq!(c.run("SESSION.STATS")?.field("turns_lost").integer(), 2);
    Ok(())
}

/// A holder that is paused past its lease, as a stopped process is.
#[tokio::test]
async fn a_lease_that_lapses_passes_the_turn_on() -> anyhow::Result<()> {
    let (redis, mut c) = server(&SHORT_QUIET).await?;
    let mut waiting = Connection::open_resp3(&redis)?;
    let first = turn(&c.run(&enter("a:1", "a1", 300, ""))?).expect("a turn");
    assert_eq!(turn(&c.run(&enter("b:1", "b1", 1_000, ""))?), None);
    hear_turn(&mut waiting, "b:1", "b1")?;
    let second = turn(&c.run(&enter("b:1", "b1", 1_000, ""))?).expect("a turn");
    assert!(second > first);
    assert!(c.show(&leave("a1"))?.starts_with("STALE"));
    assert_eq!(
        turn(&c.run(&enter("a:1", "a1", 300, ""))?),
        None,
        "a newcomer"
    );
    Ok(())
}

#[tokio::test]
async fn a_renewed_lease_holds_and_slides_the_session() -> anyhow::Result<()> {
    let (_redis, mut c) = server(&SHORT_QUIET).await?;
    c.run("CONFIG SET mooring.touch-step 1000")?;
    c.run(&format!("SESSION.TOUCH {KEY} zoe TTL 1000"))?;
    let renew = enter("a:1", "a1", 1_000, "");
    let first = turn(&c.run(&renew)?);
    assert!(first.is_some());
    c.run(&enter("b:1", "b1", 1_000, ""))?;
    // For longer than the session lives without a use, and than a lease.
    for unused in ["mcpgw:unused1", "mcpgw:unused2"] {
        c.run(&format!("SESSION.CREATE {unused} s zoe TTL 1000"))?;
        wait::until_true("the unused session to expire", SOON, async || {
            assert_eq!(turn(&c.run(&renew)?), first);
            assert_eq!(hear(&mut c, "b:1", 50)?, [""; 0]);
            let record = c.run(&format!("SESSION.GET {unused}"))?;
            Ok(record.field("state").to_string() == "expired")
        })
        .await?;
    }
    assert_eq!(c.show(&leave("a1"))?, "{left: 1}");
    assert_eq!(hear(&mut c, "b:1", 5_000)?, ["turn b1"]);
    Ok(())
}

/// The worker lives, but the connection on which it would have heard is gone.
#[tokio::test]
async fn a_grant_that_nobody_picks_up_passes_on() -> anyhow::Result<()> {
    let (redis, mut c) = server(&SHORT_QUIET).await?;
    c.run("CONFIG SET mooring.turn-lease-max-ms 60000")?;
    let mut lost = Connection::open_resp3(&redis)?;
    c.run(&enter("a:1", "a1", 60_000, ""))?;
    c.run(&enter("b:1", "b1", 60_000, ""))?;
    c.run(&enter("c:1", "c1", 60_000, ""))?;
    lost.say(&[b"WORKER.WAIT", b"b:1", b"TIMEOUT", b"600000"])?;
    until_waiting(&mut c, 1).await?;
    drop(lost);
    until_waiting(&mut c, 0).await?;
    c.run(&leave("a1"))?;
    hear_turn(&mut c, "c:1", "c1")?;
    assert!(c.show(&leave("b1"))?.starts_with("STALE"));
    assert_eq!(hear(&mut c, "b:1", 5_000)?, ["settled"], "it may ask again");
    Ok(())
}

/// More of them than one answer holds, and behind them the news that each was lost.
#[tokio::test]
async fn turns_that_passed_on_do_not_hide_other_news() -> anyhow::Result<()> {
    const LOST: usize = 1_100;
    let (_redis, mut c) = server(&SHORT_QUIET).await?;
    c.run("CONFIG SET mooring.turn-lease-max-ms 60000")?;
    let before = c.run("SESSION.STATS")?.field("turns_lost").integer();
    let each = |command: &dyn Fn(usize) -> String| (0..LOST).map(command).collect::<Vec<_>>();
    for commands in [
        each(&|n| format!("SESSION.ENTER {KEY} zoe s{n} a:1 a LEASE 60000")),
        each(&|n| format!("SESSION.ENTER {KEY} zoe s{n} b:1 b LEASE 60000")),
        each(&|n| format!("SESSION.LEAVE {KEY} zoe s{n} a")),
    ] {
        for reply in c.run_all(&commands)? {
            assert!(!matches!(reply, Value::Error(_)), "{reply}");
        }
    }
    wait::until_true("the grants to pass on", SOON, async || {
        let lost = c.run("SESSION.STATS")?.field("turns_lost").integer();
        Ok(lost - before == i64::try_from(LOST)?)
    })
    .await?;
    // Where blocking is denied an empty answer says that there is no news.
    let reply = c.transaction(&[b"WORKER.WAIT", b"b:1", b"TIMEOUT", b"1"])?;
    let Value::Array(answers) = &reply else {
        panic!("EXEC answers with an array: {reply}");
    };
    let [Value::Array(items)] = answers.as_slice() else {
        panic!("WAIT answers with an array: {reply}");
    };
    let are_settled = items
        .iter()
        .all(|item| item.field("event").to_string() == "settled");
    assert!(!items.is_empty() && are_settled, "{} items", items.len());
    Ok(())
}

/// How long the server stands still: longer than the beat below lives.
const STANDSTILL: Duration = Duration::from_millis(1_000);

/// While the server stands still, beats wait in its sockets; what is read before them must not find anybody dead.
#[tokio::test]
async fn a_server_that_stood_still_takes_nobody_for_dead() -> anyhow::Result<()> {
    let (mut redis, mut c) = server(&SHORT_QUIET).await?;
    c.run("CONFIG SET mooring.turn-lease-max-ms 60000")?;
    c.run("WORKER.BEAT a:1 127.0.0.1:1 TTL 900")?;
    c.run(&format!(
        "SESSION.BIND {KEY} zoe kept a:1 t1 LEASE 60000 INSTANCES 1 one UPSTREAM u1 OWNED"
    ))?;
    let held = turn(&c.run(&enter("a:1", "a1", 2_000, ""))?);
    assert!(held.is_some());
    redis.process().stop()?;
    tokio::time::sleep(STANDSTILL).await;
    redis.process().cont()?;
    let route = c.run(&format!("SESSION.ROUTE {KEY} zoe kept b:1"))?;
    assert_eq!(route.field("state").to_string(), "bound");
    assert_eq!(turn(&c.run(&enter("a:1", "a1", 2_000, ""))?), held);
    Ok(())
}
