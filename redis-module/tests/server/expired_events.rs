//! `session.expired`: told once for every incarnation that nobody used in time, by the primary alone.

use std::time::Duration;

use mooring_tests::redis::{Module, Redis};
use mooring_tests::wait;

use super::resp::{Connection, Value};

const TOLD_WITHIN: Duration = Duration::from_secs(20);

/// Listens to the events of class module.
fn listen(redis: &Redis) -> anyhow::Result<Connection> {
    let mut c = Connection::open(redis)?;
    c.run("CONFIG SET notify-keyspace-events KEd")?;
    c.run("PSUBSCRIBE __keyevent@*__:session.*")?;
    Ok(c)
}

/// The next event: its channel, and the key.
fn next(c: &mut Connection) -> anyhow::Result<(String, String)> {
    let Value::Array(message) = c.read()? else {
        anyhow::bail!("a message is an array");
    };
    let [_, _, channel, key] = &message[..] else {
        anyhow::bail!("a message of a pattern has four parts: {message:?}");
    };
    Ok((channel.to_string(), key.to_string()))
}

fn event(database: usize, name: &str, key: &str) -> (String, String) {
    let channel = format!("__keyevent@{database}__:session.{name}");
    (channel, key.to_owned())
}

#[tokio::test]
async fn it_is_told_once_for_every_incarnation_in_its_database() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut events = listen(&redis)?;
    let mut c = Connection::open(&redis)?;
    c.run("SELECT 3")?;
    // The second incarnation comes on the tombstone of the first.
    for _ in 0..2 {
        c.run("SESSION.CREATE mcpgw:a s zoe TTL 1000")?;
        assert_eq!(next(&mut events)?, event(3, "created", "mcpgw:a"));
        assert_eq!(next(&mut events)?, event(3, "expired", "mcpgw:a"));
    }
    // Neither what is ended nor what is dropped expires, and nothing is told twice: the next event is of the key that
    // came last.
    c.run("SESSION.CREATE mcpgw:b s zoe TTL 1000")?;
    c.run("SESSION.END mcpgw:b zoe")?;
    c.run("SESSION.CREATE mcpgw:c s zoe TTL 1000")?;
    c.run("DEL mcpgw:c")?;
    c.run("SESSION.REINDEX")?;
    c.run("SESSION.CREATE mcpgw:d s zoe TTL 1500")?;
    for (name, key) in [
        ("created", "mcpgw:b"),
        ("ended", "mcpgw:b"),
        ("created", "mcpgw:c"),
        ("created", "mcpgw:d"),
        ("expired", "mcpgw:d"),
    ] {
        assert_eq!(next(&mut events)?, event(3, name, key));
    }
    Ok(())
}

#[tokio::test]
async fn a_session_in_use_does_not_expire() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut events = listen(&redis)?;
    let mut c = Connection::open(&redis)?;
    c.run("SESSION.CREATE mcpgw:used s zoe TTL 1500")?;
    c.run("SESSION.CREATE mcpgw:idle s zoe TTL 1500")?;
    assert_eq!(next(&mut events)?, event(0, "created", "mcpgw:used"));
    assert_eq!(next(&mut events)?, event(0, "created", "mcpgw:idle"));
    // Used until the other one, made at the same time, is over.
    wait::until_true("the idle session to expire", TOLD_WITHIN, async || {
        c.run("SESSION.TOUCH mcpgw:used zoe")?;
        Ok(c.run("SESSION.GET mcpgw:idle")?.field("state").to_string() == "expired")
    })
    .await?;
    assert_eq!(next(&mut events)?, event(0, "expired", "mcpgw:idle"));
    assert_eq!(
        c.run("SESSION.GET mcpgw:used")?.field("state").to_string(),
        "active"
    );
    Ok(())
}

#[tokio::test]
async fn a_replica_tells_nothing_until_it_is_promoted() -> anyhow::Result<()> {
    let primary = Redis::start().await?;
    let replica = Redis::start_replica(&primary, Module::Loaded, &[]).await?;
    let mut there = Connection::open(&replica)?;
    wait::until_true("the link to the primary", TOLD_WITHIN, async || {
        Ok(there
            .show("INFO replication")?
            .contains("master_link_status:up"))
    })
    .await?;
    let mut told_here = listen(&primary)?;
    let mut told_there = listen(&replica)?;
    let mut c = Connection::open(&primary)?;
    c.run("SESSION.CREATE mcpgw:a s zoe TTL 1000")?;
    assert_eq!(c.show("WAIT 1 10000")?, "1");
    assert_eq!(next(&mut told_here)?, event(0, "created", "mcpgw:a"));
    assert_eq!(next(&mut told_here)?, event(0, "expired", "mcpgw:a"));
    wait::until_true(
        "the replica to count it as expired",
        TOLD_WITHIN,
        async || {
            Ok(there
                .run("SESSION.STATS")?
                .field("sessions_expired")
                .integer()
                == 1)
        },
    )
    .await?;
    there.run("REPLICAOF NO ONE")?;
    there.run("SESSION.CREATE mcpgw:b s zoe TTL 1000")?;
    assert_eq!(next(&mut told_there)?, event(0, "created", "mcpgw:b"));
    assert_eq!(next(&mut told_there)?, event(0, "expired", "mcpgw:b"));
    Ok(())
}
