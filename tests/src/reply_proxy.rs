//! A proxy in front of Redis, or of a server with TLS: an address that leads to another server after a failover, and one
//! that spoils the order of replies, by dropping, repeating, swapping or delaying some of them.
//!
//! It understands RESP, or the records of TLS, as far as their ends. Invariants: requests pass unchanged; until
//! [`ReplyProxy::spoil`] and on the first replies of each connection, so that a client can set it up, nothing is spoiled;
//! connections last until either side closes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Replies of a connection that pass before any is spoiled: those to a client's handshake.
const CLEAN_REPLIES: u64 = 10;
/// One of so many replies is spoiled.
const SPOILED_EVERY: u64 = 9;
/// How long a reply is held back for another one to swap with.
const SWAP_WITHIN: Duration = Duration::from_millis(50);
/// How late a delayed reply is.
const DELAY: Duration = Duration::from_millis(200);
/// The bytes of a TLS record before its content; the last two are its length.
const RECORD_HEADER_BYTES: usize = 5;

/// What happens to some of the replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It never arrives.
    Dropped,
    /// It arrives twice.
    Doubled,
    /// It arrives behind the one after it.
    Swapped,
    /// It, and what follows it, arrives late.
    Delayed,
}

const NO_FAULT: u8 = 0;

impl Fault {
    const ALL: [Self; 4] = [Self::Dropped, Self::Doubled, Self::Swapped, Self::Delayed];

    fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// Where a reply ends that begins at an offset; none while it is not there as a whole.
type FindEnd = fn(&[u8], usize) -> Option<usize>;

/// The proxy. Dropping it closes its connections.
#[derive(Debug)]
pub struct ReplyProxy {
    port: u16,
    state: Arc<State>,
    _connections: JoinSet<()>,
}

#[derive(Debug)]
struct State {
    find_end: FindEnd,
    server_port: AtomicU16,
    fault: AtomicU8,
    spoiled: AtomicUsize,
}

impl ReplyProxy {
    /// Starts in front of the Redis server at this port of 127.0.0.1.
    pub async fn before_redis(server_port: u16) -> anyhow::Result<Self> {
        Self::start(server_port, end_of_value).await
    }

    /// Starts in front of the server at this port, whose replies are records of TLS.
    pub async fn before_tls(server_port: u16) -> anyhow::Result<Self> {
        Self::start(server_port, end_of_record).await
    }

    async fn start(server_port: u16, find_end: FindEnd) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(State {
            find_end,
            server_port: server_port.into(),
            fault: NO_FAULT.into(),
            spoiled: 0.into(),
        });
        let mut connections = JoinSet::new();
        let of_connections = Arc::clone(&state);
        connections.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                open.spawn(serve(client, Arc::clone(&of_connections)));
            }
        });
        Ok(Self {
            port,
            state,
            _connections: connections,
        })
    }

    /// `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// `redis://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// New connections lead to the server at this port; those that are open stay where they are.
    pub fn lead_to(&self, server_port: u16) {
        self.state.server_port.store(server_port, Ordering::Relaxed);
    }

    /// From now on some replies are spoiled in this way, or none.
    pub fn spoil(&self, fault: Option<Fault>) {
        let number = |fault| {
            let place = Fault::ALL.iter().position(|known| *known == fault);
            place.map_or(NO_FAULT, |place| {
                u8::try_from(place + 1).unwrap_or(NO_FAULT)
            })
        };
        let number = fault.map_or(NO_FAULT, number);
        self.state.fault.store(number, Ordering::Relaxed);
    }

    /// How many replies were spoiled so far.
    #[must_use]
    pub fn spoiled(&self) -> usize {
        self.state.spoiled.load(Ordering::Relaxed)
    }

    /// The same for a task that outlives a borrow of the proxy.
    pub fn count_spoiled(&self) -> impl Fn() -> usize + Send + Sync + use<> {
        let state = Arc::clone(&self.state);
        move || state.spoiled.load(Ordering::Relaxed)
    }
}

async fn serve(client: TcpStream, state: Arc<State>) {
    let server_port = state.server_port.load(Ordering::Relaxed);
    let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await else {
        return;
    };
    let (mut requests, to_client) = client.into_split();
    let (replies, mut to_server) = server.into_split();
    tokio::select! {
        _ = tokio::io::copy(&mut requests, &mut to_server) => {}
        _ = forward_replies(Replies::new(replies, state.find_end), to_client, &state) => {}
    }
}

async fn forward_replies(
    mut replies: Replies,
    mut to_client: OwnedWriteHalf,
    state: &State,
) -> anyhow::Result<()> {
    let mut count = 0;
    while let Some(reply) = replies.next().await? {
        count += 1;
        let is_due = count > CLEAN_REPLIES && count % SPOILED_EVERY == 0;
        let fault = Fault::of(state.fault.load(Ordering::Relaxed)).filter(|_| is_due);
        let is_spoiled = match fault {
            None => {
                to_client.write_all(&reply).await?;
                false
            }
            Some(Fault::Dropped) => true,
            Some(Fault::Doubled) => {
                to_client.write_all(&[&reply[..], &reply].concat()).await?;
                true
            }
            Some(Fault::Swapped) => {
                let next = timeout(SWAP_WITHIN, replies.next()).await;
                let next = next.unwrap_or(Ok(None))?;
                count += u64::from(next.is_some());
                to_client
                    .write_all(next.as_deref().unwrap_or_default())
                    .await?;
                to_client.write_all(&reply).await?;
                next.is_some()
            }
            Some(Fault::Delayed) => {
                tokio::time::sleep(DELAY).await;
                to_client.write_all(&reply).await?;
                true
            }
        };
        state
            .spoiled
            .fetch_add(usize::from(is_spoiled), Ordering::Relaxed);
    }
    Ok(())
}

/// The replies of a server, one by one.
struct Replies {
    stream: OwnedReadHalf,
    buffer: Vec<u8>,
    find_end: FindEnd,
}

impl Replies {
    const fn new(stream: OwnedReadHalf, find_end: FindEnd) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
            find_end,
        }
    }

    /// The next one; none at the end of the stream. May be dropped while it waits.
    async fn next(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = (self.find_end)(&self.buffer, 0) {
                return Ok(Some(self.buffer.drain(..end).collect()));
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

/// [`FindEnd`] of TLS.
fn end_of_record(bytes: &[u8], at: usize) -> Option<usize> {
    let header = bytes.get(at..at + RECORD_HEADER_BYTES)?;
    let length = u16::from_be_bytes(header.last_chunk().copied()?);
    let end = at + RECORD_HEADER_BYTES + usize::from(length);
    (end <= bytes.len()).then_some(end)
}

/// [`FindEnd`] of RESP.
fn end_of_value(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?;
    let line = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let end = at + line + 2;
    let number = || -> Option<i64> { std::str::from_utf8(rest.get(1..line)?).ok()?.parse().ok() };
    let count = |each: usize| Some(usize::try_from(number()?).unwrap_or(0) * each);
    let inner = match rest.first()? {
        b'$' | b'=' | b'!' => {
            let Ok(length) = usize::try_from(number()?) else {
                return Some(end);
            };
            let end = end + length + 2;
            return (end <= bytes.len()).then_some(end);
        }
        b'*' | b'~' | b'>' => count(1)?,
        b'%' => count(2)?,
        _ => 0,
    };
    (0..inner).try_fold(end, |end, _| end_of_value(bytes, end))
}
