//! Somebody between two workers: a proxy that records what one asks of the other, and spoils it or the answer.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, ensure};
use mooring_tests::port::free_port;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What is done to what passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mischief {
    /// Nothing.
    None,
    /// One bit of each request's body is flipped, this many bytes before its end.
    FlipRequest(usize),
    /// One bit of the reply is flipped, in the piece of this number; the first holds its head.
    FlipReply(usize),
    /// The connection is closed after this many pieces of the reply.
    CutReply(usize),
}

#[derive(Debug)]
struct State {
    mischief: Mischief,
    requests: Vec<Vec<u8>>,
}

/// A proxy in front of one worker. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct PeerProxy {
    port: u16,
    target: u16,
    state: Arc<Mutex<State>>,
    serving: JoinHandle<()>,
}

impl PeerProxy {
    /// Listens, and passes on to a port that it chooses.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let target = free_port()?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(Mutex::new(State {
            mischief: Mischief::None,
            requests: Vec::new(),
        }));
        let shared = Arc::clone(&state);
        let serving = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                // A connection that breaks is what the tests look at from its ends.
                tokio::spawn(async move { drop(pass(client, target, &state).await) });
            }
        });
        Ok(Self {
            port,
            target,
            state,
            serving,
        })
    }

    /// Where the worker in front of which it stands is to be reached by the others.
    pub(crate) fn advertised(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Where that worker has to listen.
    pub(crate) fn behind(&self) -> String {
        format!("127.0.0.1:{}", self.target)
    }

    /// What is done from now on, to what is asked from now on.
    pub(crate) fn set(&self, mischief: Mischief) {
        lock(&self.state).mischief = mischief;
    }

    /// The requests so far, with their heads, as they came.
    pub(crate) fn requests(&self) -> Vec<Vec<u8>> {
        lock(&self.state).requests.clone()
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

/// Passes the requests of one connection on, each whole, and their replies piece by piece. Who asks sends the next
/// request over a connection only after the reply to the one before.
async fn pass(mut client: TcpStream, target: u16, state: &Mutex<State>) -> anyhow::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", target)).await?;
    let mut piece = vec![0; 64 * 1024];
    let (mut mischief, mut pieces) = (Mischief::None, 0);
    let mut held = Vec::new();
    loop {
        let mut arrived = vec![0; 64 * 1024];
        tokio::select! {
            read = client.read(&mut arrived) => {
                let read = read?;
                ensure!(read > 0, "who asks has closed");
                held.extend_from_slice(&arrived[..read]);
                let Some(length) = request_length(&held)? else { continue };
                let mut request: Vec<u8> = held.drain(..length).collect();
                {
                    let mut state = lock(state);
                    state.requests.push(request.clone());
                    (mischief, pieces) = (state.mischief, 0);
                }
                if let Mischief::FlipRequest(before_end) = mischief {
                    request[length - before_end] ^= 1;
                }
                server.write_all(&request).await?;
            }
            read = server.read(&mut piece) => {
                let read = read?;
                ensure!(read > 0, "who is asked has closed");
                let piece = &mut piece[..read];
                pieces += 1;
                if mischief == Mischief::FlipReply(pieces) {
                    flip_in_reply(piece)?;
                }
                client.write_all(piece).await?;
                ensure!(mischief != Mischief::CutReply(pieces), "cut");
            }
        }
    }
}

/// The length of the request that these bytes begin with; none while it is not whole.
fn request_length(bytes: &[u8]) -> anyhow::Result<Option<usize>> {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, _)) = text.split_once("\r\n\r\n") else {
        return Ok(None);
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .context("a length")?;
    // The head is ASCII: as many bytes as the text has.
    let whole = head.len() + 4 + length.parse::<usize>()?;
    Ok((bytes.len() >= whole).then_some(whole))
}

/// Flips a bit in the first chunk of the body that begins in this piece, behind the head where there is one.
fn flip_in_reply(piece: &mut [u8]) -> anyhow::Result<()> {
    let after = |needle: &[u8], from: usize| {
        let rest = piece.get(from..)?;
        let at = rest.windows(needle.len()).position(|part| part == needle)?;
        Some(from + at + needle.len())
    };
    let body = match piece.starts_with(b"HTTP/") {
        true => after(b"\r\n\r\n", 0).context("a body")?,
        false => 0,
    };
    let data = after(b"\r\n", body).context("a chunk")?;
    *piece.get_mut(data + 10).context("a byte of it")? ^= 1;
    Ok(())
}
