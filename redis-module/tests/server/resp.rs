//! A connection that speaks RESP2 or RESP3 and shows replies as they are on the wire, but for the name of the request,
//! which is taken off every reply after it was compared with what was sent.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, bail};
use mooring_session::RequestDigest;
use mooring_tests::redis::Redis;

const REPLY_WITHIN: Duration = Duration::from_secs(60);

/// Integers from here on are moments or numbers made from moments, which no test can know.
const MOMENT: i64 = 1_000_000_000_000;

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(Vec<u8>),
    Status(String),
    Error(String),
    Integer(i64),
    Null,
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

/// Shows the reply on one line: maps in braces, arrays in brackets, moments as `#`.
impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(bytes) => write!(formatter, "{}", bytes.escape_ascii()),
            Self::Status(text) | Self::Error(text) => write!(formatter, "{text}"),
            Self::Integer(moment) if *moment >= MOMENT => write!(formatter, "#"),
            Self::Integer(number) => write!(formatter, "{number}"),
            Self::Null => write!(formatter, "null"),
            Self::Array(values) => {
                write!(formatter, "[")?;
                for (place, value) in values.iter().enumerate() {
                    let comma = if place == 0 { "" } else { ", " };
                    write!(formatter, "{comma}{value}")?;
                }
                write!(formatter, "]")
            }
            Self::Map(pairs) => {
                write!(formatter, "{{")?;
                for (place, (name, value)) in pairs.iter().enumerate() {
                    let comma = if place == 0 { "" } else { ", " };
                    write!(formatter, "{comma}{name}: {value}")?;
                }
                write!(formatter, "}}")
            }
        }
    }
}

impl Value {
    /// The value of a map's field; flat arrays are taken for maps.
    pub(super) fn field(&self, name: &str) -> &Value {
        let is_name = |value: &Value| *value == Value::Text(name.as_bytes().to_vec());
        match self {
            Self::Map(pairs) => pairs
                .iter()
                .find(|(field, _)| is_name(field))
                .map(|(_, v)| v),
            Self::Array(flat) => flat
                .chunks(2)
                .find(|pair| is_name(&pair[0]))
                .map(|pair| &pair[1]),
            _ => None,
        }
        .unwrap_or_else(|| panic!("no field {name} in {self}"))
    }

    /// Takes off the name of the request: the first field of a map, or the end of an error.
    pub(super) fn take_request(&mut self) -> Option<String> {
        let is_field = |value: &Value| *value == Value::Text(b"request".to_vec());
        let digest = match self {
            Self::Map(pairs) => {
                let is_named = pairs.first().is_some_and(|(field, _)| is_field(field));
                is_named.then(|| pairs.remove(0).1)
            }
            Self::Array(flat) => {
                let is_named = flat.len() > 1 && is_field(&flat[0]);
                is_named.then(|| flat.drain(..2).next_back().expect("a field has a value"))
            }
            Self::Error(text) => {
                let (before, name) = text.rsplit_once(" (request ")?;
                let digest = name.strip_suffix(')')?.to_owned();
                *text = before.to_owned();
                return Some(digest);
            }
            _ => None,
        };
        digest.map(|digest| digest.to_string())
    }

    /// The same of the replies in that of EXEC or of a script.
    fn take_requests_inside(&mut self) {
        if let Self::Array(values) = self {
            for value in values {
                value.take_request();
            }
        }
    }

    pub(super) fn integer(&self) -> i64 {
        match self {
            Self::Integer(number) => *number,
            other => panic!("no integer: {other}"),
        }
    }
}

