//! One connection to Redis that many callers share: commands that are sent at about the same time leave in one write,
//! and replies are assigned in their order.
//!
//! The client library opens the connection, and authenticates. It also serves connections over TLS, and those to a
//! socket file. What it does for a command over TCP, in its parser above all, cost a third of a call. Invariants: a
//! caller gets the reply to its own command, or an error if the connection is lost first; the driver of the connection
//! ends with the last handle.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, RedisResult, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use super::reply_reader::ReplyReader;

/// Size of the buffer for commands that wait to be written, above which it is not kept, in bytes.
const OUTPUT_BYTES_KEPT: usize = 64 * 1024;

/// A handle of one connection. Cheap to clone.
#[derive(Clone)]
pub(super) enum CommandConnection {
    /// Over TCP in the clear.
    Tcp(Arc<SharedStream>),
    /// Any other, by the client library.
    Library(MultiplexedConnection),
}

impl CommandConnection {
    /// Connects and authenticates, without a time limit.
    pub(super) async fn open(client: &Client) -> RedisResult<Self> {
        let info = client.get_connection_info();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let ConnectionAddr::Tcp(host, port) = info.addr() else {
            let connection = client.get_multiplexed_async_connection_with_config(&config);
            return Ok(Self::Library(connection.await?));
        };
        let stream = connect(host, *port).await?;
        stream.set_nodelay(true)?;
        let stream = stream.into_std()?;
        // The library sets up the connection over a second handle of the socket, which is closed with its own.
        let second = TcpStream::from_std(stream.try_clone()?)?;
        let settings = info.redis_settings();
        drop(MultiplexedConnection::new_with_config(settings, second, config).await?);
        let stream = SharedStream::start(TcpStream::from_std(stream)?);
        Ok(Self::Tcp(Arc::new(stream)))
    }

    /// Sends a command and waits for its reply, which may be an error of the server.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Tcp(stream) => stream.send(command).await,
            // Boxed: the future of every command would otherwise be as large.
            Self::Library(connection) => Box::pin(connection.send_packed_command(command)).await,
        }
    }
}

/// Tries all addresses of a host at the same time: one that does not answer delays none of the others.
async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses = tokio::net::lookup_host((host, port)).await?;
    let attempts: Vec<_> = addresses
        .map(|address| Box::pin(TcpStream::connect(address)))
        .collect();
    if attempts.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(select_ok(attempts).await?.0)
}

/// A connection over TCP, with the task that drives it.
pub(super) struct SharedStream {
    queue: Arc<Queue>,
    driver: AbortHandle,
}

impl Drop for SharedStream {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl SharedStream {
    fn start(stream: TcpStream) -> Self {
        let queue = Arc::<Queue>::default();
        let driver = tokio::spawn(drive(stream, OpenQueue(Arc::clone(&queue))));
        Self {
            queue,
            driver: driver.abort_handle(),
        }
    }

    async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        let reply = self.queue.push(command).ok_or_else(lost)?;
        Ok(reply.await.map_err(|_| lost())?)
    }
}

fn lost() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

/// The commands to write, and the callers that wait for replies.
#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    /// There is something to write.
    is_filled: Notify,
}

#[derive(Default)]
struct QueueState {
    output: Vec<u8>,
    /// In the order of their commands.
    callers: VecDeque<oneshot::Sender<Value>>,
    is_closed: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a command; none if the connection is lost.
    fn push(&self, command: &Cmd) -> Option<oneshot::Receiver<Value>> {
        let (caller, reply) = oneshot::channel();
        let mut state = self.state();
        if state.is_closed {
            return None;
        }
        let is_first = state.output.is_empty();
        command.write_packed_command(&mut state.output);
        state.callers.push_back(caller);
        drop(state);
        if is_first {
            self.is_filled.notify_one();
        }
        Some(reply)
    }
}

/// The queue of a driver. Dropping it fails every caller that waits.
struct OpenQueue(Arc<Queue>);

impl Drop for OpenQueue {
    fn drop(&mut self) {
        let callers = {
            let mut state = self.0.state();
            state.is_closed = true;
            std::mem::take(&mut state.callers)
        };
        drop(callers);
    }
}

/// Writes commands and reads replies until the connection is lost.
async fn drive(stream: TcpStream, queue: OpenQueue) {
    let (reader, writer) = stream.into_split();
    let ended = tokio::select! {
        ended = read_replies(reader, &queue.0) => ended,
        ended = write_commands(writer, &queue.0) => ended,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to redis failed");
    }
}

async fn write_commands(mut writer: OwnedWriteHalf, queue: &Queue) -> io::Result<()> {
    let mut output = Vec::new();
    loop {
        queue.is_filled.notified().await;
        std::mem::swap(&mut output, &mut queue.state().output);
        writer.write_all(&output).await?;
        output.clear();
        output.shrink_to(OUTPUT_BYTES_KEPT);
    }
}

/// Ends without an error if the server closes the connection.
async fn read_replies(mut reader: OwnedReadHalf, queue: &Queue) -> io::Result<()> {
    let mut replies = ReplyReader::default();
    while reader.read_buf(replies.buffer()).await? > 0 {
        while let Some(value) = replies.next_reply()? {
            let caller = queue.state().callers.pop_front();
            let caller = caller.ok_or(io::ErrorKind::InvalidData)?;
            // A caller that no longer waits has no use for its reply.
            let _ = caller.send(value);
        }
    }
    Ok(())
}
