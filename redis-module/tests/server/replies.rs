//! Every command's reply, word for word, in RESP3 and in RESP2.

use mooring_session::RequestDigest;
use mooring_tests::redis::Redis;

use super::resp::{Connection, Value};

const KEY: &str = "mcpgw:session_affinity:s1";

#[tokio::test]
async fn the_life_of_a_session_in_resp3() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;

    assert_eq!(
        c.show(&format!(
            "SESSION.CREATE {KEY} s1 zoe TTL 900000 HASH h1 LABEL init 1f LABEL log_level info"
        ))?,
        "{created: 1, gen: #, created_at: #, expires_at: #}"
    );
    assert_eq!(
        c.show(&format!("session.create {KEY} s1 zoe hash h2 ttl 900000"))?,
        "{created: 0, revived: null, hash_changed: 1, previous: [], id: s1, gen: #, principal: zoe, state: active, \
         created_at: #, last_used_at: #, expires_at: #, ttl_ms: 900000, content_hash: h1, labels: {init: 1f, \
         log_level: info}, bindings: []}"
    );
    assert_eq!(
        c.show(&format!("SESSION.ROUTE {KEY} zoe tools w:1"))?,
        "{state: unbound}"
    );
    let bound = c.run(&format!(
        "SESSION.BIND {KEY} zoe tools w:1 token1 LEASE 60000 INSTANCES 1 http://a/mcp"
    ))?;
    assert_eq!(
        bound.to_string(),
        "{won: 1, server: tools, state: claimed, instance: http://a/mcp, upstream_session: null, owner: null, \
         owner_alive: null, owner_address: null, driver: w:1, epoch: #, bound_at: #, lease_until: #, rebinds: 0, \
         last_reason: null}"
    );
    let epoch = bound.field("epoch").integer();
    assert_eq!(
        c.show(&format!(
            "SESSION.CONFIRM {KEY} zoe tools {epoch} token1 UPSTREAM up1"
        ))?,
        "{server: tools, state: bound, instance: http://a/mcp, upstream_session: up1, owner: null, \
         owner_alive: null, owner_address: null, driver: w:1, epoch: #, bound_at: #, lease_until: null, rebinds: 0, \
         last_reason: null}"
    );
    assert_eq!(
        c.show(&format!("SESSION.ROUTE {KEY} zoe tools w:1"))?,
        "{state: bound, instance: http://a/mcp, driver: w:1, epoch: #, upstream_session: up1}"
    );
    let rebound = c.run(&format!(
        "SESSION.REBIND {KEY} zoe tools {epoch} w:2 token2 LEASE 60000 INSTANCES 2 http://a/mcp http://b/mcp \
         AVOID http://a/mcp REASON refused"
    ))?;
    assert_eq!(
        rebound.to_string(),
        "{won: 1, previous: up1, server: tools, state: claimed, instance: http://b/mcp, upstream_session: null, \
         owner: null, owner_alive: null, owner_address: null, driver: w:2, epoch: #, bound_at: #, lease_until: #, \
         rebinds: 1, last_reason: refused}"
    );
    let epoch = rebound.field("epoch").integer();
    let touched = c.run(&format!(
        "SESSION.TOUCH {KEY} zoe TTL 800000 HASH h3 LABEL extra 1"
    ))?;
    assert_eq!(touched.to_string(), "{expires_at: #}");
    assert_eq!(
        c.show(&format!("SESSION.GET {KEY}"))?,
        "{id: s1, gen: #, principal: zoe, state: active, created_at: #, last_used_at: #, expires_at: #, \
         ttl_ms: 800000, content_hash: h3, labels: {extra: 1, init: 1f, log_level: info}, bindings: [{server: tools, \
         state: claimed, instance: http://b/mcp, upstream_session: null, owner: null, owner_alive: null, \
         owner_address: null, driver: w:2, epoch: #, bound_at: #, lease_until: #, rebinds: 1, \
         last_reason: refused}]}"
    );
    assert_eq!(
        c.show(&format!("SESSION.UNBIND {KEY} zoe tools {epoch} token2"))?,
        "{server: tools, state: claimed, instance: http://b/mcp, upstream_session: null, owner: null, \
         owner_alive: null, owner_address: null, driver: w:2, epoch: #, bound_at: #, lease_until: #, rebinds: 1, \
         last_reason: refused}"
    );
    for ended_now in [1, 0] {
        assert_eq!(
            c.show(&format!("SESSION.END {KEY} zoe"))?,
            format!(
                "{{ended_now: {ended_now}, id: s1, gen: #, principal: zoe, state: ended, created_at: #, \
                 last_used_at: #, expires_at: #, ttl_ms: 800000, content_hash: h3, labels: {{extra: 1, init: 1f, \
                 log_level: info}}, bindings: []}}"
            )
        );
    }
    let again = c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    assert_eq!(again.field("created").integer(), 1);
    assert!(
        c.show(&format!("SESSION.KILL {KEY}"))?
            .starts_with("{ended_now: 1, id: s1")
    );
    Ok(())
}

