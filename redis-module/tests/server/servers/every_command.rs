//! Every command of the module once, in an order in which each has something to do, and the events they publish.

use std::collections::BTreeSet;

use anyhow::ensure;
use mooring_tests::redis::Redis;
use mooring_tests::wait;

use super::super::resp::{Connection, Value};
use super::{CAUGHT_UP_WITHIN, commands};

/// Sends commands of the module, and remembers which.
struct Script<'a> {
    connection: &'a mut Connection,
    sent: BTreeSet<String>,
}

impl Script<'_> {
    fn run(&mut self, command: &str) -> anyhow::Result<Value> {
        let word = command.split(' ').next().unwrap_or_default();
        self.sent.insert(word.to_lowercase());
        let reply = self.connection.run(command)?;
        ensure!(!matches!(reply, Value::Error(_)), "{command}: {reply}");
        Ok(reply)
    }
}

const KEY: &str = "mcpgw:session_affinity:one";
const SHORT: &str = "mcpgw:session_affinity:short";

/// The keyspace events of the module.
const EVENTS: [&str; 8] = [
    "created",
    "claimed",
    "bound",
    "rebound",
    "unbound",
    "expired",
    "ended",
    "forgotten",
];

pub(super) async fn run(redis: &Redis, c: &mut Connection) -> anyhow::Result<()> {
    let mut listening = Connection::open(redis)?;
    listening.run("PSUBSCRIBE __keyevent@0__:session.*")?;
    let known = commands(c)?;
    // Turns are granted to newcomers once what was held before a start has had its time.
    c.run("CONFIG SET mooring.turn-lease-max-ms 100")?;
    let mut script = Script {
        connection: c,
        sent: BTreeSet::new(),
    };
    let created = script.run(&format!(
        "SESSION.CREATE {KEY} one zoe TTL 900000 LABEL init a CAP 5"
    ))?;
    assert_eq!(created.field("created").integer(), 1);
    binds(&mut script)?;
    takes_turns(&mut script)?;
    is_cleaned(&mut script).await?;
    for command in [
        "SESSION.RATE mcpgw:rate LIMIT 5 WINDOW 1000",
        "SESSION.STATS",
        "SESSION.COUNT PREFIX mcpgw:",
        "SESSION.HELP",
        "SESSION.REINDEX",
        "WORKER.LIST",
        "WORKER.GONE w1:b",
    ] {
        script.run(command)?;
    }
    assert_eq!(script.sent, known, "the commands sent and those there are");
    let mut heard: BTreeSet<&str> = BTreeSet::new();
    while heard.len() < EVENTS.len() {
        let shown = listening.read()?.to_string();
        let of = |event: &str, key: &str| shown.ends_with(&format!(":session.{event}, {key}]"));
        let is_heard = |event: &&&str| of(event, KEY) || of(event, SHORT);
        heard.extend(EVENTS.iter().find(is_heard));
    }
    Ok(())
}

fn binds(script: &mut Script<'_>) -> anyhow::Result<()> {
    for worker in ["w1:b", "w2:b"] {
        script.run(&format!("WORKER.BEAT {worker} 127.0.0.1:1 TTL 60000"))?;
    }
    script.run(&format!("SESSION.TOUCH {KEY} zoe HASH h"))?;
    let claim = script.run(&format!(
        "SESSION.BIND {KEY} zoe tools w1:b t1 LEASE 60000 INSTANCES 2 a b"
    ))?;
    let epoch = claim.field("epoch").integer();
    script.run(&format!(
        "SESSION.CONFIRM {KEY} zoe tools {epoch} t1 UPSTREAM u"
    ))?;
    let moved = script.run(&format!(
        "SESSION.REBIND {KEY} zoe tools {epoch} w1:b t2 LEASE 60000 INSTANCES 2 a b REASON lost"
    ))?;
    assert_eq!(moved.field("previous").to_string(), "u");
    let epoch = moved.field("epoch").integer();
    script.run(&format!(
        "SESSION.CONFIRM {KEY} zoe tools {epoch} t2 UPSTREAM v"
    ))?;
    let route = script.run(&format!("SESSION.ROUTE {KEY} zoe tools w2:b"))?;
    assert_eq!(route.field("upstream_session").to_string(), "v");
    script.run(&format!("SESSION.UNBIND {KEY} zoe tools {epoch}"))?;
    let lines = script.run(&format!("SESSION.EXPLAIN {KEY}"))?;
    assert!(lines.to_string().contains(" of zoe is active"), "{lines}");
    let record = script.run(&format!("SESSION.GET {KEY}"))?;
    assert_eq!(record.field("content_hash").to_string(), "h");
    assert_eq!(record.field("bindings").to_string(), "[]");
    Ok(())
}

fn takes_turns(script: &mut Script<'_>) -> anyhow::Result<()> {
    let enter = |worker, ticket| {
        format!("SESSION.ENTER {KEY} zoe tools {worker} {ticket} LEASE 100 HELD 1")
    };
    script.run(&enter("w1:b", "first"))?;
    let waiting = script.run(&format!(
        "SESSION.ENTER {KEY} zoe tools w2:b second LEASE 100"
    ))?;
    assert_eq!(waiting.field("turn").to_string(), "null");
    // The first holder's lease lapses while the other waits: the call blocks and is answered by a timer.
    let news = script.run("WORKER.WAIT w2:b TIMEOUT 5000")?.to_string();
    assert!(news.starts_with("[{event: turn, "), "{news}");
    script.run(&format!("SESSION.LEAVE {KEY} zoe tools second"))?;
    Ok(())
}

/// Two ends: one on purpose, by somebody who cleans up at once, and one by time, which a reaper finds.
async fn is_cleaned(script: &mut Script<'_>) -> anyhow::Result<()> {
    let listed = script.run("SESSION.LIST PRINCIPAL zoe COUNT 10")?;
    assert_eq!(listed.field("complete").integer(), 1);
    assert!(listed.to_string().contains(KEY), "{listed}");
    script.run(&format!("SESSION.END {KEY} zoe"))?;
    let ended = script.run(&format!("SESSION.KILL {KEY}"))?;
    assert_eq!(ended.field("ended_now").integer(), 0);
    forget(script, KEY, &ended)?;

    script.run(&format!("SESSION.CREATE {SHORT} short zoe TTL 1000"))?;
    script.run(&format!(
        "SESSION.BIND {SHORT} zoe tools w1:b t LEASE 1000 INSTANCES 1 a UPSTREAM u"
    ))?;
    wait::until_true("what expired", CAUGHT_UP_WITHIN, async || {
        let page = script.run("SESSION.REAP w1:b COUNT 10")?;
        Ok(page.field("keys").to_string() == format!("[{SHORT}]"))
    })
    .await?;
    let claimed = script.run(&format!("SESSION.CLAIM {SHORT} w1:b LEASE 60000"))?;
    forget(script, SHORT, &claimed)
}

fn forget(script: &mut Script<'_>, key: &str, record: &Value) -> anyhow::Result<()> {
    let generation = record.field("gen").integer();
    let gone = script.run(&format!("SESSION.FORGET {key} {generation} w1:b"))?;
    assert_eq!(gone.field("forgotten").integer(), 1);
    Ok(())
}
