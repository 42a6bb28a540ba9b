//! How a delegation ends, other than by its worker: with the binding or the session, the worker's connection for events,
//! the worker, or the primary.

use mooring_session::limits::DELEGATION_STREAK_MIN;
use mooring_tests::redis::{Module, Redis};
use mooring_tests::wait;

use super::super::resp::{Connection, Value};
use super::super::turns::{KEY, SOON, enter, hear, hear_turn, leave, turn};
use super::{
    Fixture, LEASE, RENEWAL, ROUTE, SETTINGS, SETTLED, begin_wait, create, delegated_ms, with_epoch,
};

#[tokio::test]
async fn every_change_of_the_binding_or_the_session_is_told_to_the_worker() -> anyhow::Result<()> {
    let ways: [(&str, &str); 17] = [
        (
            "SESSION.REBIND {KEY} zoe tools # b:1 t2 LEASE 60000 INSTANCES 1 two",
            "",
        ),
        (
            "SESSION.REBIND {KEY} zoe tools # b:1 t2 LEASE 60000 INSTANCES 1 two UPSTREAM u2",
            "",
        ),
        ("SESSION.CONFIRM {KEY} zoe tools # t1 UPSTREAM u1", ""),
        ("SESSION.UNBIND {KEY} zoe tools #", ""),
        ("SESSION.END {KEY} zoe", ""),
        ("SESSION.KILL {KEY}", ""),
        ("SESSION.TOUCH {KEY} zoe TTL 1000", ""),
        ("HSET {KEY} x y", ""),
        ("SET {KEY} x", ""),
        ("DEL {KEY}", ""),
        ("PEXPIRE {KEY} 0", ""),
        ("MOVE {KEY} 1", "FLUSHALL"),
        ("RENAME {KEY} mcpgw:session_affinity:s2", ""),
        ("SWAPDB 0 1", "SWAPDB 0 1"),
        ("FLUSHDB", ""),
        ("FLUSHALL", ""),
        ("EVICT", ""),
    ];
    let mut fixture = Fixture::start().await?;
    fixture
        .c
        .run("CONFIG SET maxmemory-policy allkeys-random")?;
    for (way, back) in ways {
        for of_a_turn in [true, false] {
            create(&mut fixture.c)?;
            let delegated = match of_a_turn {
                true => fixture.ask_in_a_row()?,
                false => delegated_ms(&fixture.c.run(ROUTE)?),
            };
            assert_eq!(delegated, Some(LEASE), "{way}");
            match way {
                "EVICT" => {
                    fixture.c.run("CONFIG SET maxmemory 1")?;
                    fixture.c.run("SET x y")?;
                    fixture.c.run("CONFIG SET maxmemory 0")?;
                }
                way => {
                    let way = with_epoch(&mut fixture.c, &way.replace("{KEY}", KEY))?;
                    let reply = fixture.c.run(&way)?;
                    assert!(!matches!(reply, Value::Error(_)), "{way}: {reply}");
                }
            }
            assert_eq!(fixture.waiting.read()?.to_string(), SETTLED, "{way}");
            fixture.wait().await?;
            if !back.is_empty() {
                fixture.c.run(back)?;
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_worker_that_has_left_is_not_told() -> anyhow::Result<()> {
    let mut fixture = Fixture::start().await?;
    assert_eq!(fixture.ask_in_a_row()?, Some(LEASE));
    fixture.c.run(&leave("a9"))?;
    fixture.c.run(&format!("SESSION.END {KEY} zoe"))?;
    // A second WAIT ends the first, with all pending events.
    fixture.c.run("WORKER.WAIT a:1 TIMEOUT 1")?;
    assert_eq!(fixture.waiting.read()?.to_string(), "[]");
    Ok(())
}

/// What is delegated to `a:1` goes to `b:1` after the connection of `a:1` has closed: on servers of all versions.
pub(in super::super) async fn ends_with_the_connection(
    redis: &Redis,
    c: &mut Connection,
) -> anyhow::Result<()> {
    create(c)?;
    c.run("CONFIG SET mooring.turn-lease-max-ms 600000")?;
    let mut waiting = Connection::open_resp3(redis)?;
    begin_wait(&mut waiting)?;
    wait::until_true("a delegated turn", SOON, async || {
        let entered = c.run(RENEWAL)?;
        let is_delegated = delegated_ms(&entered).is_some();
        if !is_delegated {
            c.run(&leave("a9"))?;
        }
        Ok(is_delegated)
    })
    .await?;
    drop(waiting);
    c.run(&enter("b:1", "b1", 60_000, ""))?;
    hear_turn(c, "b:1", "b1")?;
    c.run(&format!("DEL {KEY}"))?;
    Ok(())
}

/// Whether the connection closes during a WAIT or between two, and whether the worker then waits on another.
#[tokio::test]
async fn a_worker_whose_connection_for_events_closes_loses_what_is_delegated_to_it()
-> anyhow::Result<()> {
    for (during_wait, returns) in [(true, true), (false, true), (true, false), (false, false)] {
        let mut fixture = Fixture::start().await?;
        assert_eq!(fixture.ask_in_a_row()?, Some(LEASE));
        fixture.recall()?;
        let id = match during_wait {
            true => {
                fixture.wait().await?;
                waiting_client(&mut fixture.c)?
            }
            false => fixture.waiting.run("CLIENT ID")?.integer().to_string(),
        };
        let mut next = Connection::open_resp3(&fixture.redis)?;
        let kill: [&[u8]; 4] = [b"CLIENT", b"KILL", b"ID", id.as_bytes()];
        if returns {
            // In one go, so that it returns in time on any machine.
            next.say_all(&[&kill, &[b"WORKER.WAIT", b"a:1", b"TIMEOUT", b"600000"]])?;
            assert_eq!(next.read()?, Value::Integer(1));
            assert!(hear(&mut fixture.c, "b:1", 1_000)?.is_empty());
            fixture.c.run(&leave("a9"))?;
        } else {
            assert_eq!(next.send(&kill)?, Value::Integer(1));
        }
        hear_turn(&mut fixture.c, "b:1", "b1")?;
        assert_eq!(fixture.c.show(&leave("b1"))?, "{left: 1}");
    }
    Ok(())
}

/// The id of the client that is in WORKER.WAIT.
fn waiting_client(c: &mut Connection) -> anyhow::Result<String> {
    let clients = c.show("CLIENT LIST")?;
    let line = clients
        .split("\\n")
        .find(|line| line.contains("cmd=worker.wait") && line.contains("flags=b"))
        .expect("a client that waits");
    let id = line.split(' ').find_map(|field| field.strip_prefix("id="));
    Ok(id.expect("an id").to_owned())
}

#[tokio::test]
async fn a_worker_that_deregisters_loses_what_is_delegated_to_it() -> anyhow::Result<()> {
    let mut fixture = Fixture::start().await?;
    assert_eq!(fixture.ask_in_a_row()?, Some(LEASE));
    fixture.recall()?;
    fixture.c.run("WORKER.GONE a:1")?;
    hear_turn(&mut fixture.c, "b:1", "b1")
}

#[tokio::test]
async fn a_promoted_replica_delegates_no_turn_in_its_quiet_time() -> anyhow::Result<()> {
    let mut fixture = Fixture::start().await?;
    let replica = Redis::start_replica(&fixture.redis, Module::Loaded, &SETTINGS).await?;
    let mut there = Connection::open_resp3(&replica)?;
    wait::until_true("the replica has the session", SOON, async || {
        Ok(there.show(&format!("EXISTS {KEY}"))? == "1")
    })
    .await?;
    assert_eq!(fixture.ask_in_a_row()?, Some(LEASE));
    let held = turn(&fixture.c.run(RENEWAL)?).expect("a turn");
    there.run("CONFIG SET mooring.turn-lease-max-ms 4000")?;
    there.run("REPLICAOF NO ONE")?;
    fixture.waiting = Connection::open_resp3(&replica)?;
    fixture.c = there;
    fixture.wait().await?;
    assert_eq!(turn(&fixture.c.run(&enter("b:1", "b1", 4_000, ""))?), None);
    let claim = enter("a:1", "a9", 4_000, &format!(" DELEGATE HELD {held}"));
    for _ in 0..=DELEGATION_STREAK_MIN {
        let claimed = fixture.c.run(&claim)?;
        assert_eq!(turn(&claimed), Some(held));
        assert_eq!(delegated_ms(&claimed), None);
    }
    fixture.c.run(&leave("a9"))?;
    hear_turn(&mut fixture.c, "b:1", "b1")
}
