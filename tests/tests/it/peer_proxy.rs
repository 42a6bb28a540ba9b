//! Somebody between two gateways: a relay that records what passes, and spoils some of it.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::ensure;
use mooring_tests::port::free_port;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What is done once, to the piece that passes next in a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mischief {
    /// One bit of what is sent to the gateway is flipped.
    FlipRequest,
    /// One bit of what it sends is flipped.
    FlipReply,
    /// The connection is closed instead of passing on what it sends.
    CutReply,
}

/// What passed over one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recording {
    /// To the gateway.
    pub(crate) asked: Vec<u8>,
    /// From it.
    pub(crate) answered: Vec<u8>,
}

#[derive(Debug, Default)]
struct State {
    mischief: Option<Mischief>,
    connections: Vec<Recording>,
}

/// A relay in front of one gateway. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct PeerProxy {
    port: u16,
    target: u16,
    state: Arc<Mutex<State>>,
    serving: JoinHandle<()>,
}

impl PeerProxy {
    /// Listens, and relays to a port that it chooses.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let target = free_port()?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        let serving = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                // A connection that breaks is what the tests look at from its ends.
                tokio::spawn(async move { drop(relay(client, target, &state).await) });
            }
        });
        Ok(Self {
            port,
            target,
            state,
            serving,
        })
    }

    /// Where the gateway in front of which it stands is to be reached by the others.
    pub(crate) fn advertised(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Where that gateway has to listen.
    pub(crate) fn behind(&self) -> String {
        format!("127.0.0.1:{}", self.target)
    }

    /// What is done to the piece that passes next.
    pub(crate) fn set(&self, mischief: Mischief) {
        lock(&self.state).mischief = Some(mischief);
    }

    /// What passed so far, by connection.
    pub(crate) fn recordings(&self) -> Vec<Recording> {
        lock(&self.state).connections.clone()
    }
}

impl Drop for PeerProxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Whether this is to be done now; it is done once.
    fn take(&mut self, mischief: Mischief) -> bool {
        self.mischief
            .take_if(|planned| *planned == mischief)
            .is_some()
    }
}

async fn relay(mut client: TcpStream, target: u16, state: &Mutex<State>) -> anyhow::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", target)).await?;
    let index = {
        let mut state = lock(state);
        state.connections.push(Recording::default());
        state.connections.len() - 1
    };
    let (mut asked, mut answered) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let piece = &mut asked[..read?];
                ensure!(!piece.is_empty(), "who asks has closed");
                {
                    let mut state = lock(state);
                    state.connections[index].asked.extend_from_slice(piece);
                    if state.take(Mischief::FlipRequest) {
                        flip(piece);
                    }
                }
                server.write_all(piece).await?;
            }
            read = server.read(&mut answered) => {
                let piece = &mut answered[..read?];
                ensure!(!piece.is_empty(), "who is asked has closed");
                {
                    let mut state = lock(state);
                    state.connections[index].answered.extend_from_slice(piece);
                    ensure!(!state.take(Mischief::CutReply), "cut");
                    if state.take(Mischief::FlipReply) {
                        flip(piece);
                    }
                }
                client.write_all(piece).await?;
            }
        }
    }
}

fn flip(piece: &mut [u8]) {
    if let Some(byte) = piece.last_mut() {
        *byte ^= 1;
    }
}