#[tokio::test]
async fn a_rebind_that_brings_its_upstream_session_is_bound_at_once() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    let bound = c.run(&format!(
        "SESSION.BIND {KEY} zoe tools w:1 token1 LEASE 60000 INSTANCES 1 one UPSTREAM up1"
    ))?;
    let epoch = bound.field("epoch").integer();
    let rebind = format!(
        "SESSION.REBIND {KEY} zoe tools {epoch} w:2 token2 LEASE 60000 INSTANCES 1 one UPSTREAM up2"
    );
    for _ in ["first", "again"] {
        assert_eq!(
            c.show(&rebind)?,
            "{won: 1, previous: up1, server: tools, state: bound, instance: one, upstream_session: up2, owner: null, \
             owner_alive: null, owner_address: null, driver: w:2, epoch: #, bound_at: #, lease_until: null, rebinds: 1, \
             last_reason: null}"
        );
    }
    let late = c.run(&rebind.replace("token2", "token3").replace("up2", "up3"))?;
    assert_eq!(
        (
            late.field("won").integer(),
            late.field("upstream_session").to_string()
        ),
        (0, "up2".to_owned())
    );
    Ok(())
}

#[tokio::test]
async fn an_owned_binding_shows_its_owner_and_is_orphaned_with_it() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    assert_eq!(
        c.show("WORKER.BEAT w:1 127.0.0.1:7 TTL 60000")?,
        "{alive: 1}"
    );
    c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    c.run(&format!(
        "SESSION.BIND {KEY} zoe files w:1 token1 LEASE 60000 INSTANCES 1 one UPSTREAM up1 OWNED"
    ))?;
    assert_eq!(
        c.show(&format!("SESSION.ROUTE {KEY} zoe files w:2"))?,
        "{state: bound, instance: one, driver: w:1, epoch: #, upstream_session: up1, owner: w:1, \
         owner_alive: 1, owner_address: 127.0.0.1:7}"
    );
    assert_eq!(
        c.show("WORKER.LIST")?,
        "[{worker: w:1, address: 127.0.0.1:7, alive: 1, draining: 0, last_beat_at: #, bindings: 1}]"
    );
    assert_eq!(
        c.show("WORKER.BEAT w:1 127.0.0.1:7 TTL 60000 DRAINING")?,
        "{alive: 1}"
    );
    assert_eq!(
        c.show("WORKER.LIST")?,
        "[{worker: w:1, address: 127.0.0.1:7, alive: 1, draining: 1, last_beat_at: #, bindings: 1}]"
    );
    for was_alive in [1, 0] {
        assert_eq!(
            c.show("WORKER.GONE w:1")?,
            format!("{{was_alive: {was_alive}}}")
        );
    }
    assert_eq!(
        c.show(&format!("SESSION.ROUTE {KEY} zoe files w:2"))?,
        "{state: orphaned, instance: one, driver: w:1, epoch: #, upstream_session: up1, owner: w:1, \
         owner_alive: 0, owner_address: 127.0.0.1:7}"
    );
    Ok(())
}

#[tokio::test]
async fn the_first_use_after_a_drivers_death_says_so_once() -> anyhow::Result<()> {
    let mut redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run("WORKER.BEAT w:1 127.0.0.1:7 TTL 60000")?;
    c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    c.run(&format!(
        "SESSION.BIND {KEY} zoe tools w:1 token1 LEASE 60000 INSTANCES 1 one UPSTREAM up1"
    ))?;
    c.run("WORKER.GONE w:1")?;
    for lost in [", worker_lost: w:1", ""] {
        assert_eq!(
            c.show(&format!("SESSION.ROUTE {KEY} zoe tools v:1"))?,
            format!(
                "{{state: bound, instance: one, driver: v:1, epoch: #, upstream_session: up1{lost}}}"
            )
        );
    }
    let log = redis.process().log_text();
    let line = log
        .lines()
        .find(|line| line.contains("continued by another worker"));
    let line = line.expect("a log line");
    assert!(line.contains("server=tools from=w:1 to=v:1"), "{line}");
    assert!(!log.contains(KEY), "keys are secrets");
    Ok(())
}

#[tokio::test]
async fn resp2_has_the_same_fields_flat() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut three = Connection::open_resp3(&redis)?;
    let mut two = Connection::open(&redis)?;
    two.run(&format!(
        "SESSION.CREATE {KEY} s1 zoe TTL 900000 LABEL init 1f"
    ))?;
    two.run(&format!(
        "SESSION.BIND {KEY} zoe tools w:1 token1 LEASE 60000 INSTANCES 1 one UPSTREAM up1"
    ))?;
    for command in [
        format!("SESSION.GET {KEY}"),
        format!("SESSION.ROUTE {KEY} zoe tools w:1"),
        format!("SESSION.ROUTE {KEY} zoe other w:1"),
        format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"),
        "SESSION.COUNT".to_owned(),
        "WORKER.LIST".to_owned(),
    ] {
        assert_eq!(two.run(&command)?, flat(three.run(&command)?), "{command}");
    }
    Ok(())
}

