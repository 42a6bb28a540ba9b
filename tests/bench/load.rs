//! The load: k sessions, each making one call after another, every reply checked.
//!
//! Invariant: a figure is made of right answers only. A wrong id, a count that is not the next one or a status
//! other than 200 ends the benchmark, so a gateway cannot be fast by being wrong.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Deserialize;
use tokio::task::JoinSet;

use crate::wire::{Target, Wire, delete, expect_status, post};

/// Ids have seven digits throughout, so that every request of a session has the same length.
const FIRST_ID: u64 = 1_000_000;
const LAST_ID: u64 = 9_999_999;
const ID_DIGITS: usize = 7;

/// What the count in a reply has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    /// The session's own: one more than before.
    Own,
    /// Affinity is off, so the upstream session is shared: more than before.
    Shared,
}

/// What each call sends and gets back. The default is a few bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Call {
    /// Bytes of text in the arguments, and the same in the result.
    pub(crate) text_bytes: usize,
    /// Events before the result, which make the reply a stream.
    pub(crate) events: usize,
    /// How long the upstream waits before its reply.
    pub(crate) reply_after: Duration,
}

/// One client session over one keep-alive connection.
#[derive(Debug)]
pub(crate) struct Session {
    wire: Wire,
    target: Target,
    id: String,
    counting: Counting,
    request: Vec<u8>,
    request_id: u64,
    count: u64,
}

#[derive(Deserialize)]
struct CallReply {
    id: u64,
    result: CallResult,
}

#[derive(Deserialize)]
struct CallResult {
    #[serde(rename = "structuredContent")]
    structured_content: Counted,
}

/// What the upstream says in its reply.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Counted {
    pub(crate) count: u64,
    /// The port of the instance that answered.
    pub(crate) instance: u16,
}

const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
    r#""capabilities":{},"clientInfo":{"name":"mooring-bench","version":"1"}}}"#
);
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

impl Session {
    /// Connects and shakes hands.
    pub(crate) async fn open(target: &Target, counting: Counting) -> anyhow::Result<Self> {
        let mut wire = Wire::connect(target.address).await?;
        let id = Self::initialize(&mut wire, target).await?;
        Ok(Self {
            wire,
            target: target.clone(),
            request: post(target, Some(&id), &Call::default().text(FIRST_ID)),
            id,
            counting,
            request_id: FIRST_ID,
            count: 0,
        })
    }

    /// The same session with other calls.
    pub(crate) fn calling(mut self, call: Call) -> Self {
        self.request = post(&self.target, Some(&self.id), &call.text(FIRST_ID));
        self
    }

    /// The same session over a new connection to another endpoint of its server.
    pub(crate) async fn at(self, target: &Target) -> anyhow::Result<Self> {
        Ok(Self {
            wire: Wire::connect(target.address).await?,
            target: target.clone(),
            request: post(target, Some(&self.id), &Call::default().text(FIRST_ID)),
            ..self
        })
    }

    /// The same session over one more connection each to these endpoints of its server. What its counts are is the
    /// caller's to judge.
    pub(crate) async fn also_at(&self, targets: &[Target]) -> anyhow::Result<Vec<Self>> {
        let mut sessions = Vec::with_capacity(targets.len());
        for target in targets {
            sessions.push(Self {
                wire: Wire::connect(target.address).await?,
                target: target.clone(),
                id: self.id.clone(),
                counting: self.counting,
                request: post(target, Some(&self.id), &Call::default().text(FIRST_ID)),
                request_id: FIRST_ID,
                count: self.count,
            });
        }
        Ok(sessions)
    }

    /// The handshake of a new session over a connection that is there; the session's id.
    pub(crate) async fn initialize(wire: &mut Wire, target: &Target) -> anyhow::Result<String> {
        wire.send(&post(target, None, INITIALIZE)).await?;
        let reply = wire.reply().await.context("initialize")?;
        expect_status(&reply, 200).context("initialize")?;
        let id = reply.session.context("a session id")?;
        wire.send(&post(target, Some(&id), INITIALIZED)).await?;
        expect_status(&wire.reply().await?, 202).context("notifications/initialized")?;
        Ok(id)
    }

    /// One call, and its checked reply.
    pub(crate) async fn call(&mut self) -> anyhow::Result<Counted> {
        let counted = self.exchange().await?;
        let is_right = match self.counting {
            Counting::Own => counted.count == self.count + 1,
            Counting::Shared => counted.count > self.count,
        };
        ensure!(is_right, "count {} after {}", counted.count, self.count);
        self.count = counted.count;
        Ok(counted)
    }

