//! What replicas hold: the same as their primary after any traffic, with the module or without it, and enough to take
//! over from it.

use std::collections::BTreeMap;
use std::time::Duration;

use mooring_tests::redis::{Module, Redis};
use mooring_tests::wait;

use super::keyspace::{Keyspace, hold_still};
use super::resp::{Connection, Value};
use super::traffic::grammar::entry;
use super::traffic::{Mix, Traffic};

const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(20);

const MIX: Mix = Mix {
    bad: 10,
    foreign: 8,
};

/// Waits until the replica is in step with a primary; what was written before arrives by `WAIT` on the primary.
async fn linked(replica: &Redis) -> anyhow::Result<()> {
    let mut c = Connection::open(replica)?;
    wait::until_true("the link to the primary", CAUGHT_UP_WITHIN, async || {
        Ok(c.show("INFO replication")?
            .contains("master_link_status:up"))
    })
    .await
}

/// Waits until the replicas have all that was written so far, by whomever.
fn fence(primary: &Redis, replicas: i64) -> anyhow::Result<()> {
    hold_still(primary)?;
    let mut c = Connection::open(primary)?;
    // WAIT waits for the writes of its own connection.
    c.run("INCR fence")?;
    let reached = c.run(&format!("WAIT {replicas} 10000"))?.integer();
    anyhow::ensure!(
        reached == replicas,
        "{reached} replicas of {replicas} follow"
    );
    Ok(())
}

/// Drives random traffic over several connections of the primary.
fn drive(traffic: &mut Traffic, primary: &Redis, count: usize) -> anyhow::Result<()> {
    let mut connections = [
        Connection::open(primary)?,
        Connection::open_resp3(primary)?,
        Connection::open(primary)?,
    ];
    let mut connections: Vec<&mut Connection> = connections.iter_mut().collect();
    traffic.run(&mut connections, count)
}

#[tokio::test]
async fn replicas_with_and_without_the_module_hold_the_same() -> anyhow::Result<()> {
    let primary = Redis::start().await?;
    let with = Redis::start_replica(&primary, Module::Loaded, &[]).await?;
    let without = Redis::start_replica(&primary, Module::Absent, &[]).await?;
    linked(&with).await?;
    linked(&without).await?;
    let mut c = Connection::open(&primary)?;
    let mut traffic = Traffic::new(&mut c, 42, MIX)?;
    // Every touch is written: a slid TTL is the most frequent write of all.
    c.run("CONFIG SET mooring.touch-step 1000")?;
    for round in 0..3 {
        drive(&mut traffic, &primary, 1_500)?;
        traffic.cover(&mut [&mut c])?;
        fence(&primary, 2)?;
        let here = Keyspace::of(&primary)?;
        assert!(here.len() > 5, "the traffic left something behind");
        here.assert_same(&Keyspace::of(&with)?, &format!("with the module, {round}"));
        here.assert_same(&Keyspace::of(&without)?, &format!("without it, {round}"));
    }
    Ok(())
}

#[tokio::test]
async fn a_replica_tells_and_changes_nothing() -> anyhow::Result<()> {
    let primary = Redis::start().await?;
    let replica = Redis::start_replica(&primary, Module::Loaded, &[]).await?;
    linked(&replica).await?;
    let mut c = Connection::open(&primary)?;
    let key = "mcpgw:session_affinity:a";
    c.run(&format!("SESSION.CREATE {key} s zoe TTL 900000"))?;
    assert_eq!(c.show("WAIT 1 10000")?, "1");
    let mut there = Connection::open(&replica)?;
    assert_eq!(
        there.show(&format!("SESSION.GET {key}"))?,
        c.show(&format!("SESSION.GET {key}"))?
    );
    for write in [
        format!("SESSION.TOUCH {key} zoe"),
        format!("SESSION.ROUTE {key} zoe tools w:1"),
        format!("SESSION.END {key} zoe"),
        "SESSION.CREATE mcpgw:b b zoe TTL 900000".to_owned(),
        // Whoever sends nothing else must notice too.
        "WORKER.BEAT w:1 127.0.0.1:1 TTL 60000".to_owned(),
        "WORKER.GONE w:1".to_owned(),
        "WORKER.WAIT w:1 TIMEOUT 10".to_owned(),
    ] {
        let shown = there.show(&write)?;
        assert!(shown.starts_with("READONLY"), "{write}: {shown}");
    }
    Ok(())
}

