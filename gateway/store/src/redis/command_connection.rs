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

/// What is done with a reply that no caller waits for, by the task of the connection. `None`: the connection was lost
/// before it.
pub(super) type ReplyCallback = Box<dyn FnOnce(Option<Value>) + Send>;

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

    /// Sends a command whose reply no caller waits for.
    pub(super) fn send_unawaited(self, command: &Cmd, on_reply: ReplyCallback) {
        match self {
            Self::Tcp(stream) => {
                if let Err(ReplyTarget::Callback(on_reply)) =
                    stream.queue.push(command, ReplyTarget::Callback(on_reply))
                {
                    on_reply(None);
                }
            }
            Self::Library(mut connection) => {
                let command = command.clone();
                tokio::spawn(async move {
                    on_reply(connection.send_packed_command(&command).await.ok());
                });
            }
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
        let (caller, reply) = oneshot::channel();
        let pushed = self.queue.push(command, ReplyTarget::Caller(caller));
        pushed.map_err(|_| lost())?;
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
    targets: VecDeque<ReplyTarget>,
    is_closed: bool,
}

/// Where a reply goes.
enum ReplyTarget {
    Caller(oneshot::Sender<Value>),
    Callback(ReplyCallback),
}

impl ReplyTarget {
    fn receive(self, reply: Value) {
        match self {
            // A caller that no longer waits has no use for its reply.
            Self::Caller(caller) => drop(caller.send(reply)),
            Self::Callback(on_reply) => on_reply(Some(reply)),
        }
    }

    /// The connection is lost before the reply.
    fn lose(self) {
        match self {
            Self::Caller(caller) => drop(caller),
            Self::Callback(on_reply) => on_reply(None),
        }
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a command. Gives the target back if the connection is lost.
    fn push(&self, command: &Cmd, target: ReplyTarget) -> Result<(), ReplyTarget> {
        let mut state = self.state();
        if state.is_closed {
            return Err(target);
        }
        let is_first = state.output.is_empty();
        command.write_packed_command(&mut state.output);
        state.targets.push_back(target);
        drop(state);
        if is_first {
            self.is_filled.notify_one();
        }
        Ok(())
    }
}

/// The queue of a driver. Dropping it fails every caller that waits.
struct OpenQueue(Arc<Queue>);

impl Drop for OpenQueue {
    fn drop(&mut self) {
        let targets = {
            let mut state = self.0.state();
            state.is_closed = true;
            std::mem::take(&mut state.targets)
        };
        targets.into_iter().for_each(ReplyTarget::lose);
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
            let target = queue.state().targets.pop_front();
            target.ok_or(io::ErrorKind::InvalidData)?.receive(value);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::time::Duration;

    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_callback_gets_the_reply_or_is_told_that_there_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap());
        let connection =
            CommandConnection::Tcp(Arc::new(SharedStream::start(stream.await.unwrap())));
        let (mut server, _) = listener.accept().await.unwrap();
        let (sender, mut replies) = mpsc::channel(8);
        let send = || {
            let sender = sender.clone();
            let on_reply = Box::new(move |reply| sender.try_send(reply).unwrap());
            connection
                .clone()
                .send_unawaited(&redis::cmd("PING"), on_reply);
        };
        let mut next = async || {
            let reply = tokio::time::timeout(PATIENCE, replies.recv()).await;
            reply.unwrap().unwrap()
        };
        send();
        let mut command = [0; 14];
        server.read_exact(&mut command).await.unwrap();
        assert_eq!(&command, b"*1\r\n$4\r\nPING\r\n");
        server.write_all(b"+OK\r\n").await.unwrap();
        assert_eq!(next().await, Some(Value::Okay));
        send();
        server.read_exact(&mut command).await.unwrap();
        drop(server);
        assert_eq!(
            next().await,
            None,
            "the connection was lost before the reply"
        );
        send();
        assert_eq!(next().await, None, "the connection was lost before");
    }
}
