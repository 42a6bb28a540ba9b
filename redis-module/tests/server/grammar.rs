//! Arity, options and integers of every command, from what COMMAND DOCS tells of it: a command that is new is tested
//! as soon as it is in the table.

use mooring_tests::redis::Redis;

use super::resp::{Connection, Value};

/// One argument with the words it is written by.
struct Argument {
    /// Where its integers are among its words.
    integers: Vec<usize>,
    /// Whether it begins with a word of its own.
    has_token: bool,
    is_optional: bool,
    is_multiple: bool,
    words: Vec<String>,
}

/// Something that the argument of this name or behind this word may be.
fn sample(head: &str) -> &str {
    match head {
        "key" => "mcpgw:session_affinity:s1",
        "STATE" => "active",
        "ORDER" => "newest",
        "MATCH" => "*",
        "CURSOR" => "0",
        "DIGEST" => "0000",
        "ms" | "TTL" | "LEASE" | "WINDOW" => "1000",
        "TIMEOUT" => "10",
        "n" | "INSTANCES" | "COUNT" | "HELD" | "CAP" | "LIMIT" | "COST" => "1",
        "epoch" | "gen" | "turn" => "1",
        _ => "x",
    }
}

fn array(value: &Value) -> &[Value] {
    match value {
        Value::Array(values) => values,
        other => panic!("no array: {other}"),
    }
}

fn optional<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    let Value::Map(pairs) = map else {
        panic!("no map: {map}");
    };
    let named = pairs.iter().find(|(field, _)| field.to_string() == name);
    named.map(|(_, value)| value)
}

impl Argument {
    fn of(docs: &Value) -> Self {
        let text = |name| optional(docs, name).map(Value::to_string);
        let flags = optional(docs, "flags")
            .map(Value::to_string)
            .unwrap_or_default();
        let (name, token) = (text("name").unwrap_or_default(), text("token"));
        let mut words: Vec<String> = token.iter().cloned().collect();
        let mut integers = Vec::new();
        let kind = text("type").unwrap_or_default();
        match kind.as_str() {
            "pure-token" => {}
            "block" => {
                for part in array(docs.field("arguments")) {
                    let part = Self::of(part);
                    let start = words.len();
                    integers.extend(part.integers.iter().map(|place| start + place));
                    words.extend(part.words);
                }
            }
            _ => {
                if kind == "integer" {
                    integers.push(words.len());
                }
                let by_token = token.as_deref().map_or("x", sample);
                let by_name = sample(&name);
                let word = if by_token == "x" { by_name } else { by_token };
                words.push(word.to_owned());
            }
        }
        Self {
            integers,
            has_token: token.is_some(),
            is_optional: flags.contains("optional"),
            is_multiple: flags.contains("multiple"),
            words,
        }
    }
}

/// One command with its arguments.
pub(super) struct Grammar {
    /// Its name in lower case.
    pub(super) name: String,
    arity: i64,
    arguments: Vec<Argument>,
}

impl Grammar {
    /// The command with all arguments but one, whose words are others.
    fn line(&self, changed: usize, words: &[String]) -> Vec<String> {
        let mut line = vec![self.name.clone()];
        for (place, argument) in self.arguments.iter().enumerate() {
            let own = if place == changed {
                words
            } else {
                &argument.words
            };
            line.extend(own.iter().cloned());
        }
        line
    }

    /// The command with all its arguments.
    pub(super) fn whole(&self) -> Vec<String> {
        self.line(usize::MAX, &[])
    }
}

/// The argument as it is with each of its alternatives.
fn alternatives(docs: &Value) -> &[Value] {
    match docs.field("type").to_string().as_str() {
        "oneof" => array(docs.field("arguments")),
        _ => std::slice::from_ref(docs),
    }
}

