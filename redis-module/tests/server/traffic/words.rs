//! The words of one random command, made from its grammar over few names, so that commands meet each other.
//!
//! Numbers that have to fit (epochs, generations, tokens of claims) are mostly those that the traffic has learned from
//! earlier replies, and sometimes others.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::grammar::{Argument, Grammar, Kind};

/// The words of a command.
pub(crate) type Words = Vec<Vec<u8>>;

/// How many sessions, servers and workers there are.
const SESSIONS: usize = 10;
const SERVERS: usize = 3;
const WORKERS: usize = 3;

/// What the traffic has learned from replies.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The latest epoch, and the token that made it, of a session's server.
    pub(crate) claims: BTreeMap<(usize, usize), (i64, Vec<u8>)>,
    /// The latest generation of a session.
    pub(crate) generations: BTreeMap<usize, i64>,
    /// The worker that cleans a session.
    pub(crate) cleaners: BTreeMap<usize, Vec<u8>>,
    /// The latest ticket for a turn at a session's server.
    pub(crate) tickets: BTreeMap<(usize, usize), Vec<u8>>,
    /// The latest turn that was granted.
    pub(crate) turn: i64,
    /// The latest cursor.
    pub(crate) cursor: Vec<u8>,
}

/// One command that was drawn.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    /// What is sent.
    pub(crate) words: Words,
    /// Which session it is about.
    pub(crate) session: usize,
    /// Which server it is about.
    pub(crate) server: usize,
    /// The values it names, by the names of its arguments.
    pub(crate) named: BTreeMap<String, Vec<u8>>,
}

impl Said {
    /// What it says for the argument of this name.
    pub(crate) fn value(&self, name: &str) -> Vec<u8> {
        self.named.get(name).cloned().unwrap_or_default()
    }
}

/// Draws the words of one command.
pub(crate) struct Draw<'a> {
    rng: &'a mut Rng,
    known: &'a Known,
    command: &'a str,
    said: Said,
}

/// The key of a session.
pub(crate) fn key_of(session: usize) -> String {
    format!("mcpgw:session_affinity:{session}")
}

/// The key of any session.
pub(crate) fn any_key(rng: &mut Rng) -> String {
    key_of(rng.usize(..SESSIONS))
}

impl<'a> Draw<'a> {
    /// A command of `grammar`, valid as far as single words go.
    pub(crate) fn draw(rng: &'a mut Rng, known: &'a Known, grammar: &'a Grammar) -> Said {
        let said = Said {
            words: vec![grammar.name.clone().into_bytes()],
            session: rng.usize(..SESSIONS),
            server: rng.usize(..SERVERS),
            named: BTreeMap::new(),
        };
        let mut draw = Self {
            rng,
            known,
            command: &grammar.name,
            said,
        };
        draw.choose_what_fits(grammar);
        let (options, positional): (Vec<_>, Vec<_>) = grammar
            .arguments
            .iter()
            .partition(|argument| argument.token.is_some());
        for argument in positional {
            draw.take(argument);
        }
        let mut options = options;
        draw.rng.shuffle(&mut options);
        for option in options {
            draw.take(option);
        }
        draw.said
    }

    /// A command that has to fit something is mostly about a session where there is something to fit.
    fn choose_what_fits(&mut self, grammar: &Grammar) {
        let takes = |name: &str| {
            grammar
                .arguments
                .iter()
                .any(|argument| argument.name == name)
        };
        let places: Vec<(usize, usize)> = match (self.command, self.rng.u32(..4)) {
            (_, 0) => Vec::new(),
            ("session.leave", _) => self.known.tickets.keys().copied().collect(),
            _ if takes("epoch") => self.known.claims.keys().copied().collect(),
            _ if takes("gen") => self
                .known
                .cleaners
                .keys()
                .map(|session| (*session, 0))
                .collect(),
            _ => Vec::new(),
        };
        if !places.is_empty() {
            (self.said.session, self.said.server) = places[self.rng.usize(..places.len())];
        }
    }

    fn one_in(&mut self, many: u32) -> bool {
        self.rng.u32(..many) == 0
    }

    /// An argument as often as its grammar and the dice want it.
    fn take(&mut self, argument: &Argument) {
        if argument.optional && !self.one_in(3) {
            return;
        }
        let times = match argument.multiple {
            true => self.rng.usize(1..=3),
            false => 1,
        };
        for n in 0..times {
            if let Some(token) = &argument.token {
                self.push(token);
            }
            self.value(argument, n);
        }
    }

    fn push(&mut self, word: impl AsRef<[u8]>) {
        self.said.words.push(word.as_ref().to_vec());
    }