/// What a failover must keep of every session: its incarnation, its owner, and every binding.
fn sessions(redis: &Redis) -> anyhow::Result<BTreeMap<String, Session>> {
    let mut c = Connection::open_resp3(redis)?;
    let mut sessions = BTreeMap::new();
    for n in 0..10 {
        let key = super::traffic::words::key_of(n);
        let record = c.run(&format!("SESSION.GET {key}"))?;
        if let Value::Error(_) = record {
            continue;
        }
        let mut epochs = BTreeMap::new();
        let Value::Array(bindings) = record.field("bindings") else {
            anyhow::bail!("bindings are an array: {record}");
        };
        for binding in bindings {
            let server = binding.field("server").to_string();
            let place = ["instance", "upstream_session", "owner", "driver", "rebinds"]
                .map(|field| binding.field(field).to_string());
            epochs.insert(server, (binding.field("epoch").integer(), place));
        }
        let session = Session {
            id: record.field("id").to_string(),
            principal: record.field("principal").to_string(),
            state: record.field("state").to_string(),
            generation: record.field("gen").integer(),
            labels: record.field("labels").to_string(),
            epochs,
        };
        sessions.insert(key, session);
    }
    Ok(sessions)
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Session {
    id: String,
    principal: String,
    state: String,
    generation: i64,
    labels: String,
    epochs: BTreeMap<String, (i64, [String; 5])>,
}

#[tokio::test]
async fn a_failover_keeps_every_session_and_its_numbers_go_on() -> anyhow::Result<()> {
    let mut primary = Redis::start().await?;
    let heir = Redis::start_replica(&primary, Module::Loaded, &[]).await?;
    let other = Redis::start_replica(&primary, Module::Absent, &[]).await?;
    linked(&heir).await?;
    linked(&other).await?;
    let mut c = Connection::open(&primary)?;
    let mix = Mix { bad: 5, foreign: 0 };
    let mut traffic = Traffic::new(&mut c, 7, mix)?;
    drive(&mut traffic, &primary, 2_000)?;
    fence(&primary, 2)?;
    let before = sessions(&primary)?;
    assert!(before.values().any(|session| !session.epochs.is_empty()));

    primary.process().kill_now()?;
    let mut c = Connection::open(&heir)?;
    assert_eq!(c.show("REPLICAOF NO ONE")?, "OK");
    let mut there = Connection::open(&other)?;
    let follow = format!("REPLICAOF 127.0.0.1 {}", heir.port());
    assert_eq!(there.show(&follow)?, "OK");
    assert_eq!(sessions(&heir)?, before);

    let tail = "LEASE 60000 INSTANCES 1 one";
    for (key, session) in &before {
        let (id, principal) = (&session.id, &session.principal);
        let create = format!("SESSION.CREATE {key} {id} {principal} TTL 900000");
        let created = c.run(&create)?;
        let generation = created.field("gen").integer();
        match session.state.as_str() {
            "active" => assert_eq!(generation, session.generation, "{key}"),
            _ => assert!(generation > session.generation, "{key}"),
        }
        let highest = session.epochs.values().map(|(epoch, _)| *epoch).max();
        for (server, (epoch, _)) in &session.epochs {
            let word = match session.state.as_str() {
                "active" => format!("REBIND {key} {principal} {server} {epoch} w9:1 fresh {tail}"),
                _ => format!("BIND {key} {principal} {server} w9:1 fresh {tail}"),
            };
            let moved = c.run(&format!("SESSION.{word}"))?;
            // A live owner, or a claim whose lease still runs, is not moved; whatever is, goes on from the highest.
            if let Some(Value::Integer(1)) = entry(&moved, "won") {
                assert!(
                    moved.field("epoch").integer() > highest.unwrap_or(0),
                    "{key} {moved}"
                );
            }
        }
    }
    linked(&other).await?;
    fence(&heir, 1)?;
    Keyspace::of(&heir)?.assert_same(&Keyspace::of(&other)?, "the replica that follows the heir");
    // And its own traffic replicates as the first primary's did.
    drive(&mut traffic, &heir, 500)?;
    fence(&heir, 1)?;
    Keyspace::of(&heir)?.assert_same(&Keyspace::of(&other)?, "after more traffic");
    Ok(())
}