/// The grammars of all commands, as COMMAND DOCS tells them: one for each alternative of an argument.
pub(super) fn grammars(c: &mut Connection) -> anyhow::Result<Vec<Grammar>> {
    let mut all = Vec::new();
    let names = c.run("COMMAND LIST FILTERBY MODULE mooring")?;
    for name in array(&names) {
        let name = name.to_string();
        let info = c.run(&format!("COMMAND INFO {name}"))?;
        let docs = c.run(&format!("COMMAND DOCS {name}"))?;
        let arguments = optional(docs.field(&name), "arguments").map_or(&[][..], array);
        let many = arguments
            .iter()
            .map(|argument| alternatives(argument).len());
        for n in 0..many.max().unwrap_or(1) {
            let chosen = arguments.iter().map(|argument| {
                let alternatives = alternatives(argument);
                let chosen = Argument::of(&alternatives[n % alternatives.len()]);
                Argument {
                    is_optional: chosen.is_optional || alternatives.len() > 1,
                    ..chosen
                }
            });
            all.push(Grammar {
                name: name.clone(),
                arity: array(&array(&info)[0])[1].integer(),
                arguments: chosen.collect(),
            });
        }
    }
    assert!(all.len() >= 14, "the module's commands");
    Ok(all)
}

fn send(c: &mut Connection, line: &[String]) -> anyhow::Result<String> {
    let words: Vec<&[u8]> = line.iter().map(|word| word.as_bytes()).collect();
    Ok(c.send(&words)?.to_string())
}

/// Runs a line that has to be refused with this beginning, and to leave no key behind.
fn refused(c: &mut Connection, line: &[String], with: &str) -> anyhow::Result<()> {
    let shown = send(c, line)?;
    assert!(shown.starts_with(with), "{line:?}: {shown}; not {with}");
    assert_eq!(c.show("DBSIZE")?, "0", "{line:?}");
    Ok(())
}

#[tokio::test]
async fn words_that_are_missing_or_too_many_are_refused() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    for grammar in grammars(&mut c)? {
        let whole = grammar.whole();
        let least = usize::try_from(grammar.arity.abs())?;
        for length in 1..least {
            refused(&mut c, &whole[..length], "ERR wrong number of arguments")?;
        }
        let more = [&whole[..], &["NOPE".to_owned()]].concat();
        if grammar.arity > 0 {
            assert_eq!(whole.len(), least, "{}", grammar.name);
            refused(&mut c, &more, "ERR wrong number of arguments")?;
        } else {
            refused(&mut c, &more, "ERR syntax error near 'NOPE'")?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn options_are_refused_twice_and_without_their_values() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    for grammar in grammars(&mut c)? {
        let whole = grammar.whole();
        for (place, argument) in grammar.arguments.iter().enumerate() {
            if !argument.has_token {
                continue;
            }
            let token = &argument.words[0];
            if !argument.is_multiple && grammar.arity < 0 {
                let lower = token.to_lowercase();
                let again = [
                    &whole[..],
                    std::slice::from_ref(&lower),
                    &argument.words[1..],
                ]
                .concat();
                refused(&mut c, &again, &format!("ERR syntax error near '{lower}'"))?;
            }
            // At the end, so that what is missing is not taken from what follows.
            let without = grammar.line(place, &[]);
            let arity = usize::try_from(grammar.arity.abs())?;
            for length in 1..argument.words.len() {
                let short = [&without[..], &argument.words[..length]].concat();
                let expected = if short.len() < arity {
                    "ERR wrong number of arguments".to_owned()
                } else {
                    "ERR syntax error".to_owned()
                };
                refused(&mut c, &short, &expected)?;
            }
            if !argument.is_optional && without.len() >= arity {
                refused(&mut c, &without, "ERR syntax error")?;
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn integers_are_integers_within_their_range() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let mut count = 0;
    for grammar in grammars(&mut c)? {
        for (place, argument) in grammar.arguments.iter().enumerate() {
            for integer in &argument.integers {
                for bad in [
                    "-1",
                    "x",
                    "",
                    "1.5",
                    "0x1",
                    "+1",
                    " 1",
                    "9223372036854775808",
                ] {
                    let mut words = argument.words.clone();
                    words[*integer] = bad.to_owned();
                    refused(&mut c, &grammar.line(place, &words), "ERR invalid ")?;
                }
                count += 1;
            }
        }
    }
    assert!(count >= 10, "integers were found: {count}");
    Ok(())
}

/// The other tests would show nothing if their lines were refused for another reason than the one they mean.
#[tokio::test]
async fn every_command_takes_all_its_arguments_at_once() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    for grammar in grammars(&mut c)? {
        c.run("FLUSHALL")?;
        let shown = send(&mut c, &grammar.whole())?;
        let is_taken = ["ERR", "WRONGTYPE", "unknown"]
            .iter()
            .all(|word| !shown.starts_with(word));
        assert!(is_taken, "{:?}: {shown}", grammar.whole());
    }
    Ok(())
}
