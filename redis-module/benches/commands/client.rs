//! Many connections, one thread: writes to all of them, then reads from all of them.
//!
//! Replies are counted by their bytes. All replies of a variant have the same length, which is that of one complete
//! reply; a reply of another length causes a timeout or surplus bytes, and ends the benchmark.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::workload::{Batch, Requests, Variant};

/// Long enough for a replica to catch up.
const REPLY_WAIT_MAX: Duration = Duration::from_secs(60);
/// Commands of a setup in one write.
const SENT_AT_ONCE: usize = 500;

pub(crate) struct Client {
    connections: Vec<TcpStream>,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(port: u16, count: usize) -> Result<Self> {
        let connect = |_| -> Result<TcpStream> {
            let connection = TcpStream::connect(("127.0.0.1", port))?;
            connection.set_nodelay(true)?;
            connection.set_read_timeout(Some(REPLY_WAIT_MAX))?;
            Ok(connection)
        };
        Ok(Self {
            connections: (0..count).map(connect).collect::<Result<_>>()?,
            buffer: vec![0; 1 << 20],
        })
    }

    /// One command and its reply as text.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Result<String> {
        self.connections[0].write_all(&encode(words))?;
        let text = self.reply()?;
        ensure!(!text.starts_with('-'), "{words:?}: {text}");
        Ok(text)
    }

    fn reply(&mut self) -> Result<String> {
        let mut reply = Vec::new();
        loop {
            let length = self.connections[0].read(&mut self.buffer)?;
            ensure!(length > 0, "the server closed the connection");
            reply.extend_from_slice(&self.buffer[..length]);
            if let Some(end) = reply_end(&reply) {
                ensure!(end == reply.len(), "more than one reply");
                return Ok(String::from_utf8(reply)?);
            }
        }
    }

    /// Empties the server, and creates the data of the operations. Returns the digest of the variant's script.
    pub(crate) fn prepare(&mut self, variant: &Variant, operations: usize) -> Result<String> {
        self.ask(&["FLUSHALL", "SYNC"])?;
        for commands in variant.setup(operations).chunks(SENT_AT_ONCE) {
            let mut bytes = Vec::new();
            for command in commands {
                let words: Vec<&str> = command.iter().map(String::as_str).collect();
                bytes.extend_from_slice(&encode(&words));
            }
            self.connections[0].write_all(&bytes)?;
            count_replies(&mut self.connections[0], commands.len())?;
        }
        let Some(script) = variant.script() else {
            return Ok(String::new());
        };
        let digest = self.ask(&["SCRIPT", "LOAD", script])?;
        let digest = digest
            .lines()
            .nth(1)
            .context("SCRIPT LOAD gave no digest")?;
        Ok(digest.to_owned())
    }

    /// The reply to one operation, with times masked.
    pub(crate) fn answer(&mut self, variant: &Variant) -> Result<String> {
        let script = self.prepare(variant, 1)?;
        let requests = variant.requests(&script, 1, 1, 1);
        self.connections[0].write_all(&requests.turns()[0][0].bytes)?;
        let answer = self.reply()?;
        let is_moment =
            |line: &&str| line.len() > 13 && line[1..].bytes().all(|b| b.is_ascii_digit());
        let lines = answer
            .lines()
            .map(|line| if is_moment(&line) { "#" } else { line });
        Ok(lines.collect::<Vec<_>>().join(" "))
    }

    /// Sends all requests and waits for all replies.
    pub(crate) fn drive(&mut self, requests: &Requests) -> Result<Duration> {
        let started = Instant::now();
        let mut length = None;
        for turn in requests.turns() {
            for (connection, batch) in self.connections.iter_mut().zip(turn) {
                connection.write_all(&batch.bytes)?;
            }
            for (connection, batch) in self.connections.iter_mut().zip(turn) {
                match length {
                    Some(ReplyLength::Bytes(each)) => {
                        read_bytes(connection, &mut self.buffer, each * batch.operations)?;
                    }
                    Some(ReplyLength::Line) => {
                        read_lines(connection, &mut self.buffer, batch.replies)?;
                    }
                    None => length = Some(read_replies(connection, batch)?),
                }
            }
        }
        Ok(started.elapsed())
    }
}

/// The length of the replies to one operation.
#[derive(Clone, Copy)]
enum ReplyLength {
    Bytes(usize),
    /// Integers, of any length.
    Line,
}

/// Parses the replies to one batch, and returns the length of those of one operation.
fn read_replies(connection: &mut TcpStream, batch: &Batch) -> Result<ReplyLength> {
    let replies = count_replies(connection, batch.replies)?;
    if replies
        .split_inclusive(|byte| *byte == b'\n')
        .all(|line| line.starts_with(b":"))
    {
        return Ok(ReplyLength::Line);
    }
    let each = replies.len() / batch.operations;
    ensure!(
        each * batch.operations == replies.len(),
        "replies of different lengths: {}",
        String::from_utf8_lossy(&replies)
    );
    Ok(ReplyLength::Bytes(each))
}

/// Reads this many replies, none of which may be an error.
fn count_replies(connection: &mut TcpStream, expected: usize) -> Result<Vec<u8>> {
    let mut replies = Vec::new();
    let mut buffer = [0; 4096];
    let (mut position, mut count) = (0, 0);
    while count < expected {
        let length = connection.read(&mut buffer)?;
        ensure!(length > 0, "the server closed the connection");
        replies.extend_from_slice(&buffer[..length]);
        while let Some(end) = reply_end(&replies[position..]) {
            position += end;
            count += 1;
        }
    }
    let text = String::from_utf8_lossy(&replies);
    ensure!(!text.contains("\r\n-") && !text.starts_with('-'), "{text}");
    ensure!(
        count == expected && position == replies.len(),
        "more replies than commands: {text}"
    );
    Ok(replies)
}

fn read_bytes(connection: &mut TcpStream, buffer: &mut [u8], mut count: usize) -> Result<()> {
    while count > 0 {
        let length = connection.read(buffer).context("a reply was too short")?;
        ensure!(length > 0, "the server closed the connection");
        match count.checked_sub(length) {
            Some(left) => count = left,
            None => bail!("a reply was too long"),
        }
    }
    Ok(())
}

fn read_lines(connection: &mut TcpStream, buffer: &mut [u8], mut count: usize) -> Result<()> {
    while count > 0 {
        let length = connection.read(buffer).context("a reply was too short")?;
        ensure!(length > 0, "the server closed the connection");
        let lines = buffer[..length]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        count = count
            .checked_sub(lines)
            .context("more replies than commands")?;
    }
    Ok(())
}

/// The end of the first complete RESP2 reply in `bytes`.
pub(crate) fn reply_end(bytes: &[u8]) -> Option<usize> {
    let line_end = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || -> Option<i64> {
        std::str::from_utf8(&bytes[1..line_end - 2])
            .ok()?
            .parse()
            .ok()
    };
    match bytes.first()? {
        b'$' => match usize::try_from(number()?) {
            Ok(length) => Some(line_end + length + 2).filter(|end| *end <= bytes.len()),
            Err(_) => Some(line_end),
        },
        b'*' => (0..number()?).try_fold(line_end, |position, _| {
            Some(position + reply_end(bytes.get(position..)?)?)
        }),
        _ => Some(line_end),
    }
}

/// A command in RESP.
pub(crate) fn encode(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}
