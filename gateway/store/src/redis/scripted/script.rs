//! The one script: what it is given, and what it answers.
//!
//! Invariants: a call names every key that it uses; its commands run only if every check holds, and then all of them,
//! because nothing else runs meanwhile; the reply repeats the number of the call.

use std::sync::atomic::{AtomicI64, Ordering};

use mooring_session::time::{Monotonic, Timestamp};
use redis::{Cmd, Value};

use super::super::failure::{self, invalid_reply};
use super::super::link::Link;
use super::super::link_state::Resend;
use super::super::reply::Problem;
use crate::error::StoreError;

/// The script. Its first line has its version.
pub(super) const SCRIPT: &str = include_str!("script.lua");
/// The SHA-1 of it, by which a server that has seen it knows it.
pub(super) const SCRIPT_SHA1: &str = "19e3d6ff1f0b4ddeed3e0f38286f5cf05815072b";
/// The command that names it.
const EVALSHA: &str = "EVALSHA";

/// The number of the next call. Numbers that Lua cannot represent are never reached.
static CALLS: AtomicI64 = AtomicI64::new(1);

/// The fields of a hash as they were read.
pub(super) type HashFields = Vec<(Vec<u8>, Vec<u8>)>;

/// A call of the script under construction.
#[derive(Debug, Default)]
pub(super) struct ScriptCall {
    keys: Vec<String>,
    check_count: usize,
    checks: Vec<Vec<u8>>,
    commands: Vec<Vec<u8>>,
}

/// What the script answered.
pub(super) struct ScriptReply {
    /// The server's clock, in milliseconds.
    pub(super) now_ms: u64,
    /// The results of the commands in their order; none if a check failed.
    results: Option<std::vec::IntoIter<Value>>,
}

impl ScriptCall {
    /// The number of a key in the call.
    pub(super) fn key(&mut self, key: &str) -> usize {
        let known = self.keys.iter().position(|known| known == key);
        let index = known.unwrap_or_else(|| {
            self.keys.push(key.to_owned());
            self.keys.len() - 1
        });
        index + 1
    }

    /// The string has to have this value; without one it must not exist.
    pub(super) fn check_text(&mut self, key: &str, text: Option<&str>) {
        let words: Vec<&[u8]> = text.iter().map(|text| text.as_bytes()).collect();
        self.check("text", key, &words);
    }

    /// The hash has to have these fields and no others.
    pub(super) fn check_hash(&mut self, key: &str, fields: &HashFields) {
        let pairs = fields.iter();
        let words: Vec<&[u8]> = pairs
            .flat_map(|(field, value)| [field.as_slice(), value.as_slice()])
            .collect();
        self.check("hash", key, &words);
    }

    fn check(&mut self, kind: &str, key: &str, words: &[&[u8]]) {
        self.check_count += 1;
        let index = self.key(key);
        push(&mut self.checks, kind, index, words);
    }

    /// Runs a command, whose result comes after those of the commands before it.
    pub(super) fn run(&mut self, name: &str, key: &str, words: &[&str]) {
        let index = self.key(key);
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        push(&mut self.commands, name, index, &words);
    }

    /// Whether there is nothing to run.
    pub(super) const fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Sends the call: by the script's hash, and with its text to a server that does not know it yet.
    pub(super) async fn send(
        &self,
        link: &Link,
        resend: Resend,
    ) -> Result<ScriptReply, StoreError> {
        let mut value = link
            .send(&self.command(EVALSHA, SCRIPT_SHA1), resend)
            .await?;
        if matches!(&value, Value::ServerError(error) if error.code() == "NOSCRIPT") {
            value = link.send(&self.eval(), resend).await?;
        }
        let value = failure::accepted(value, EVALSHA)?;
        ScriptReply::of(value).map_err(invalid_reply(EVALSHA))
    }