/// One connection.
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// A connection that speaks RESP2.
    pub(super) fn open(redis: &Redis) -> anyhow::Result<Self> {
        Self::open_at(redis.port())
    }

    /// The same to a port of 127.0.0.1.
    pub(super) fn open_at(port: u16) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("connect")?;
        Self::over(BufReader::new(stream))
    }

    /// A connection over a stream that stands before a reply.
    pub(super) fn over(stream: BufReader<TcpStream>) -> anyhow::Result<Self> {
        stream.get_ref().set_read_timeout(Some(REPLY_WITHIN))?;
        Ok(Self { stream })
    }

    /// A connection that speaks RESP3.
    pub(super) fn open_resp3(redis: &Redis) -> anyhow::Result<Self> {
        let mut connection = Self::open(redis)?;
        connection.run("HELLO 3")?;
        Ok(connection)
    }

    /// Runs a command whose words have no spaces.
    pub(super) fn run(&mut self, command: &str) -> anyhow::Result<Value> {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        self.send(&words)
    }

    /// Runs a command and shows its reply.
    pub(super) fn show(&mut self, command: &str) -> anyhow::Result<String> {
        Ok(self.run(command)?.to_string())
    }

    /// Runs a command of any bytes.
    pub(super) fn send(&mut self, words: &[&[u8]]) -> anyhow::Result<Value> {
        self.say(words)?;
        self.read_reply_to(words)
    }

    /// The reply to a command, which names no request but this one. That of a script names what the script asked.
    fn read_reply_to(&mut self, words: &[&[u8]]) -> anyhow::Result<Value> {
        let mut reply = self.read_whole()?;
        let is_script = words[0].eq_ignore_ascii_case(b"EVAL");
        if let Some(named) = reply.take_request()
            && !is_script
        {
            let sent = RequestDigest::of(words.iter().copied()).to_string();
            assert_eq!(named, sent, "{words:?}: the reply names another request");
        }
        reply.take_requests_inside();
        Ok(reply)
    }

    /// Sends a command and waits for no reply.
    pub(super) fn say(&mut self, words: &[&[u8]]) -> anyhow::Result<()> {
        Ok(self.stream.get_mut().write_all(&encoded(words))?)
    }

    /// Sends commands in one go, and waits for no reply.
    pub(super) fn say_all(&mut self, commands: &[&[&[u8]]]) -> anyhow::Result<()> {
        let all: Vec<u8> = commands.iter().flat_map(|words| encoded(words)).collect();
        Ok(self.stream.get_mut().write_all(&all)?)
    }

    /// Runs many commands whose words have no spaces, in one go.
    pub(super) fn run_all(&mut self, commands: &[String]) -> anyhow::Result<Vec<Value>> {
        let words = |command: &String| -> Vec<u8> {
            let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
            encoded(&words)
        };
        let all: Vec<u8> = commands.iter().flat_map(words).collect();
        self.stream.get_mut().write_all(&all)?;
        commands
            .iter()
            .map(|command| {
                let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
                self.read_reply_to(&words)
            })
            .collect()
    }

    /// Sends commands in one go, and reads their replies.
    pub(super) fn pipeline<const N: usize>(
        &mut self,
        commands: [&[&[u8]]; N],
    ) -> anyhow::Result<[Value; N]> {
        let all: Vec<u8> = commands.iter().flat_map(|words| encoded(words)).collect();
        self.stream.get_mut().write_all(&all)?;
        let replies: Vec<Value> = (0..N).map(|_| self.read()).collect::<Result<_, _>>()?;
        Ok(replies.try_into().expect("one reply each"))
    }

    /// Runs a command of any bytes in a transaction of its own that is sent in one go: the answer of EXEC.
    pub(super) fn transaction(&mut self, words: &[&[u8]]) -> anyhow::Result<Value> {
        let [_, _, done] = self.pipeline([&[b"MULTI"], words, &[b"EXEC"]])?;
        Ok(done)
    }

    /// Reads one more reply, to whatever was sent.
    pub(super) fn read(&mut self) -> anyhow::Result<Value> {
        let mut reply = self.read_whole()?;
        reply.take_request();
        reply.take_requests_inside();
        Ok(reply)
    }

    /// The same as it is on the wire.
    pub(super) fn read_whole(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        self.stream.read_line(&mut line).context("read a reply")?;
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).context("an empty reply")?;
        let number = || {
            rest.parse::<i64>()
                .with_context(|| format!("reply {line:?}"))
        };
        let many = |count: i64| usize::try_from(count).unwrap_or(0);
        Ok(match kind {
            "+" => Value::Status(rest.to_owned()),
            "-" => Value::Error(rest.to_owned()),
            ":" => Value::Integer(number()?),
            "_" => Value::Null,
            "$" | "=" => match number()? {
                -1 => Value::Null,
                length => {
                    let mut text = vec![0; many(length) + 2];
                    self.stream.read_exact(&mut text)?;
                    text.truncate(many(length));
                    if kind == "=" {
                        // A verbatim string says its format first: `txt:`.
                        text.drain(..4);
                    }
                    Value::Text(text)
                }
            },
            "*" | "~" | ">" => match number()? {
                -1 => Value::Null,
                count => Value::Array(
                    (0..count)
                        .map(|_| self.read_whole())
                        .collect::<Result<_, _>>()?,
                ),
            },
            "%" => Value::Map(
                (0..number()?)
                    .map(|_| Ok((self.read_whole()?, self.read_whole()?)))
                    .collect::<anyhow::Result<_>>()?,
            ),
            _ => bail!("reply {line:?}"),
        })
    }
}

/// A command as it goes over the wire.
fn encoded(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
