//! Records that somebody edited by hand, or wrote half: each is told by name or still means something; a refusal
//! leaves it as it was, a success leaves a record that reads.

use std::fmt;

use anyhow::Context;
use mooring_tests::redis::{Module, Redis};

use super::hostile::every_word;
use super::keyspace::{Keyspace, hold_still};
use super::resp::{Connection, Value};
use super::traffic::grammar::Grammar;
use super::traffic::{check, shown_words};

const SOUND: &str = "mcpgw:sound";
const KEY: &str = "mcpgw:edited";

/// Values that no field has: nothing, garbage, and numbers at the edges of what a number can be.
const VALUES: [&[u8]; 12] = [
    b"",
    b" ",
    b"-",
    b"%s%n",
    b"\xff\x00",
    b"-1",
    b"0",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"2 2 active 1 1 1 1",
];

/// A record with something in every field that there is.
fn make_sound(c: &mut Connection) -> anyhow::Result<()> {
    let tail = "LEASE 600000 INSTANCES 2 one two";
    c.run(&format!(
        "SESSION.CREATE {SOUND} s1 zoe TTL 900000 HASH h LABEL a 1"
    ))?;
    c.run(&format!(
        "SESSION.BIND {SOUND} zoe owned w1:1 t {tail} UPSTREAM u OWNED"
    ))?;
    c.run(&format!("SESSION.BIND {SOUND} zoe claimed w1:1 t {tail}"))?;
    let bind = format!("SESSION.BIND {SOUND} zoe moved w1:1 t {tail} UPSTREAM u");
    let epoch = c.run(&bind)?.field("epoch").integer();
    let rebind = format!("SESSION.REBIND {SOUND} zoe moved {epoch} w1:1 t2 {tail} REASON why");
    assert_eq!(c.run(&rebind)?.field("won").integer(), 1);
    // An expired session has a worker's cleaning lease beside it; here it stands on one in use, which no command does.
    c.run(&format!("HSET {SOUND} unknown kept"))?;
    c.send(&[b"HSET", SOUND.as_bytes(), b"z", b"9999999999999 w1:1"])?;
    Ok(())
}

/// One way to break a record: fields to set and to delete.
struct Edit {
    set: Vec<(Vec<u8>, Vec<u8>)>,
    delete: Vec<Vec<u8>>,
}

/// Every field dropped, doubled, replaced, and each of its words replaced.
fn edits(fields: &[(Vec<u8>, Vec<u8>)]) -> Vec<Edit> {
    let mut edits = Vec::new();
    let mut set = |field: &Vec<u8>, value: Vec<u8>| {
        edits.push(Edit {
            set: vec![(field.clone(), value)],
            delete: Vec::new(),
        });
    };
    for (field, value) in fields {
        set(field, [value.as_slice(), b" ", value].concat());
        set(field, [b"v".as_slice(), value].concat());
        set(field, vec![b'x'; 5_000]);
        let words: Vec<&[u8]> = value.split(|byte| *byte == b' ').collect();
        for replacement in VALUES {
            set(field, replacement.to_vec());
            for place in 0..words.len() {
                let mut edited = words.clone();
                edited[place] = replacement;
                set(field, edited.join(&b' '));
            }
        }
    }
    for (place, (field, _)) in fields.iter().enumerate() {
        // This one alone, and this one with all that follow: a write that stopped half way.
        let rest = fields[place..].iter().map(|(field, _)| field.clone());
        for delete in [vec![field.clone()], rest.collect()] {
            edits.push(Edit {
                set: Vec::new(),
                delete,
            });
        }
    }
    edits
}

impl Edit {
    fn apply(&self, c: &mut Connection) -> anyhow::Result<()> {
        c.run(&format!("COPY {SOUND} {KEY} REPLACE"))?;
        for (field, value) in &self.set {
            c.send(&[b"HSET", KEY.as_bytes(), field, value])?;
        }
        for field in &self.delete {
            c.send(&[b"HDEL", KEY.as_bytes(), field])?;
        }
        Ok(())
    }
}

/// Shows what is broken.
impl fmt::Display for Edit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (field, value) in &self.set {
            write!(
                formatter,
                "set {}={} ",
                field.escape_ascii(),
                value.escape_ascii()
            )?;
        }
        for field in &self.delete {
            write!(formatter, "without {} ", field.escape_ascii())?;
        }
        Ok(())
    }
}

fn digest(c: &mut Connection) -> anyhow::Result<String> {
    c.show(&format!("DEBUG DIGEST-VALUE {KEY}"))
}

