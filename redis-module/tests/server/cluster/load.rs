//! What clients do to a cluster that changes under them, and what they were told: numbers that may only grow.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::super::resp::{Connection, Value};
use super::client::Client;

/// Sessions that a walker works on, one after another.
const WALKED: usize = 40;
/// Commands of a burst that are sent in one go.
const BATCH: usize = 50;
/// How many of a burst's sessions are also moved, ended and created anew.
const CHANGED_AFTERWARDS: usize = 200;

const TAIL: &str = "LEASE 5000 INSTANCES 2 a b";

/// The numbers that a session was last seen with.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    generation: i64,
    epoch: i64,
    turn: i64,
}

fn grew(what: &str, before: &mut i64, reply: &Value, field: &str) -> anyhow::Result<()> {
    let now = match reply {
        Value::Array(_) => reply.field(field).integer(),
        other => anyhow::bail!("{what}: {other}"),
    };
    ensure!(now > *before, "{what}: {field} {now} after {before}");
    *before = now;
    Ok(())
}

/// A client that works on sessions of one slot, one command at a time.
pub(crate) struct Walker {
    pub(crate) client: Client,
    keys: Vec<String>,
    numbers: Vec<Numbers>,
    rounds: usize,
}

impl Walker {
    pub(crate) fn new(client: Client, tag: &str) -> Self {
        let keys = (0..WALKED).map(|n| format!("mcpgw:session_affinity:{tag}:{n}"));
        Self {
            client,
            keys: keys.collect(),
            numbers: Vec::new(),
            rounds: 0,
        }
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.keys.clone()
    }

    /// Visits each session once.
    pub(crate) fn walk(&mut self) -> anyhow::Result<()> {
        self.rounds += 1;
        for place in 0..self.keys.len() {
            let mut numbers = self.numbers.get(place).copied().unwrap_or_default();
            let key = self.keys[place].clone();
            if numbers.generation == 0 {
                self.begin(&key, &mut numbers)?;
                self.numbers.push(numbers);
                continue;
            }
            match (self.rounds + place) % 7 {
                0 => {
                    let ended = self.client.run(&format!("SESSION.END {key} zoe"))?;
                    ensure!(ended.field("ended_now").integer() == 1, "{key}: {ended}");
                    self.begin(&key, &mut numbers)?;
                }
                1..=3 => self.rebind(&key, &mut numbers)?,
                _ => self.use_it(&key, &mut numbers)?,
            }
            self.numbers[place] = numbers;
        }
        Ok(())
    }

    fn begin(&mut self, key: &str, numbers: &mut Numbers) -> anyhow::Result<()> {
        let create = format!("SESSION.CREATE {key} id zoe TTL 600000");
        let created = self.client.run(&create)?;
        grew(&create, &mut numbers.generation, &created, "gen")?;
        let bind = format!("SESSION.BIND {key} zoe tools w:1 t {TAIL} UPSTREAM u");
        let bound = self.client.run(&bind)?;
        grew(&bind, &mut numbers.epoch, &bound, "epoch")
    }

    fn rebind(&mut self, key: &str, numbers: &mut Numbers) -> anyhow::Result<()> {
        let (epoch, token) = (numbers.epoch, fastrand::u32(..));
        let rebind =
            format!("SESSION.REBIND {key} zoe tools {epoch} w:1 {token} {TAIL} UPSTREAM u");
        let rebound = self.client.run(&rebind)?;
        grew(&rebind, &mut numbers.epoch, &rebound, "epoch")
    }

    fn use_it(&mut self, key: &str, numbers: &mut Numbers) -> anyhow::Result<()> {
        let route = format!("SESSION.ROUTE {key} zoe tools w:1");
        let routed = self.client.run(&route)?;
        ensure!(
            routed.field("epoch").integer() == numbers.epoch,
            "{route}: {routed}"
        );
        let ticket = fastrand::u32(..);
        let enter = format!("SESSION.ENTER {key} zoe tools w:1 {ticket} LEASE 100");
        let entered = self.client.run(&enter)?;
        // A turn that is held at the node that the key has left has lapsed before it may come back.
        if *entered.field("turn") != Value::Null {
            grew(&enter, &mut numbers.turn, &entered, "turn")?;
        }
        // Queues do not move with a key: a turn that was given before is STALE after.
        let leave = format!("SESSION.LEAVE {key} zoe tools {ticket}");
        let left = self.client.run(&leave)?.to_string();
        ensure!(left == "[left, 1]" || left.starts_with("STALE"), "{left}");
        Ok(())
    }
}

/// What a client was told until its server was killed.
pub(crate) struct Burst {
    sessions: Vec<(String, Numbers)>,
    count: usize,
    lasted: Duration,
}