    fn value(&mut self, argument: &Argument, n: usize) {
        match &argument.kind {
            Kind::Token => {}
            Kind::OneOf(parts) => {
                let part = &parts[self.rng.usize(..parts.len())];
                if let Some(token) = &part.token {
                    self.push(token);
                }
                self.value(part, n);
            }
            Kind::Block(parts) => self.block(parts, n),
            Kind::Key => {
                let key = self.key();
                self.push(key);
            }
            Kind::Integer => {
                let number = self.integer(argument).to_string();
                self.push(number);
            }
            Kind::Text => {
                let text = self.text(argument, n);
                self.said.named.insert(argument.name.clone(), text.clone());
                self.push(text);
            }
        }
    }

    /// A count in front of a repeated part tells how often that comes.
    fn block(&mut self, parts: &[Argument], n: usize) {
        let repeated = parts.iter().position(|part| part.multiple);
        let times = self.rng.usize(1..=3);
        for (place, part) in parts.iter().enumerate() {
            if Some(place + 1) == repeated && matches!(part.kind, Kind::Integer) {
                self.push(times.to_string());
            } else if Some(place) == repeated {
                (0..times).for_each(|time| self.value(part, time));
            } else {
                self.value(part, n);
            }
        }
    }

    fn key(&mut self) -> String {
        match (self.command, self.rng.u32(..30)) {
            ("session.rate", 1..) => format!("mcpgw:rate:{}", self.rng.usize(..3)),
            (_, 0) => "elsewhere:1".to_owned(),
            _ => key_of(self.said.session),
        }
    }

    fn integer(&mut self, argument: &Argument) -> i64 {
        let known_epoch = self
            .known
            .claims
            .get(&(self.said.session, self.said.server));
        let choices: &[i64] = match (argument.token.as_deref(), argument.name.as_str()) {
            (Some("TTL"), _) if self.command.starts_with("worker") => &[100, 1_000, 60_000],
            (Some("TTL"), _) => &[1_000, 60_000, 900_000, 2_592_000_000],
            (Some("LEASE" | "DELEGATE"), _) => &[10, 1_000, 5_000],
            (Some("TIMEOUT"), _) => &[1, 2, 5],
            (Some("WINDOW"), _) => &[10, 1_000, 60_000],
            (Some("CAP"), _) => &[1, 3, 100],
            (Some("LIMIT"), _) => &[1, 3, 1_000],
            (Some("COUNT"), _) => &[1, 3, 1_000],
            (_, "epoch") => match known_epoch {
                Some((epoch, _)) => &[*epoch, *epoch, *epoch, *epoch, *epoch, *epoch - 1],
                None => &[1],
            },
            (_, "gen") => match self.known.generations.get(&self.said.session) {
                Some(generation) => &[*generation, *generation, *generation, 1],
                None => &[1],
            },
            (_, "turn") => &[self.known.turn, self.known.turn + 1],
            _ => &[1, 2, 3],
        };
        choices[self.rng.usize(..choices.len())]
    }

    fn text(&mut self, argument: &Argument, n: usize) -> Vec<u8> {
        let choice = |rng: &mut Rng, words: &[&str]| words[rng.usize(..words.len())].to_owned();
        let text = match (argument.token.as_deref(), argument.name.as_str()) {
            (Some("CURSOR"), _) if self.one_in(2) => return self.known.cursor.clone(),
            (Some("CURSOR"), _) => "0".to_owned(),
            (Some("STATE"), _) => choice(self.rng, &["active", "expired", "ended"]),
            (Some("ORDER"), _) => choice(self.rng, &["newest", "oldest"]),
            (Some("MATCH"), _) => choice(self.rng, &["*", "mcpgw:*[0-4]", "?", "[^a]*\\*"]),
            (_, "id") if !self.one_in(30) => format!("s{}", self.said.session),
            (_, "principal") if !self.one_in(15) => format!("user{}", self.said.session % 3),
            (_, "server") => format!("server{}", self.said.server),
            (_, "worker") if self.command == "session.forget" => {
                return self
                    .known
                    .cleaners
                    .get(&self.said.session)
                    .cloned()
                    .unwrap_or_default();
            }
            (_, "ticket") if self.command == "session.leave" => {
                let place = (self.said.session, self.said.server);
                return self.known.tickets.get(&place).cloned().unwrap_or_default();
            }
            // A boot that is not the present one may not speak; it comes, but rarely.
            (_, "worker") if self.one_in(40) => format!("w{}:2", self.rng.usize(..WORKERS)),
            (_, "worker" | "owner") => format!("w{}:1", self.rng.usize(..WORKERS)),
            (_, "token") => return self.token(),
            (_, "instance") => format!("http://instance{}/mcp", (self.rng.usize(..2) + n) % 4),
            (_, "name") => format!("label{n}"),
            (_, name) => format!("{name}{}", self.rng.usize(..3)),
        };
        text.into_bytes()
    }

    fn token(&mut self) -> Vec<u8> {
        let holds = self
            .known
            .claims
            .get(&(self.said.session, self.said.server));
        match holds {
            Some((_, token)) if !token.is_empty() && !self.one_in(4) => token.clone(),
            _ => format!("token{}", self.rng.usize(..4)).into_bytes(),
        }
    }
}
