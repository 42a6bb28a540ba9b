//! Hostile input in every argument of every command, by the grammar that the server itself tells: each is answered,
//! nothing is kept, nothing is broken.

use std::io::Write;
use std::net::TcpStream;

use anyhow::Context;
use mooring_tests::redis::Redis;

use super::keyspace::Keyspace;
use super::resp::{Connection, Value};
use super::traffic::grammar::{Argument, Grammar, Kind};
use super::traffic::poison::poisons;
use super::traffic::{check, shown_words};

const MEBIBYTE: usize = 1 << 20;

/// The longest argument that Redis takes: its `proto-max-bulk-len`.
const LONGEST_MIB: usize = 512;

/// How much more memory than before may be in use once a big argument was refused: the server's own buffers.
const MEMORY_KEPT_MIB: i64 = 24;

/// A command with everything in it that its grammar allows, once. Its values are plausible, and of nobody.
pub(super) fn every_word(grammar: &Grammar) -> Vec<Vec<u8>> {
    let mut words = vec![grammar.name.clone().into_bytes()];
    let (options, positional): (Vec<_>, Vec<_>) = grammar
        .arguments
        .iter()
        .partition(|argument| argument.token.is_some());
    for argument in positional.into_iter().chain(options) {
        words_of(argument, &mut words);
    }
    words
}

fn words_of(argument: &Argument, words: &mut Vec<Vec<u8>>) {
    words.extend(
        argument
            .token
            .iter()
            .map(|token| token.clone().into_bytes()),
    );
    match &argument.kind {
        Kind::Token => {}
        Kind::Block(parts) => parts.iter().for_each(|part| words_of(part, words)),
        Kind::OneOf(parts) => words_of(&parts[0], words),
        Kind::Key => words.push(b"mcpgw:hostile".to_vec()),
        Kind::Integer if argument.name == "ms" => words.push(b"1000".to_vec()),
        Kind::Integer => words.push(b"1".to_vec()),
        Kind::Text => words.push(format!("{}1", argument.name).into_bytes()),
    }
}

/// Sends a command so that it cannot wait, whatever is asked: nothing waits in a transaction.
fn send_unblocked(c: &mut Connection, words: &[&[u8]]) -> anyhow::Result<Value> {
    c.run("MULTI")?;
    let queued = c.send(words)?;
    match c.run("EXEC")? {
        Value::Array(mut replies) => replies.pop().context("one reply"),
        _ => Ok(queued),
    }
}

#[tokio::test]
async fn poison_in_any_argument_is_answered() -> anyhow::Result<()> {
    let mut redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    for grammar in Grammar::of_module(&mut c)? {
        let sound = every_word(&grammar);
        for place in 1..=sound.len() {
            for poison in poisons() {
                let mut words: Vec<&[u8]> = sound.iter().map(Vec::as_slice).collect();
                match place < words.len() {
                    true => words[place] = &poison,
                    false => words.push(&poison),
                }
                let reply = send_unblocked(&mut c, &words)?;
                check(&reply).with_context(|| shown_words(&words))?;
                // One command, one reply: nothing in a value was taken for the protocol.
                assert_eq!(c.show("PING")?, "PONG", "{}", shown_words(&words));
            }
        }
    }
    assert_is_sound(&mut redis)
}

/// The server is alive, and the module has no defect to tell of.
fn assert_is_sound(redis: &mut Redis) -> anyhow::Result<()> {
    assert!(redis.process().exit_status()?.is_none(), "the server ended");
    let log = redis.process().log_text();
    assert!(!log.contains("internal error"), "{log}");
    Ok(())
}

/// Sends a command one of whose words is `mib` mebibytes of `x`, without ever holding it here.
fn send_big(redis: &Redis, words: &[Vec<u8>], place: usize, mib: usize) -> anyhow::Result<Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", redis.port()))?;
    let chunk = vec![b'x'; MEBIBYTE];
    write!(stream, "*{}\r\n", words.len())?;
    for (n, word) in words.iter().enumerate() {
        if n == place {
            write!(stream, "${}\r\n", mib * MEBIBYTE)?;
            for _ in 0..mib {
                stream.write_all(&chunk)?;
            }
        } else {
            write!(stream, "${}\r\n", word.len())?;
            stream.write_all(word)?;
        }
        stream.write_all(b"\r\n")?;
    }
    Connection::over(std::io::BufReader::new(stream))?.read()
}

fn used_memory(c: &mut Connection) -> anyhow::Result<i64> {
    let info = c.show("INFO memory")?;
    let line = info
        .split("\\r\\n")
        .find_map(|line| line.strip_prefix("used_memory:"));
    line.context("used_memory")?.parse().context("a number")
}

#[tokio::test]
async fn big_arguments_are_refused_and_nothing_of_them_is_kept() -> anyhow::Result<()> {
    let mut redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    let before = used_memory(&mut c)?;
    for grammar in Grammar::of_module(&mut c)? {
        let words = every_word(&grammar);
        for place in 1..words.len() {
            let reply = send_big(&redis, &words, place, 4)?;
            assert!(
                matches!(reply, Value::Error(_)),
                "{} {place}: {reply}",
                grammar.name
            );
            check(&reply)?;
            assert!(
                reply.to_string().len() < 300,
                "an error repeats little: {reply}"
            );
        }
    }
    let sound = ["SESSION.CREATE", "mcpgw:a", "a", "zoe", "TTL", "900000"];
    let sound = sound.map(|word| word.as_bytes().to_vec());
    for (place, expected) in [
        (1, "ERR invalid key: longer than 1024 bytes"),
        (3, "ERR invalid principal: longer than 320 bytes"),
    ] {
        let reply = send_big(&redis, &sound, place, 64)?;
        assert_eq!(reply.to_string(), expected);
    }
    let reply = send_big(&redis, &sound, 3, LONGEST_MIB)?;
    assert_eq!(
        reply.to_string(),
        "ERR invalid principal: longer than 320 bytes"
    );
    let kept = used_memory(&mut c)? - before;
    assert!(
        kept < MEMORY_KEPT_MIB * MEBIBYTE as i64,
        "{kept} bytes are kept"
    );
    assert_eq!(c.show("DBSIZE")?, "0");
    assert_is_sound(&mut redis)
}

#[tokio::test]
async fn keys_of_other_types_are_named_and_left_alone() -> anyhow::Result<()> {
    let mut redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    let made = [
        "SET mcpgw:string text",
        "SET mcpgw:bits %s%n",
        "LPUSH mcpgw:list a",
        "SADD mcpgw:set a",
        "SADD mcpgw:intset 1",
        "ZADD mcpgw:zset 1 a",
        "XADD mcpgw:stream * a 1",
        "PFADD mcpgw:log a",
    ];
    let keys: Vec<&str> = made
        .iter()
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    for line in made {
        c.run(line)?;
    }
    let before = Keyspace::of(&redis)?;
    for grammar in Grammar::of_module(&mut c)?
        .iter()
        .filter(|grammar| grammar.has_key())
    {
        for key in &keys {
            let mut words = every_word(grammar);
            words[1] = key.as_bytes().to_vec();
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let reply = send_unblocked(&mut c, &words)?.to_string();
            // A rate's key is a string by nature; one that holds something else is named as such.
            let is_rate = grammar.name == "session.rate" && reply.starts_with("ERR");
            assert!(
                reply.starts_with("WRONGTYPE") || is_rate,
                "{}: {reply}",
                shown_words(&words)
            );
        }
    }
    before.assert_same(&Keyspace::of(&redis)?, "refused");
    assert_is_sound(&mut redis)
}