    /// The call with the text of the script.
    pub(super) fn eval(&self) -> Cmd {
        self.command("EVAL", SCRIPT)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let number = CALLS.fetch_add(1, Ordering::Relaxed);
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys);
        command.arg(number).arg(self.check_count);
        for word in self.checks.iter().chain(&self.commands) {
            command.arg(word.as_slice());
        }
        command
    }
}

fn push(to: &mut Vec<Vec<u8>>, name: &str, index: usize, words: &[&[u8]]) {
    let head = [name.to_owned(), index.to_string(), words.len().to_string()];
    to.extend(head.into_iter().map(String::into_bytes));
    to.extend(words.iter().map(|word| word.to_vec()));
}

impl ScriptReply {
    fn of(value: Value) -> Result<Self, Problem> {
        let values = value.into_sequence().map_err(|_| no_reply())?;
        let [_, now, results] = <[Value; 3]>::try_from(values).map_err(|_| no_reply())?;
        let Value::Int(now) = now else {
            return Err(no_reply());
        };
        let results = match results {
            Value::Nil => None,
            results => Some(results.into_sequence().map_err(|_| no_reply())?.into_iter()),
        };
        Ok(Self {
            now_ms: u64::try_from(now).map_err(|_| no_reply())?,
            results,
        })
    }

    /// Whether every check held, and so every command ran.
    pub(super) const fn has_run(&self) -> bool {
        self.results.is_some()
    }

    pub(super) const fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.now_ms)
    }

    /// The server's clock is the only one that all gateways share, so that it measures leases too.
    pub(super) const fn mono(&self) -> Monotonic {
        Monotonic::from_ms(self.now_ms)
    }

    fn next(&mut self) -> Result<Value, StoreError> {
        let next = self.results.as_mut().and_then(Iterator::next);
        next.ok_or_else(|| malformed("a result is missing"))
    }

    /// The next result: a string, if the key exists.
    pub(super) fn value(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        match self.next()? {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => Ok(Some(bytes)),
            _ => Err(malformed("a value is no string")),
        }
    }

    /// The next result: a text, if the key exists.
    pub(super) fn text(&mut self) -> Result<Option<String>, StoreError> {
        let text = self.value()?.map(String::from_utf8).transpose();
        text.map_err(|_| malformed("a value is no text"))
    }

    /// The next result: whether the command was done, which has a condition.
    pub(super) fn is_done(&mut self) -> Result<bool, StoreError> {
        Ok(self.next()? != Value::Nil)
    }

    /// The next result: a number.
    pub(super) fn number(&mut self) -> Result<u64, StoreError> {
        match self.next()? {
            Value::Int(number) => {
                u64::try_from(number).map_err(|_| malformed("a number is negative"))
            }
            _ => Err(malformed("a count is no number")),
        }
    }

    /// The next result: the members of a list or an index.
    pub(super) fn texts(&mut self) -> Result<Vec<String>, StoreError> {
        let texts = self.bytes()?.into_iter().map(String::from_utf8);
        texts
            .collect::<Result<_, _>>()
            .map_err(|_| malformed("a member is no text"))
    }

    /// The next result: the fields of a hash.
    pub(super) fn fields(&mut self) -> Result<HashFields, StoreError> {
        let mut values = self.bytes()?.into_iter();
        let mut fields = Vec::with_capacity(values.len() / 2);
        while let (Some(field), Some(value)) = (values.next(), values.next()) {
            fields.push((field, value));
        }
        Ok(fields)
    }

    fn bytes(&mut self) -> Result<Vec<Vec<u8>>, StoreError> {
        let values = self.next()?.into_sequence();
        let values = values.map_err(|_| malformed("a result is no list"))?;
        let bytes = values.into_iter().map(|value| match value {
            Value::BulkString(bytes) => Ok(bytes),
            _ => Err(malformed("a value is no string")),
        });
        bytes.collect()
    }
}

fn no_reply() -> Problem {
    "it is not a reply of the script".to_owned()
}

fn malformed(problem: &str) -> StoreError {
    StoreError::Reply {
        command: EVALSHA,
        problem: problem.into(),
    }
}