/// The commands that take a key, about the edited one: as its principal, and to each of its bindings.
fn commands(c: &mut Connection) -> anyhow::Result<Vec<Vec<Vec<u8>>>> {
    let mut commands = Vec::new();
    for grammar in Grammar::of_module(c)?
        .iter()
        .filter(|grammar| grammar.has_key())
    {
        for server in ["owned", "claimed", "moved", "none"] {
            let mut words = every_word(grammar);
            for word in &mut words {
                let named: &[u8] = match word.as_slice() {
                    b"mcpgw:hostile" => KEY.as_bytes(),
                    b"id1" => b"s1",
                    b"principal1" => b"zoe",
                    b"server1" => server.as_bytes(),
                    b"worker1" => b"w1:1",
                    b"token1" => b"t",
                    b"instance1" => b"one",
                    _ => continue,
                };
                *word = named.to_vec();
            }
            if !commands.contains(&words) {
                commands.push(words);
            }
        }
    }
    Ok(commands)
}

fn fields_of(c: &mut Connection) -> anyhow::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let Value::Array(flat) = c.run(&format!("HGETALL {SOUND}"))? else {
        anyhow::bail!("HGETALL is an array");
    };
    let mut texts = flat.into_iter().map(|value| match value {
        Value::Text(text) => Ok(text),
        other => anyhow::bail!("no text: {other}"),
    });
    let mut fields = Vec::new();
    while let (Some(field), Some(value)) = (texts.next(), texts.next()) {
        fields.push((field?, value?));
    }
    Ok(fields)
}

#[tokio::test]
async fn an_edited_record_is_told_or_still_reads() -> anyhow::Result<()> {
    // A replica without the module that stops at the first command it cannot repeat.
    let mut redis = Redis::start().await?;
    let strict = ["--propagation-error-behavior", "panic"];
    let mut replica = Redis::start_replica(&redis, Module::Absent, &strict).await?;
    let mut c = Connection::open(&redis)?;
    make_sound(&mut c)?;
    let commands = commands(&mut c)?;
    let fields = fields_of(&mut c)?;
    let (mut refused, mut taken) = (0, 0);
    for edit in edits(&fields) {
        for words in &commands {
            edit.apply(&mut c)?;
            let before = digest(&mut c)?;
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let reply = c.send(&words)?;
            let what = || format!("{edit}: {} {reply}", shown_words(&words));
            check(&reply).with_context(what)?;
            if let Value::Error(text) = &reply {
                refused += 1;
                assert_eq!(digest(&mut c)?, before, "{}", what());
                assert!(!text.contains("zoe"), "a value is repeated: {}", what());
            } else if c.show(&format!("EXISTS {KEY}"))? == "1" && digest(&mut c)? != before {
                taken += 1;
                // ROUTE reads three fields only, so it may use a record that others name as corrupt; and where no field
                // is left, a rate may begin.
                let is_other = [b"session.route".as_slice(), b"session.rate"].contains(&words[0]);
                let read = c.run(&format!("SESSION.GET {KEY}"))?;
                assert!(
                    is_other || !matches!(read, Value::Error(_)),
                    "{}: {read}",
                    what()
                );
            }
        }
    }
    assert!(
        refused > 1_000 && taken > 100,
        "{refused} refused, {taken} taken"
    );
    hold_still(&redis)?;
    c.run("INCR fence")?;
    assert_eq!(c.show("WAIT 1 20000")?, "1");
    Keyspace::of(&redis)?.assert_same(&Keyspace::of(&replica)?, "the replica");
    for server in [&mut redis, &mut replica] {
        assert!(
            server.process().exit_status()?.is_none(),
            "the server ended"
        );
        assert!(!server.process().log_text().contains("internal error"));
    }
    Ok(())
}

/// Numbers only grow, and no key takes away from the others where they can grow to.
#[tokio::test]
async fn a_number_of_no_clock_does_not_stop_the_numbers_of_other_sessions() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    make_sound(&mut c)?;
    for place in 0..2 {
        for number in ["9223372036854775806", "18446744073709551615"] {
            c.run(&format!("COPY {SOUND} {KEY} REPLACE"))?;
            let identity = c.run(&format!("HGET {SOUND} id"))?.to_string();
            let mut words: Vec<&str> = identity.split(' ').collect();
            words[place] = number;
            c.send(&[b"HSET", KEY.as_bytes(), b"id", words.join(" ").as_bytes()])?;
            c.run(&format!("SESSION.END {KEY} zoe"))?;
            c.run(&format!("SESSION.CLAIM {KEY} w1:1 LEASE 1000"))?;
            let generation = c.run(&format!("SESSION.GET {KEY}"))?.field("gen").clone();
            c.run(&format!("SESSION.FORGET {KEY} {generation} w1:1"))?;
            let create = "SESSION.CREATE mcpgw:other s2 zoe TTL 900000";
            let first = c.run(create)?.field("gen").integer();
            let bind = "SESSION.BIND mcpgw:other zoe tools w1:1 t LEASE 1000 INSTANCES 1 one";
            let epoch = c.run(bind)?.field("epoch").integer();
            c.run("SESSION.END mcpgw:other zoe")?;
            let second = c.run(create)?.field("gen").integer();
            let epoch_after = c.run(bind)?.field("epoch").integer();
            assert!(first < second && epoch < epoch_after, "{words:?}");
            assert_eq!(c.show("DEL mcpgw:other")?, "1");
        }
    }
    Ok(())
}
