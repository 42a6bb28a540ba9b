//! Memory is at its end: what would make it worse is refused and changes nothing, what sessions live by goes on.

use mooring_tests::redis::Redis;

use super::keyspace::Keyspace;
use super::resp::{Connection, Value};
use super::traffic::grammar::Grammar;
use super::traffic::{Mix, Traffic};

const KEY: &str = "mcpgw:session_affinity:s1";

/// Refused at the end of memory, whatever they would do: the server sees to it. CREATE and TOUCH are refused where a record
/// would grow.
const REFUSED: [&str; 3] = ["session.bind", "session.rate", "session.rebind"];

#[tokio::test]
async fn what_grows_is_refused_and_what_sessions_live_by_goes_on() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    let created = c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    let generation = created.field("gen").integer();
    let tail = "LEASE 60000 INSTANCES 1 one";
    let claim = c.run(&format!("SESSION.BIND {KEY} zoe tools w:1 t1 {tail}"))?;
    let epoch = claim.field("epoch").integer();
    c.run("CONFIG SET maxmemory 1")?;
    let before = Keyspace::of(&redis)?;
    for grows in [
        "SESSION.CREATE mcpgw:new s2 zoe TTL 900000".to_owned(),
        format!("SESSION.TOUCH {KEY} zoe LABEL init d1"),
        format!("SESSION.TOUCH {KEY} zoe HASH 0123456789abcdef"),
        format!("SESSION.BIND {KEY} zoe more w:1 t1 {tail}"),
        format!("SESSION.REBIND {KEY} zoe tools {epoch} w:1 t1 {tail}"),
        "SESSION.RATE mcpgw:rate:1 LIMIT 1 WINDOW 1000".to_owned(),
    ] {
        let shown = c.show(&grows)?;
        assert!(shown.starts_with("OOM"), "{grows}: {shown}");
    }
    before.assert_same(&Keyspace::of(&redis)?, "refused");
    for (works, field) in [
        (
            format!("SESSION.CONFIRM {KEY} zoe tools {epoch} t1 UPSTREAM u"),
            "epoch",
        ),
        (format!("SESSION.ROUTE {KEY} zoe tools w:1"), "epoch"),
        (format!("SESSION.CREATE {KEY} s1 zoe TTL 800000"), "gen"),
        (format!("SESSION.TOUCH {KEY} zoe TTL 800000"), "expires_at"),
        (format!("SESSION.GET {KEY}"), "gen"),
        ("WORKER.BEAT w:1 a TTL 1000".to_owned(), "alive"),
        (
            format!("SESSION.ENTER {KEY} zoe tools w:1 ticket LEASE 1000"),
            "epoch",
        ),
        (format!("SESSION.LEAVE {KEY} zoe tools ticket"), "left"),
        (format!("SESSION.UNBIND {KEY} zoe tools {epoch}"), "epoch"),
        (format!("SESSION.END {KEY} zoe"), "ended_now"),
        (
            format!("SESSION.FORGET {KEY} {generation} w:1"),
            "forgotten",
        ),
    ] {
        assert!(c.run(&works)?.field(field).integer() > 0, "{works}");
    }
    assert_eq!(c.show("DBSIZE")?, "0");
    for reads in [
        "SESSION.LIST",
        "SESSION.COUNT",
        "SESSION.REAP w:1 COUNT 1",
        "SESSION.STATS",
    ] {
        assert!(!matches!(c.run(reads)?, Value::Error(_)), "{reads}");
    }
    // In a transaction the refusal comes when it is queued.
    c.run("MULTI")?;
    assert!(
        c.show("SESSION.CREATE mcpgw:new s2 zoe TTL 900000")?
            .starts_with("OOM")
    );
    assert!(c.show("EXEC")?.starts_with("EXECABORT"));
    assert_eq!(c.show("EXISTS mcpgw:new")?, "0");
    Ok(())
}

#[tokio::test]
async fn exactly_what_can_grow_is_refused() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    let mut refused = Vec::new();
    for grammar in Grammar::of_module(&mut c)? {
        let info = c.show(&format!("COMMAND INFO {}", grammar.name))?;
        if info.contains("denyoom") {
            refused.push(grammar.name);
        }
    }
    refused.sort();
    assert_eq!(refused, REFUSED);
    Ok(())
}

#[tokio::test]
async fn random_traffic_at_the_end_of_memory_grows_nothing() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    let mut traffic = Traffic::new(
        &mut c,
        11,
        Mix {
            bad: 10,
            foreign: 0,
        },
    )?;
    traffic.run(&mut [&mut c], 1_000)?;
    let keys = c.run("DBSIZE")?.integer();
    c.run("CONFIG SET maxmemory 1")?;
    for _ in 0..1_000 {
        let said = traffic.draw();
        let reply = traffic.say(&mut c, &said)?;
        let name = String::from_utf8_lossy(&said.words[0]).to_lowercase();
        if REFUSED.contains(&name.as_str()) {
            assert!(matches!(reply, Value::Error(_)), "{name}: {reply}");
        }
    }
    assert!(c.run("DBSIZE")?.integer() <= keys);
    c.run("CONFIG SET maxmemory 0")?;
    traffic.run(&mut [&mut c], 500)?;
    Ok(())
}
