//! The network between one process and a server: it can hold back what either side sends, and close connections.
//!
//! Invariants: bytes are neither lost nor reordered on a connection that stays; while a direction is held back, the end of
//! a connection is held back as well, since on a real network it is a packet like any other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

const CHUNK_BYTES: usize = 16 * 1024;

/// What is held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Held {
    /// Nothing.
    #[default]
    Nothing,
    /// What the process sends.
    Requests,
    /// What the server sends.
    Replies,
    /// Both.
    Everything,
    /// Both, on connections that have carried the marker.
    Marked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToProcess,
}

impl Held {
    const fn holds(self, direction: Direction, is_marked: bool) -> bool {
        match self {
            Self::Nothing => false,
            Self::Requests => matches!(direction, Direction::ToServer),
            Self::Replies => matches!(direction, Direction::ToProcess),
            Self::Everything => true,
            Self::Marked => is_marked,
        }
    }
}

/// The link. Dropping it closes its connections.
#[derive(Debug)]
pub struct NetworkLink {
    port: u16,
    state: Arc<State>,
    _connections: JoinSet<()>,
}

#[derive(Debug)]
struct State {
    server_port: AtomicU16,
    marker: &'static [u8],
    held: watch::Sender<Held>,
    /// Changes when all connections are to be closed.
    closings: watch::Sender<u64>,
}

impl NetworkLink {
    /// Starts a link to the server at this port of 127.0.0.1. `marker` is what a request has on the connections that
    /// [`Held::Marked`] means.
    pub async fn to(server_port: u16, marker: &'static [u8]) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(State {
            server_port: server_port.into(),
            marker,
            held: watch::Sender::new(Held::Nothing),
            closings: watch::Sender::new(0),
        });
        let mut connections = JoinSet::new();
        let of_connections = Arc::clone(&state);
        connections.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((process, _)) = listener.accept().await {
                open.spawn(serve(process, Arc::clone(&of_connections)));
                while open.try_join_next().is_some() {}
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
    pub fn redis_url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// New connections lead to the server at this port; those that are open stay where they are.
    pub fn lead_to(&self, server_port: u16) {
        self.state.server_port.store(server_port, Ordering::Relaxed);
    }

    /// From now on this is held back. What was held back before and is not any more is sent on.
    pub fn hold(&self, held: Held) {
        self.state.held.send_replace(held);
    }

    /// Closes every connection. What they held back is lost.
    pub fn close_connections(&self) {
        self.state.closings.send_modify(|closings| *closings += 1);
    }
}

async fn serve(process: TcpStream, state: Arc<State>) {
    let mut closings = state.closings.subscribe();
    let server_port = state.server_port.load(Ordering::Relaxed);
    let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await else {
        return;
    };
    let _ = (process.set_nodelay(true), server.set_nodelay(true));
    let is_marked = AtomicBool::new(false);
    let (from_process, to_process) = process.into_split();
    let (from_server, to_server) = server.into_split();
    let both = async {
        tokio::join!(
            forward(
                from_process,
                to_server,
                Direction::ToServer,
                &is_marked,
                &state
            ),
            forward(
                from_server,
                to_process,
                Direction::ToProcess,
                &is_marked,
                &state
            ),
        )
    };
    tokio::select! {
        _ = both => {}
        _ = closings.changed() => {}
    }
}

/// Forwards bytes and then their end.
async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    is_marked: &AtomicBool,
    state: &State,
) {
    let mut held = state.held.subscribe();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = from.read(&mut chunk).await.unwrap_or(0);
        let bytes = chunk.get(..count).unwrap_or_default();
        let marker = state.marker;
        if direction == Direction::ToServer
            && bytes.windows(marker.len()).any(|part| part == marker)
        {
            is_marked.store(true, Ordering::Relaxed);
        }
        let is_free = |held: &Held| !held.holds(direction, is_marked.load(Ordering::Relaxed));
        // The sender lives as long as the state.
        let _ = held.wait_for(is_free).await;
        if bytes.is_empty() || to.write_all(bytes).await.is_err() {
            // Dropping the half sends the end.
            return;
        }
    }
}