    /// One call whose count is the caller's to judge: the instance may have changed.
    pub(crate) async fn exchange(&mut self) -> anyhow::Result<Counted> {
        ensure!(self.request_id < LAST_ID, "the session is out of ids");
        self.request_id += 1;
        // The id is what the message ends with, but for a brace.
        let id_at = self.request.len() - ID_DIGITS - 1;
        self.request.truncate(id_at);
        let end = format!("{}}}", self.request_id);
        self.request.extend_from_slice(end.as_bytes());
        self.wire.send(&self.request).await?;
        let reply = self.wire.reply().await?;
        expect_status(&reply, 200)?;
        let parsed: CallReply = serde_json::from_slice(&reply.message)
            .with_context(|| String::from_utf8_lossy(&reply.message).into_owned())?;
        ensure!(parsed.id == self.request_id, "the reply has another id");
        Ok(parsed.result.structured_content)
    }

    /// Ends the session.
    pub(crate) async fn close(mut self) -> anyhow::Result<()> {
        self.wire.send(&delete(&self.target, &self.id)).await?;
        let reply = self.wire.reply().await?;
        ensure!(
            reply.status == 200 || reply.status == 204,
            "DELETE: {}",
            reply.status
        );
        Ok(())
    }
}

impl Call {
    fn text(self, id: u64) -> String {
        let Self {
            text_bytes,
            events,
            reply_after,
        } = self;
        let arguments = match (text_bytes, events, reply_after) {
            (0, 0, Duration::ZERO) => String::new(),
            _ => format!(
                "\"events\":{events},\"reply_after_ms\":{},\"text\":\"{}\"",
                reply_after.as_millis(),
                "x".repeat(text_bytes)
            ),
        };
        format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\
             \"params\":{{\"name\":\"increment\",\"arguments\":{{{arguments}}}}},\"id\":{id}}}"
        )
    }
}

/// What one slice of time measured.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) calls_per_second: f64,
    /// In nanoseconds, sorted.
    pub(crate) latencies_ns: Vec<u32>,
}

/// Opens that many sessions, each over a connection of its own.
pub(crate) async fn open(
    target: &Target,
    counting: Counting,
    sessions: usize,
) -> anyhow::Result<Vec<Session>> {
    let mut open = Vec::with_capacity(sessions);
    for _ in 0..sessions {
        open.push(Session::open(target, counting).await?);
    }
    Ok(open)
}

/// Opens sessions one after another over one connection, and leaves them.
pub(crate) async fn open_idle(target: &Target, count: usize) -> anyhow::Result<()> {
    let mut wire = Wire::connect(target.address).await?;
    for number in 0..count {
        Session::initialize(&mut wire, target)
            .await
            .with_context(|| format!("session {number}"))?;
    }
    Ok(())
}

/// Drives the sessions for `length`, all at once, and gives them back. Each makes one call at least.
pub(crate) async fn drive(
    sessions: Vec<Session>,
    length: Duration,
) -> anyhow::Result<(Vec<Session>, Slice)> {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for session in sessions {
        tasks.spawn(call_until(session, started + length));
    }
    let mut latencies_ns = Vec::new();
    let mut sessions = Vec::with_capacity(tasks.len());
    while let Some(joined) = tasks.join_next().await {
        let (session, latencies) = joined.context("a session's task")??;
        latencies_ns.extend(latencies);
        sessions.push(session);
    }
    let elapsed = started.elapsed();
    latencies_ns.sort_unstable();
    let slice = Slice {
        calls_per_second: latencies_ns.len() as f64 / elapsed.as_secs_f64(),
        latencies_ns,
    };
    Ok((sessions, slice))
}

/// Ends the sessions.
pub(crate) async fn close(sessions: Vec<Session>) -> anyhow::Result<()> {
    for session in sessions {
        session.close().await?;
    }
    Ok(())
}

async fn call_until(mut session: Session, end: Instant) -> anyhow::Result<(Session, Vec<u32>)> {
    let mut latencies = Vec::with_capacity(64 * 1024);
    let mut before = Instant::now();
    loop {
        session.call().await?;
        let after = Instant::now();
        latencies.push(u32::try_from((after - before).as_nanos()).unwrap_or(u32::MAX));
        if after >= end {
            return Ok((session, latencies));
        }
        before = after;
    }
}
