//! A proxy in front of Redis: an address that leads to another server after a failover, and one that spoils the order of
//! replies, by dropping, repeating or swapping some of them.
//!
//! It understands RESP as far as the ends of replies. Invariants: requests pass unchanged; until [`RedisProxy::spoil`] and
//! on the first replies of each connection, so that a client can set it up, nothing is spoiled; connections last until
//! either side closes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};
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

/// What happens to some of the replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It never arrives.
    Dropped,
    /// It arrives twice.
    Doubled,
    /// It arrives behind the one after it.
    Swapped,
}

const NO_FAULT: u8 = 0;

impl Fault {
    const ALL: [Self; 3] = [Self::Dropped, Self::Doubled, Self::Swapped];

    fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// The proxy. Dropping it closes its connections.
#[derive(Debug)]
pub struct RedisProxy {
    port: u16,
    state: Arc<State>,
    _connections: JoinSet<()>,
}

#[derive(Debug, Default)]
struct State {
    server_port: AtomicU16,
    fault: AtomicU8,
    spoiled: AtomicU64,
}

impl RedisProxy {
    /// Starts in front of the server at this port of 127.0.0.1.
    pub async fn start(server_port: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(State {
            server_port: server_port.into(),
            ..State::default()
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

    /// `redis://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
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
    pub fn spoiled(&self) -> u64 {
        self.state.spoiled.load(Ordering::Relaxed)
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
        _ = forward_replies(Replies::new(replies), to_client, &state) => {}
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
        if fault.is_some() {
            state.spoiled.fetch_add(1, Ordering::Relaxed);
        }
        match fault {
            None => to_client.write_all(&reply).await?,
            Some(Fault::Dropped) => {}
            Some(Fault::Doubled) => to_client.write_all(&[&reply[..], &reply].concat()).await?,
            Some(Fault::Swapped) => {
                let next = timeout(SWAP_WITHIN, replies.next()).await;
                if let Ok(next) = next {
                    count += 1;
                    to_client.write_all(&next?.unwrap_or_default()).await?;
                }
                to_client.write_all(&reply).await?;
            }
        }
    }
    Ok(())
}

/// The replies of a server, one by one.
struct Replies {
    stream: OwnedReadHalf,
    buffer: Vec<u8>,
}

impl Replies {
    const fn new(stream: OwnedReadHalf) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// The next one; none at the end of the stream. May be dropped while it waits.
    async fn next(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = end_of_value(&self.buffer, 0) {
                return Ok(Some(self.buffer.drain(..end).collect()));
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

/// Where the value ends that begins at `at`; none while it is not there as a whole.
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