impl Burst {
    /// Creates and binds sessions until the connection breaks. Only what the replica has acknowledged counts.
    pub(crate) fn create(port: u16, tag: &str) -> anyhow::Result<Self> {
        let mut c = Connection::open_at(port)?;
        let mut burst = Self::begin();
        let started = Instant::now();
        loop {
            let first = burst.count;
            let keys = (first..first + BATCH).map(|n| format!("mcpgw:{tag}:created:{n}"));
            let keys: Vec<String> = keys.collect();
            let mut commands = Vec::new();
            for key in &keys {
                commands.push(format!("SESSION.CREATE {key} id zoe TTL 600000"));
                commands.push(format!(
                    "SESSION.BIND {key} zoe tools w:1 t {TAIL} UPSTREAM u"
                ));
            }
            commands.push("WAIT 1 2000".to_owned());
            let Ok(replies) = c.run_all(&commands) else {
                break;
            };
            ensure!(
                replies[2 * BATCH] == Value::Integer(1),
                "the replica is away"
            );
            for (key, told) in keys.into_iter().zip(replies.chunks(2)) {
                let numbers = Numbers {
                    generation: told[0].field("gen").integer(),
                    epoch: told[1].field("epoch").integer(),
                    turn: 0,
                };
                burst.sessions.push((key, numbers));
            }
            burst.count += BATCH;
            burst.lasted = started.elapsed();
        }
        Ok(burst)
    }

    /// Takes and leaves the turns of a few sessions until the connection breaks.
    pub(crate) fn take_turns(port: u16, tag: &str) -> anyhow::Result<Self> {
        let mut c = Connection::open_at(port)?;
        let mut burst = Self::begin();
        for n in 0..BATCH {
            let key = format!("mcpgw:{tag}:turned:{n}");
            c.run(&format!("SESSION.CREATE {key} id zoe TTL 600000"))?;
            burst.sessions.push((key, Numbers::default()));
        }
        ensure!(c.run("WAIT 1 2000")? == Value::Integer(1));
        let started = Instant::now();
        loop {
            let of = |word: &str, rest: &str| {
                let keys = burst.sessions.iter().map(|(key, _)| key);
                let of = keys.map(|key| format!("SESSION.{word} {key} zoe tools {rest}"));
                of.collect::<Vec<_>>()
            };
            let mut commands = of("ENTER", "w:1 ticket LEASE 100");
            commands.extend(of("LEAVE", "ticket"));
            let Ok(replies) = c.run_all(&commands) else {
                break;
            };
            for ((key, numbers), told) in burst.sessions.iter_mut().zip(&replies) {
                grew(key, &mut numbers.turn, told, "turn")?;
            }
            burst.count += BATCH;
            burst.lasted = started.elapsed();
        }
        Ok(burst)
    }

    fn begin() -> Self {
        Self {
            sessions: Vec::new(),
            count: 0,
            lasted: Duration::ZERO,
        }
    }

    /// What was acknowledged, a second.
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    pub(crate) fn rate(&self) -> f64 {
        self.count as f64 / self.lasted.as_secs_f64()
    }

    /// Every session stands as it was acknowledged, and what is given to it from now on is greater.
    pub(crate) fn check_all(self, client: &mut Client) -> anyhow::Result<()> {
        for (key, numbers) in &self.sessions {
            let record = client.run(&format!("SESSION.GET {key}"))?;
            ensure!(matches!(record, Value::Array(_)), "{key}: {record}");
            let Value::Array(bindings) = record.field("bindings") else {
                anyhow::bail!("{key}: {record}");
            };
            let binding = bindings.first().context("a binding")?;
            ensure!(
                record.field("gen").integer() == numbers.generation
                    && binding.field("epoch").integer() == numbers.epoch,
                "{key}: {record} where {numbers:?} was acknowledged"
            );
        }
        for (key, mut numbers) in self.sessions.into_iter().take(CHANGED_AFTERWARDS) {
            let epoch = numbers.epoch;
            let rebind = format!("SESSION.REBIND {key} zoe tools {epoch} w:1 new {TAIL}");
            let rebound = client.run(&rebind)?;
            grew(&rebind, &mut numbers.epoch, &rebound, "epoch")?;
            client.run(&format!("SESSION.END {key} zoe"))?;
            let create = format!("SESSION.CREATE {key} id zoe TTL 600000");
            let created = client.run(&create)?;
            grew(&create, &mut numbers.generation, &created, "gen")?;
        }
        Ok(())
    }

    /// The next turn of every session is greater than all that were given.
    pub(crate) fn grow(self, client: &mut Client) -> anyhow::Result<()> {
        for (key, mut numbers) in self.sessions {
            let enter = format!("SESSION.ENTER {key} zoe tools w:1 after LEASE 100");
            let entered = loop {
                let entered = client.run(&enter)?;
                // A new primary first waits for who holds a turn.
                if *entered.field("turn") != Value::Null {
                    break entered;
                }
                std::thread::sleep(Duration::from_millis(5));
            };
            grew(&enter, &mut numbers.turn, &entered, "turn")?;
        }
        Ok(())
    }
}
