//! Where BIND and REBIND place a binding: where the fewest live ones are, and not where sessions were just moved away.

use std::collections::BTreeMap;

use mooring_tests::redis::Redis;

use super::resp::{Connection, Value};

fn create(c: &mut Connection, key: &str) -> anyhow::Result<()> {
    let created = c.run(&format!("SESSION.CREATE mcpgw:{key} id zoe TTL 900000"))?;
    assert_eq!(created.field("created").integer(), 1, "{key}");
    Ok(())
}

/// Binds a new session to a server among instances, and answers with the one that it got.
fn bind(c: &mut Connection, key: &str, to: &str, instances: &str) -> anyhow::Result<Value> {
    let count = instances.split(' ').count();
    let words = format!("SESSION.BIND mcpgw:{key} zoe {to} w:1 t LEASE 60000");
    c.run(&format!("{words} INSTANCES {count} {instances} UPSTREAM u"))
}

fn placed(c: &mut Connection, key: &str, instances: &str) -> anyhow::Result<String> {
    create(c, key)?;
    let bound = bind(c, key, "tools", instances)?;
    assert_eq!(bound.field("won").integer(), 1, "{key}");
    Ok(bound.field("instance").to_string())
}

#[tokio::test]
async fn bindings_spread_evenly() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let mut placed_at = BTreeMap::new();
    for n in 0..12 {
        let instance = placed(&mut c, &format!("s{n}"), "one two three")?;
        *placed_at.entry(instance).or_insert(0) += 1;
    }
    assert_eq!(placed_at.into_values().collect::<Vec<_>>(), [4, 4, 4]);
    Ok(())
}

#[tokio::test]
async fn the_fewest_live_bindings_of_that_server_win() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    for n in 0..3 {
        placed(&mut c, &format!("one{n}"), "one")?;
    }
    for n in 0..3 {
        assert_eq!(placed(&mut c, &format!("s{n}"), "one two")?, "two", "{n}");
    }
    // What is over does not count, nor what is unbound, nor what another server has there.
    c.run("SESSION.END mcpgw:s0 zoe")?;
    assert_eq!(placed(&mut c, "s3", "one two")?, "two");
    let epoch = c
        .run("SESSION.ROUTE mcpgw:s1 zoe tools w:1")?
        .field("epoch")
        .integer();
    c.run(&format!("SESSION.UNBIND mcpgw:s1 zoe tools {epoch}"))?;
    assert_eq!(placed(&mut c, "s4", "one two")?, "two");
    for n in 0..3 {
        bind(&mut c, &format!("one{n}"), "files", "two")?;
    }
    c.run("DEL mcpgw:s2")?;
    assert_eq!(placed(&mut c, "s5", "one two")?, "two");
    Ok(())
}

#[tokio::test]
async fn an_instance_that_was_just_left_is_taken_last() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    assert_eq!(placed(&mut c, "s1", "one")?, "one");
    let epoch = c
        .run("SESSION.ROUTE mcpgw:s1 zoe tools w:1")?
        .field("epoch")
        .integer();
    let rebind = format!("SESSION.REBIND mcpgw:s1 zoe tools {epoch} w:1 t2 LEASE 60000");
    let rebound = c.run(&format!("{rebind} INSTANCES 2 one two AVOID one"))?;
    assert_eq!(rebound.field("won").integer(), 1);
    assert_eq!(rebound.field("instance").to_string(), "two");
    // `one` is empty, and yet it is not where anybody goes who may go elsewhere.
    for n in 0..4 {
        assert_eq!(placed(&mut c, &format!("t{n}"), "one two")?, "two", "{n}");
    }
    assert_eq!(placed(&mut c, "u", "one")?, "one");
    // Another server's instance of the same name is another.
    create(&mut c, "v")?;
    bind(&mut c, "v", "files", "two")?;
    create(&mut c, "w")?;
    let bound = bind(&mut c, "w", "files", "one two")?;
    assert_eq!(bound.field("instance").to_string(), "one");
    Ok(())
}

#[tokio::test]
async fn a_rebind_that_may_stay_leaves_nothing() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    assert_eq!(placed(&mut c, "s1", "one")?, "one");
    assert_eq!(placed(&mut c, "s2", "two")?, "two");
    assert_eq!(placed(&mut c, "s3", "two")?, "two");
    let epoch = c
        .run("SESSION.ROUTE mcpgw:s1 zoe tools w:1")?
        .field("epoch")
        .integer();
    let rebind = format!("SESSION.REBIND mcpgw:s1 zoe tools {epoch} w:1 t2 LEASE 60000");
    let rebound = c.run(&format!("{rebind} INSTANCES 2 one two"))?;
    assert_eq!(rebound.field("instance").to_string(), "one");
    assert_eq!(placed(&mut c, "s4", "one two")?, "one");
    Ok(())
}

#[tokio::test]
async fn ties_are_settled_by_the_key_alone() -> anyhow::Result<()> {
    let mut first = Vec::new();
    let instances = "one two three four";
    for _ in 0..2 {
        let redis = Redis::start().await?;
        let mut c = Connection::open_resp3(&redis)?;
        let mut placed_at = Vec::new();
        for n in 0..8 {
            let key = format!("s{n}");
            placed_at.push(placed(&mut c, &key, instances)?);
            // So that the next one finds them all empty, too.
            c.run(&format!("DEL mcpgw:{key}"))?;
        }
        if first.is_empty() {
            first = placed_at;
        } else {
            assert_eq!(placed_at, first, "another server of the same fleet");
        }
    }
    first.sort();
    first.dedup();
    assert!(first.len() > 1, "keys do not spread: {first:?}");
    Ok(())
}
