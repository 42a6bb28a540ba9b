//! Seeded random traffic over every command of the module, for the tests that ask what remains true afterwards.
//!
//! The commands are drawn from the server's own COMMAND DOCS, one at a time and in an order that the seed alone
//! decides; what a reply says goes into later commands. `MOORING_TEST_SEED` is added to every test's own seed, so that
//! other numbers give other traffic. Invariant: a reply is one of the contract's, whatever was said.

pub(super) mod foreign;
pub(super) mod grammar;
pub(super) mod poison;
pub(super) mod words;

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use fastrand::Rng;

use super::resp::{Connection, Value};
use grammar::{Grammar, entry};
use words::{Draw, Known, Said};

/// The contract's codes, and those of the server itself that may come instead.
const CODES: [&str; 13] = [
    "NOSESSION",
    "ENDED",
    "DENIED",
    "STALE",
    "OWNED",
    "BUSY",
    "LIMIT",
    "ERR",
    "WRONGTYPE",
    "OOM",
    "READONLY",
    "LOADING",
    "EXECABORT",
];

/// How many times 200 commands it may take until every command has succeeded.
const COVERED_WITHIN: usize = 20;

/// What the traffic is made of besides valid commands of the module, in percent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mix {
    /// Commands with something wrong in them.
    pub(super) bad: u32,
    /// Other commands of Redis on the same keys.
    pub(super) foreign: u32,
}

/// A source of commands.
pub(super) struct Traffic {
    seed: u64,
    mix: Mix,
    rng: Rng,
    grammars: Vec<Grammar>,
    /// The place of every grammar, as often as its weight says.
    lots: Vec<usize>,
    known: Known,
    succeeded: BTreeMap<String, u64>,
}

impl Traffic {
    /// Over all commands of the server behind `c`.
    pub(super) fn new(c: &mut Connection, seed: u64, mix: Mix) -> anyhow::Result<Self> {
        let seed = seeded(seed)?;
        let grammars = Grammar::of_module(c)?;
        let lots = grammars
            .iter()
            .enumerate()
            .flat_map(|(place, grammar)| std::iter::repeat_n(place, weight(&grammar.name)));
        Ok(Self {
            seed,
            mix,
            rng: Rng::with_seed(seed),
            lots: lots.collect(),
            grammars,
            known: Known::default(),
            succeeded: BTreeMap::new(),
        })
    }

    /// The next command.
    pub(super) fn draw(&mut self) -> Said {
        let of_hundred = self.rng.u32(..100);
        if of_hundred < self.mix.foreign {
            return foreign::draw(&mut self.rng);
        }
        let lot = self.lots[self.rng.usize(..self.lots.len())];
        let grammar = &self.grammars[lot];
        let mut said = Draw::draw(&mut self.rng, &self.known, grammar);
        if of_hundred < self.mix.foreign + self.mix.bad {
            poison::spoil(&mut said.words, &mut self.rng);
        }
        said
    }

    /// Says `count` commands over the connections in turn.
    pub(super) fn run(
        &mut self,
        connections: &mut [&mut Connection],
        count: usize,
    ) -> anyhow::Result<()> {
        for _ in 0..count {
            self.say_next(connections)?;
        }
        Ok(())
    }

    /// Says the next command over one of the connections: which, and what it came to.
    fn say_next(
        &mut self,
        connections: &mut [&mut Connection],
    ) -> anyhow::Result<(usize, Said, Value)> {
        let said = self.draw();
        let n = self.rng.usize(..connections.len());
        let reply = self
            .say(connections[n], &said)
            .with_context(|| format!("seed {}: {}", self.seed, shown(&said)))?;
        Ok((n, said, reply))
    }

    /// Says one command, and learns from what it came to.
    pub(super) fn say(&mut self, c: &mut Connection, said: &Said) -> anyhow::Result<Value> {
        let words: Vec<&[u8]> = said.words.iter().map(Vec::as_slice).collect();
        let reply = c.send(&words)?;
        check(&reply)?;
        if !matches!(reply, Value::Error(_)) {
            let name = String::from_utf8_lossy(&said.words[0]).to_lowercase();
            *self.succeeded.entry(name).or_default() += 1;
            self.learn(said, &reply);
        }
        Ok(reply)
    }

