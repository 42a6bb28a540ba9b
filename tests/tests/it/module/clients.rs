//! The commands among other clients' ways: transactions, scripts, watches, client-side caches, keyspace events.

use mooring_tests::redis::Redis;

use super::resp::{Connection, Value};

const KEY: &str = "mcpgw:session_affinity:s1";

#[tokio::test]
async fn they_work_in_transactions_and_scripts() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    c.run("MULTI")?;
    assert_eq!(
        c.show(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?,
        "QUEUED"
    );
    assert_eq!(c.show(&format!("SESSION.TOUCH {KEY} eve"))?, "QUEUED");
    let Value::Array(replies) = c.run("EXEC")? else {
        panic!("EXEC answers with an array");
    };
    assert_eq!(replies[0].field("created").integer(), 1);
    assert!(replies[1].to_string().starts_with("DENIED"));
    let script = format!(
        "local r = redis.call('SESSION.ROUTE', '{KEY}', 'zoe', 'tools', 'w:1') return r[1] .. '=' .. r[2]"
    );
    let shown = c.send(&[b"EVAL", script.as_bytes(), b"1", KEY.as_bytes()])?;
    assert_eq!(shown.to_string(), "state=unbound");
    let script = format!("return redis.pcall('SESSION.TOUCH', '{KEY}', 'eve')['err']");
    let shown = c.send(&[b"EVAL", script.as_bytes(), b"1", KEY.as_bytes()])?;
    assert!(shown.to_string().starts_with("DENIED"), "{shown}");
    Ok(())
}

#[tokio::test]
async fn a_use_breaks_no_watch_and_a_change_does() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut watching = Connection::open(&redis)?;
    let mut using = Connection::open(&redis)?;
    // A step of one thousandth of a second: every touch is written.
    using.run("CONFIG SET mooring.touch-step 1000")?;
    using.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 1000"))?;
    let used_at = |c: &mut Connection| -> anyhow::Result<i64> {
        Ok(c.run(&format!("SESSION.GET {KEY}"))?
            .field("last_used_at")
            .integer())
    };
    watching.run(&format!("WATCH {KEY}"))?;
    let before = used_at(&mut using)?;
    while used_at(&mut using)? == before {
        using.run(&format!("SESSION.TOUCH {KEY} zoe"))?;
    }
    watching.run("MULTI")?;
    watching.run("PING")?;
    assert_eq!(
        watching.show("EXEC")?,
        "[PONG]",
        "a touch is no change of data"
    );

    watching.run(&format!("WATCH {KEY}"))?;
    using.run(&format!("SESSION.TOUCH {KEY} zoe HASH h2"))?;
    watching.run("MULTI")?;
    watching.run("PING")?;
    assert_eq!(watching.show("EXEC")?, "null", "a new hash is");
    Ok(())
}

#[tokio::test]
async fn client_side_caches_hear_of_changes_only() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut caching = Connection::open_resp3(&redis)?;
    let mut using = Connection::open(&redis)?;
    using.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    caching.run("CLIENT TRACKING ON")?;
    caching.run(&format!("SESSION.GET {KEY}"))?;
    using.run(&format!("SESSION.TOUCH {KEY} zoe TTL 800000"))?;
    using.run(&format!("SESSION.ROUTE {KEY} zoe tools w:1"))?;
    assert_eq!(caching.show("PING")?, "PONG", "no invalidation came before");
    using.run(&format!("SESSION.TOUCH {KEY} zoe HASH h2"))?;
    assert_eq!(
        caching.read()?.to_string(),
        format!("[invalidate, [{KEY}]]")
    );
    Ok(())
}

#[tokio::test]
async fn transitions_are_published() -> anyhow::Result<()> {
    let redis = Redis::start_with(
        mooring_tests::redis::Module::Loaded,
        &["--notify-keyspace-events", "Ed"],
    )
    .await?;
    let mut listening = Connection::open(&redis)?;
    listening.run("PSUBSCRIBE __keyevent@0__:session.*")?;
    let mut c = Connection::open(&redis)?;
    c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    let bind =
        format!("SESSION.BIND {KEY} zoe tools w:1 t1 LEASE 60000 INSTANCES 1 one UPSTREAM u");
    let epoch = c.run(&bind)?.field("epoch").integer();
    c.run(&bind)?;
    let rebind =
        format!("SESSION.REBIND {KEY} zoe tools {epoch} w:1 t2 LEASE 60000 INSTANCES 1 one");
    c.run(&rebind)?;
    c.run(&rebind)?;
    c.run(&format!("SESSION.END {KEY} zoe"))?;
    c.run(&format!("SESSION.END {KEY} zoe"))?;
    for event in ["created", "bound", "rebound", "ended"] {
        assert_eq!(
            listening.read()?.to_string(),
            format!("[pmessage, __keyevent@0__:session.*, __keyevent@0__:session.{event}, {KEY}]")
        );
    }
    Ok(())
}

#[tokio::test]
async fn short_memory_refuses_growth_and_keeps_sessions_usable() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    let claim = c.run(&format!(
        "SESSION.BIND {KEY} zoe tools w:1 t1 LEASE 60000 INSTANCES 1 one"
    ))?;
    let epoch = claim.field("epoch").integer();
    c.run("CONFIG SET maxmemory 1")?;
    for grows in [
        "SESSION.CREATE mcpgw:new s2 zoe TTL 900000".to_owned(),
        format!("SESSION.BIND {KEY} zoe more w:1 t1 LEASE 60000 INSTANCES 1 one"),
    ] {
        let shown = c.show(&grows)?;
        assert!(shown.starts_with("OOM"), "{grows}: {shown}");
    }
    for (works, field) in [
        (
            format!("SESSION.CONFIRM {KEY} zoe tools {epoch} t1 UPSTREAM u"),
            "epoch",
        ),
        (format!("SESSION.ROUTE {KEY} zoe tools w:1"), "epoch"),
        (format!("SESSION.TOUCH {KEY} zoe TTL 800000"), "expires_at"),
        (format!("SESSION.GET {KEY}"), "gen"),
        (format!("SESSION.END {KEY} zoe"), "ended_now"),
    ] {
        assert!(c.run(&works)?.field(field).integer() > 0, "{works}");
    }
    Ok(())
}
