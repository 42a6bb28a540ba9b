//! Keyspace events of the transitions: each once, by whoever made it, and none for what changed nothing.

use mooring_tests::redis::{Module, Redis};

use super::resp::{Connection, Value};

const KEY: &str = "mcpgw:session_affinity:s1";
const TAIL: &str = "LEASE 60000 INSTANCES 1 one";

/// A client that changes the session, and one that hears of it.
struct Listener {
    client: Connection,
    listening: Connection,
}

impl Listener {
    async fn start(redis: &Redis) -> anyhow::Result<Self> {
        let mut listening = Connection::open(redis)?;
        listening.run("PSUBSCRIBE __keyevent@0__:session.*")?;
        Ok(Self {
            client: Connection::open(redis)?,
            listening,
        })
    }

    /// Runs the command, and the same again, which changes nothing: only the first publishes, exactly `events`.
    fn twice(&mut self, command: &str, events: &[&str]) -> anyhow::Result<Value> {
        let reply = self.once(command, events)?;
        self.once(command, &[])?;
        Ok(reply)
    }

    fn once(&mut self, command: &str, events: &[&str]) -> anyhow::Result<Value> {
        let reply = self.client.run(command)?;
        self.listening.say(&[b"PING"])?;
        let mut heard = Vec::new();
        loop {
            let message = self.listening.read()?.to_string();
            if message == "[pong, ]" {
                break;
            }
            heard.push(message);
        }
        let expected: Vec<String> = events
            .iter()
            .map(|event| {
                format!(
                    "[pmessage, __keyevent@0__:session.*, __keyevent@0__:session.{event}, {KEY}]"
                )
            })
            .collect();
        assert_eq!(heard, expected, "{command}: {reply}");
        Ok(reply)
    }
}

fn epoch(reply: &Value) -> i64 {
    reply.field("epoch").integer()
}

#[tokio::test]
async fn every_transition_publishes_exactly_its_event() -> anyhow::Result<()> {
    let redis = Redis::start_with(Module::Loaded, &["--notify-keyspace-events", "Ed"]).await?;
    let mut l = Listener::start(&redis).await?;
    let command = |verb: &str, rest: &str| format!("SESSION.{verb} {KEY} zoe {rest}");
    let created = l.twice(
        &format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"),
        &["created"],
    )?;

    // A claim, its confirmation, a use, a move, its confirmation.
    let bind = command("BIND", &format!("tools w:1 t1 {TAIL}"));
    let at = epoch(&l.twice(&bind, &["claimed"])?);
    let confirm = command("CONFIRM", &format!("tools {at} t1 UPSTREAM u"));
    l.twice(&confirm, &["bound"])?;
    l.twice(&command("TOUCH", "TTL 800000"), &[])?;
    l.twice(&command("ROUTE", "tools w:2"), &[])?;
    let rebind = command("REBIND", &format!("tools {at} w:1 t2 {TAIL}"));
    let at = epoch(&l.twice(&rebind, &["rebound"])?);
    l.twice(&command("CONFIRM", &format!("tools {at} t2")), &["bound"])?;

    // What is bound at once, and retries that confirm a claim.
    let rebind = command("REBIND", &format!("tools {at} w:1 t3 {TAIL} UPSTREAM v"));
    let at = epoch(&l.twice(&rebind, &["rebound", "bound"])?);
    let rebind = command("REBIND", &format!("tools {at} w:1 t4 {TAIL}"));
    l.twice(&rebind, &["rebound"])?;
    let at = epoch(&l.twice(&format!("{rebind} UPSTREAM w"), &["bound"])?);
    l.twice(&command("UNBIND", &format!("tools {at}")), &["unbound"])?;
    let bind = command("BIND", &format!("tools w:1 t5 {TAIL}"));
    l.twice(&bind, &["claimed"])?;
    let at = epoch(&l.twice(&format!("{bind} UPSTREAM u"), &["bound"])?);
    l.twice(&command("UNBIND", &format!("tools {at}")), &["unbound"])?;
    let bind = command("BIND", &format!("tools w:1 t6 {TAIL} UPSTREAM u"));
    l.twice(&bind, &["bound"])?;

    // A claim that is given up, and what others do that changes nothing.
    let bind = command("BIND", &format!("more w:1 t7 {TAIL}"));
    let at = epoch(&l.once(&bind, &["claimed"])?);
    l.twice(&command("BIND", &format!("more w:2 t8 {TAIL}")), &[])?;
    l.twice(&command("REBIND", &format!("more {at} w:2 t8 {TAIL}")), &[])?;
    l.twice(&command("CONFIRM", &format!("more {at} t8")), &[])?;
    l.twice(&command("UNBIND", &format!("more {at} t7")), &["unbound"])?;

    // The end.
    l.twice(&format!("SESSION.END {KEY} zoe"), &["ended"])?;
    l.twice(&format!("SESSION.CLAIM {KEY} w:1 LEASE 60000"), &[])?;
    let generation = created.field("gen").integer();
    let forget = format!("SESSION.FORGET {KEY} {generation} w:1");
    l.twice(&forget, &["forgotten"])?;
    l.once(
        &format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"),
        &["created"],
    )?;
    l.twice(&format!("SESSION.KILL {KEY}"), &["ended"])?;
    l.twice(
        &format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"),
        &["created"],
    )?;
    Ok(())
}
