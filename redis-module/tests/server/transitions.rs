//! Keyspace events of the transitions: each once, by whoever made it, and none for what changed nothing.

use mooring_tests::redis::{Module, Redis};

use super::resp::Connection;

const KEY: &str = "mcpgw:session_affinity:s1";

#[tokio::test]
async fn each_transition_is_published_once() -> anyhow::Result<()> {
    let redis = Redis::start_with(Module::Loaded, &["--notify-keyspace-events", "Ed"]).await?;
    let mut listening = Connection::open(&redis)?;
    listening.run("PSUBSCRIBE __keyevent@0__:session.*")?;
    let mut c = Connection::open(&redis)?;
    let tail = "LEASE 60000 INSTANCES 1 one";
    let bind = format!("SESSION.BIND {KEY} zoe tools w:1 t1 {tail} UPSTREAM u");
    // Everything is said twice: the second time it changes nothing.
    let mut twice = |command: &str| {
        let first = c.run(command);
        c.run(command).and(first)
    };
    let created = twice(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    let epoch = twice(&bind)?.field("epoch").integer();
    twice(&format!("SESSION.TOUCH {KEY} zoe TTL 800000"))?;
    twice(&format!("SESSION.ROUTE {KEY} zoe tools w:2"))?;
    twice(&format!(
        "SESSION.REBIND {KEY} zoe tools {epoch} w:1 t2 {tail}"
    ))?;
    twice(&format!("SESSION.END {KEY} zoe"))?;
    let generation = created.field("gen").integer();
    twice(&format!("SESSION.FORGET {KEY} {generation} w:1"))?;
    for event in ["created", "bound", "rebound", "ended", "forgotten"] {
        assert_eq!(
            listening.read()?.to_string(),
            format!("[pmessage, __keyevent@0__:session.*, __keyevent@0__:session.{event}, {KEY}]")
        );
    }
    assert_eq!(listening.show("PING")?, "[pong, ]", "and nothing more came");
    Ok(())
}