fn flat(value: Value) -> Value {
    match value {
        Value::Map(pairs) => Value::Array(
            pairs
                .into_iter()
                .flat_map(|(name, value)| [name, flat(value)])
                .collect(),
        ),
        Value::Array(values) => Value::Array(values.into_iter().map(flat).collect()),
        other => other,
    }
}

#[tokio::test]
async fn stats_and_info_say_the_same() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    c.run(&format!("SESSION.ROUTE {KEY} zoe tools w:1"))?;
    c.run(&format!("SESSION.ROUTE {KEY} eve tools w:1"))?;
    let stats = c.run("SESSION.STATS")?;
    for (name, value) in [
        ("creates", 1),
        ("reuses", 1),
        ("hits", 0),
        ("misses", 1),
        ("touches_coalesced", 2),
        ("failures_denied", 1),
        ("sessions_active", 1),
        ("index_ready", 1),
    ] {
        assert_eq!(stats.field(name).integer(), value, "{name}");
    }
    let Value::Map(pairs) = stats else {
        panic!("no map: {stats}");
    };
    let Value::Text(info) = c.run("INFO mooring")? else {
        panic!("INFO is text");
    };
    let info = String::from_utf8(info)?;
    assert!(info.starts_with("# mooring\r\n"), "{info}");
    assert_eq!(info.lines().count(), pairs.len() + 1);
    for (name, value) in pairs {
        let line = format!("mooring_{name}:{value}");
        assert!(info.lines().any(|known| known == line), "{line} in {info}");
    }
    Ok(())
}

/// What a client needs to notice a reply that is not its own.
#[tokio::test]
async fn every_map_and_every_error_names_its_request() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    for is_resp3 in [false, true] {
        let mut c = match is_resp3 {
            false => Connection::open(&redis)?,
            true => Connection::open_resp3(&redis)?,
        };
        let mut named = |command: &str| -> anyhow::Result<Option<String>> {
            let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
            c.say(&words)?;
            Ok(c.read_whole()?.take_request())
        };
        for command in [
            "SESSION.CREATE mcpgw:a s zoe TTL 60000",
            "SESSION.CREATE mcpgw:a s zoe TTL 60000 CAP 5",
            "session.touch mcpgw:a zoe",
            "SESSION.ROUTE mcpgw:a zoe tools w:1",
            "SESSION.ROUTE mcpgw:a zoe tools w:1 TURN t LEASE 2000",
            "SESSION.ENTER mcpgw:a zoe tools w:1 t LEASE 2000",
            "SESSION.ENTER mcpgw:a zoe tools w:1 t LEASE 1",
            "SESSION.LEAVE mcpgw:a zoe tools t",
            "SESSION.LEAVE mcpgw:a zoe tools t2",
            "SESSION.BIND mcpgw:a zoe tools w:1 t LEASE 60000 INSTANCES 1 i UPSTREAM u",
            "SESSION.ROUTE mcpgw:a zoe tools w:1",
            "SESSION.ROUTE mcpgw:a eve tools w:1",
            "SESSION.CONFIRM mcpgw:a zoe tools 1 t",
            "SESSION.UNBIND mcpgw:a zoe tools 1",
            "SESSION.GET mcpgw:a",
            "SESSION.GET mcpgw:b",
            "SESSION.LIST COUNT 1",
            "SESSION.COUNT",
            "SESSION.REAP w:1 COUNT 1",
            "SESSION.CLAIM mcpgw:a w:1 LEASE 1000",
            "SESSION.FORGET mcpgw:a 1 w:1",
            "SESSION.END mcpgw:a zoe",
            "SESSION.KILL mcpgw:a",
            "SESSION.RATE mcpgw:r LIMIT 1 WINDOW 1000",
            "SESSION.REINDEX",
            "SESSION.STATS",
            "WORKER.BEAT w:1 127.0.0.1:1 TTL 1000",
            "WORKER.BEAT w:1 127.0.0.1:1 TTL 0",
            "WORKER.GONE w:1",
            "WORKER.WAIT w:1 TIMEOUT 0",
            "SESSION.EXPLAIN mcpgw:b",
        ] {
            let words = command.split(' ').map(str::as_bytes);
            let expected = RequestDigest::of(words).to_string();
            assert_eq!(named(command)?, Some(expected), "{command}");
        }
        for command in ["WORKER.LIST", "SESSION.HELP", "PING", "GET mcpgw:a"] {
            assert_eq!(named(command)?, None, "{command}");
        }
    }
    Ok(())
}
