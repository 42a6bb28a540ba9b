//! One connection that parses replies and measures every command.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::client::encode;
use crate::processor::Processor;
use crate::server::Server;

/// Long enough for a reply during a rebuild of a million sessions.
const REPLY_WAIT_MAX: Duration = Duration::from_secs(60);

/// The most CPU time of the server that a call may take.
pub(crate) const WORK_MAX: Duration = Duration::from_millis(5);

/// One RESP2 reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Text(String),
    Error(String),
    Integer(i64),
    Null,
    Array(Vec<Reply>),
}

impl Reply {
    /// The value of a field of a map, which RESP2 writes flat.
    pub(crate) fn field(&self, name: &str) -> Result<&Self> {
        self.items()
            .chunks(2)
            .find(|pair| pair[0].text() == name)
            .map(|pair| &pair[1])
            .with_context(|| format!("no field {name} in {self:?}"))
    }

    /// The items of an array.
    pub(crate) fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) => items,
            _ => &[],
        }
    }

    /// Text, or an empty string for any other reply.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Error(text) => text,
            _ => "",
        }
    }

    /// An integer.
    pub(crate) fn integer(&self) -> Result<i64> {
        match self {
            Self::Integer(number) => Ok(*number),
            other => bail!("no integer: {other:?}"),
        }
    }
}

/// The times of the commands of one name, as measured by the caller.
#[derive(Clone, Copy, Default)]
pub(crate) struct Taken {
    pub(crate) count: u64,
    pub(crate) longest: Duration,
    /// The longest CPU time of the server's thread from the request to the reply.
    pub(crate) most_worked: Duration,
    /// How many calls took more than [`WORK_MAX`].
    pub(crate) over: u64,
}

/// A connection.
pub(crate) struct Talk {
    stream: BufReader<TcpStream>,
    processor: Processor,
    /// By the command's name.
    pub(crate) taken: BTreeMap<String, Taken>,
}

impl Talk {
    pub(crate) fn connect(server: &Server) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", server.port()))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_WAIT_MAX))?;
        Ok(Self {
            stream: BufReader::with_capacity(1 << 20, stream),
            processor: Processor::of(server.id())?,
            taken: BTreeMap::new(),
        })
    }

    /// One command, whose words have no spaces; an error reply is an error here.
    pub(crate) fn ask(&mut self, command: &str) -> Result<Reply> {
        let reply = self.try_ask(command)?;
        ensure!(!matches!(reply, Reply::Error(_)), "{command}: {reply:?}");
        Ok(reply)
    }

    /// The same, but an error is returned as a reply.
    pub(crate) fn try_ask(&mut self, command: &str) -> Result<Reply> {
        let words: Vec<&str> = command.split(' ').collect();
        let request = encode(&words);
        let worked_before = self.processor.so_far()?;
        let started = Instant::now();
        self.stream.get_mut().write_all(&request)?;
        let reply = self.read()?;
        let elapsed = started.elapsed();
        let worked = self.processor.so_far()?.saturating_sub(worked_before);
        let taken = self.taken.entry(words[0].to_owned()).or_default();
        taken.count += 1;
        taken.longest = taken.longest.max(elapsed);
        taken.most_worked = taken.most_worked.max(worked);
        taken.over += u64::from(worked > WORK_MAX);
        Ok(reply)
    }

    /// Sends many commands in one write and returns their replies. Their time is not measured.
    pub(crate) fn ask_many(&mut self, commands: &[String]) -> Result<Vec<Reply>> {
        let mut request = Vec::new();
        for command in commands {
            let words: Vec<&str> = command.split(' ').collect();
            request.extend_from_slice(&encode(&words));
        }
        self.stream.get_mut().write_all(&request)?;
        let replies: Vec<Reply> = commands
            .iter()
            .map(|_| self.read())
            .collect::<Result<_>>()?;
        let refused = replies
            .iter()
            .position(|reply| matches!(reply, Reply::Error(_)));
        if let Some(place) = refused {
            bail!("{}: {:?}", commands[place], replies[place]);
        }
        Ok(replies)
    }

    fn read(&mut self) -> Result<Reply> {
        let mut line = String::new();
        self.stream.read_line(&mut line).context("a reply")?;
        ensure!(line.len() > 2, "the server closed the connection");
        let (kind, rest) = line.trim_end().split_at(1);
        let number = || -> Result<i64> { rest.parse().with_context(|| format!("reply {line:?}")) };
        Ok(match kind {
            "+" => Reply::Text(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Integer(number()?),
            "$" => match usize::try_from(number()?) {
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.stream.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Reply::Text(String::from_utf8_lossy(&bytes).into_owned())
                }
                Err(_) => Reply::Null,
            },
            "*" => match number()? {
                -1 => Reply::Null,
                count => Reply::Array((0..count).map(|_| self.read()).collect::<Result<_>>()?),
            },
            _ => bail!("reply {line:?}"),
        })
    }
}