    /// Goes on until every command has succeeded: a traffic that leaves one out proves nothing about it.
    pub(super) fn cover(&mut self, connections: &mut [&mut Connection]) -> anyhow::Result<()> {
        for _ in 0..COVERED_WITHIN {
            if self.never_succeeded().is_empty() {
                return Ok(());
            }
            for _ in 0..200 {
                let (n, said, reply) = self.say_next(connections)?;
                if said.words[0] == b"session.enter" && !matches!(reply, Value::Error(_)) {
                    self.leave(connections[n], said)?;
                }
            }
        }
        anyhow::bail!("never succeeded: {:?}", self.never_succeeded())
    }

    /// Gives a turn back at once. Where the server is slow, it is over before another command could draw its ticket.
    fn leave(&mut self, c: &mut Connection, entered: Said) -> anyhow::Result<()> {
        let ticket = entered.value("ticket");
        let place = entered.words.get(1..4).context("key, principal, server")?;
        let words = [&[b"session.leave".to_vec()], place, &[ticket]].concat();
        self.say(c, &Said { words, ..entered })?;
        Ok(())
    }

    fn never_succeeded(&self) -> Vec<&str> {
        let names = self.grammars.iter().map(|grammar| grammar.name.as_str());
        names
            .filter(|name| !self.succeeded.contains_key(*name))
            .collect()
    }

    fn learn(&mut self, said: &Said, reply: &Value) {
        let integer = |name| match entry(reply, name) {
            Some(Value::Integer(number)) => Some(*number),
            _ => None,
        };
        if let Some(generation) = integer("gen") {
            self.known.generations.insert(said.session, generation);
        }
        if let Some(epoch) = integer("epoch") {
            let place = (said.session, said.server);
            let token = match integer("won") {
                Some(1) => said.value("token"),
                _ => match self.known.claims.remove(&place) {
                    Some((known, token)) if known == epoch => token,
                    _ => Vec::new(),
                },
            };
            self.known.claims.insert(place, (epoch, token));
        }
        match said.words[0].as_slice() {
            b"session.claim" => {
                self.known
                    .cleaners
                    .insert(said.session, said.value("worker"));
            }
            b"session.enter" => {
                let place = (said.session, said.server);
                self.known.tickets.insert(place, said.value("ticket"));
            }
            _ => {}
        }
        if let Some(turn) = integer("turn") {
            self.known.turn = turn;
        }
        if let Some(Value::Text(cursor)) = entry(reply, "cursor") {
            self.known.cursor.clone_from(cursor);
        }
    }
}

/// A failed test shows what was printed: its seeds, to be repeated.
impl Drop for Traffic {
    #[expect(clippy::print_stdout, reason = "shown only where the test fails")]
    fn drop(&mut self) {
        println!("traffic of seed {}: {:?}", self.seed, self.succeeded);
    }
}

/// A test's own seed, and what the environment adds to it.
pub(super) fn seeded(own: u64) -> anyhow::Result<u64> {
    let added = match std::env::var("MOORING_TEST_SEED") {
        Ok(seed) => seed.parse().context("MOORING_TEST_SEED is a number")?,
        Err(_) => 0,
    };
    Ok(own.wrapping_add(added))
}

/// A command, for a failure.
pub(super) fn shown(said: &Said) -> String {
    shown_words(&said.words)
}

/// The words of a command, for a failure.
pub(super) fn shown_words(words: &[impl AsRef<[u8]>]) -> String {
    let words = words.iter().map(|word| {
        let word = word.as_ref();
        word[..word.len().min(80)].escape_ascii().to_string()
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Fails where an error has none of the codes, or says that the module has a defect.
pub(super) fn check(reply: &Value) -> anyhow::Result<()> {
    if let Value::Error(text) = reply {
        let code = text.split(' ').next().unwrap_or_default();
        ensure!(CODES.contains(&code), "an unknown code: {text}");
        ensure!(!text.contains("internal error"), "{text}");
    }
    Ok(())
}

/// What makes sessions and bindings comes more often than what takes them away, or nothing would live long enough to
/// be worth a test.
fn weight(name: &str) -> usize {
    match name {
        "session.create" | "session.bind" | "session.confirm" | "session.route" => 8,
        "session.touch" | "session.rebind" | "session.enter" | "session.claim" => 4,
        "session.forget" | "session.leave" | "session.rate" | "session.unbind" => 4,
        _ => 1,
    }
}
