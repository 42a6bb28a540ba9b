//! The stream of commands that a primary sends to its replicas, read as a replica reads it.
//!
//! Invariant: nothing that the primary sends is skipped silently, but for its pings and the choice of a database.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use anyhow::{Context, ensure};
use mooring_tests::redis::Redis;

use super::resp::{Connection, Value};

/// Writes that mark a place in the stream go to this key.
const MARKER: &str = "marker";

/// A replica's end of the stream.
pub(super) struct Stream {
    from_primary: Connection,
    to_primary: Connection,
    marks: u64,
}

/// One command as it was sent: its words.
pub(super) type Sent = Vec<String>;

impl Stream {
    /// Follows `primary` from now on. What it holds already is thrown away.
    pub(super) fn of(primary: &Redis) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", primary.port())).context("connect")?;
        let mut stream = BufReader::new(stream);
        stream.get_mut().write_all(b"SYNC\r\n")?;
        // While the snapshot is being made, the primary keeps the connection alive by empty lines.
        let mut line = String::new();
        while line.trim_end().is_empty() {
            line.clear();
            ensure!(stream.read_line(&mut line)? > 0, "the primary hung up");
        }
        let length = line.trim_end().strip_prefix('$');
        let length = length.and_then(|length| length.parse().ok());
        let length = length.with_context(|| format!("a snapshot's length: {line:?}"))?;
        std::io::copy(&mut stream.by_ref().take(length), &mut std::io::sink())?;
        Ok(Self {
            from_primary: Connection::over(stream)?,
            to_primary: Connection::open(primary)?,
            marks: 0,
        })
    }

    /// What the primary has sent since the last call.
    pub(super) fn sent(&mut self) -> anyhow::Result<Vec<Sent>> {
        self.marks += 1;
        let mark = ["SET".to_owned(), MARKER.to_owned(), self.marks.to_string()];
        self.to_primary.run(&mark.join(" "))?;
        let mut sent = Vec::new();
        loop {
            let Value::Array(words) = self.from_primary.read()? else {
                anyhow::bail!("a command is an array");
            };
            let words: Sent = words.iter().map(Value::to_string).collect();
            if words == mark {
                return Ok(sent);
            }
            if !matches!(words[0].as_str(), "SELECT" | "PING") {
                sent.push(words);
            }
        }
    }

    /// The names of the commands sent since the last call.
    pub(super) fn names(&mut self) -> anyhow::Result<Vec<String>> {
        Ok(self
            .sent()?
            .into_iter()
            .map(|mut words| words.remove(0))
            .collect())
    }
}
