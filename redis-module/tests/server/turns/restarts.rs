//! What a restart or a failover leaves of turns: they are claimed again by those who held them, in a quiet time.

use mooring_tests::redis::{Module, Redis};
use mooring_tests::wait;

use super::super::resp::Connection;
use super::{KEY, SOON, enter, hear_turn, leave, server, turn};

#[tokio::test]
async fn after_a_restart_only_who_held_a_turn_gets_it_until_the_quiet_time_is_over()
-> anyhow::Result<()> {
    let settings = [
        "--mooring.turn-lease-max-ms",
        "4000",
        "--appendfsync",
        "always",
    ];
    let (mut redis, mut c) = server(&settings).await?;
    let held = turn(&c.run(&enter("a:1", "a1", 4_000, ""))?).expect("a turn");
    assert_eq!(turn(&c.run(&enter("b:1", "b1", 4_000, ""))?), None);
    redis.restart().await?;
    let mut c = Connection::open_resp3(&redis)?;
    assert_eq!(turn(&c.run(&enter("b:1", "b1", 4_000, ""))?), None);
    let claim = enter("a:1", "a1", 4_000, &format!(" HELD {held}"));
    assert_eq!(turn(&c.run(&claim)?), Some(held));
    let stale = enter("c:1", "c1", 4_000, &format!(" HELD {}", held - 1));
    assert!(c.show(&stale)?.starts_with("STALE"));
    assert_eq!(c.show(&leave("a1"))?, "{left: 1}");
    assert_eq!(
        turn(&c.run(&enter("a:1", "a2", 4_000, ""))?),
        None,
        "it is quiet"
    );
    hear_turn(&mut c, "b:1", "b1")?;
    let next = turn(&c.run(&enter("b:1", "b1", 4_000, ""))?).expect("a turn");
    assert!(next > held, "{next} after {held}");
    Ok(())
}

/// As where the server is new and empty: nobody can hold an older turn of such a session.
#[tokio::test]
async fn a_session_created_after_a_restart_waits_for_no_quiet_time() -> anyhow::Result<()> {
    let settings = [
        "--mooring.turn-lease-max-ms",
        "600000",
        "--appendfsync",
        "always",
    ];
    let mut redis = Redis::start_with(Module::Loaded, &settings).await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run("SESSION.CREATE mcpgw:old s1 zoe TTL 900000")?;
    redis.restart().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let mut ask = |key: &str| {
        c.run(&format!("SESSION.CREATE {key} s1 zoe TTL 900000"))?;
        Ok::<_, anyhow::Error>(turn(
            &c.run(&format!("SESSION.ENTER {key} zoe tools a:1 t LEASE 2000"))?,
        ))
    };
    assert_eq!(ask("mcpgw:old")?, None, "its turn may be held");
    assert!(ask("mcpgw:new")?.is_some());
    Ok(())
}

#[tokio::test]
async fn after_a_failover_a_turn_goes_on_at_the_promoted_replica() -> anyhow::Result<()> {
    let settings = ["--mooring.turn-lease-max-ms", "4000"];
    let (primary, mut c) = server(&settings).await?;
    let replica = Redis::start_replica(&primary, Module::Loaded, &settings).await?;
    let mut there = Connection::open_resp3(&replica)?;
    wait::until_true("the replica has the session", SOON, async || {
        Ok(there.show(&format!("EXISTS {KEY}"))? == "1")
    })
    .await?;
    let held = turn(&c.run(&enter("a:1", "a1", 4_000, ""))?).expect("a turn");
    assert!(
        there
            .show(&enter("a:1", "a1", 4_000, ""))?
            .starts_with("READONLY"),
        "turns are the primary's"
    );
    assert!(there.show(&leave("a1"))?.starts_with("READONLY"));
    // The replica has been up for longer than the quiet time by now, or not: the promotion begins it anew.
    there.run("REPLICAOF NO ONE")?;
    assert_eq!(turn(&there.run(&enter("b:1", "b1", 4_000, ""))?), None);
    let claim = enter("a:1", "a1", 4_000, &format!(" HELD {held}"));
    assert_eq!(turn(&there.run(&claim)?), Some(held));
    assert_eq!(there.show(&leave("a1"))?, "{left: 1}");
    hear_turn(&mut there, "b:1", "b1")?;
    Ok(())
}
