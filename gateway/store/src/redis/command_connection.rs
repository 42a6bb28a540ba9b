//! One connection to Redis that many callers share: commands that are sent at about the same time leave in one write,
//! and replies are assigned in their order.
//!
//! The client library opens the connection, and authenticates. It also serves connections over TLS. What it does for a
//! command, in its parser above all, cost a third of a call. Invariants: a caller gets the reply to its own command, or an
//! error if the connection is lost first; a reply that is not the [`ExpectedReply`] loses the connection, with all commands
//! in flight; the driver of the connection ends with the last handle.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::expected_reply::ExpectedReply;
use super::reply_reader::ReplyReader;

/// Size of the buffer for commands that wait to be written, above which it is not kept, in bytes.
const OUTPUT_BYTES_KEPT: usize = 64 * 1024;

/// What is done with a reply that no caller waits for, by the task of the connection. `None`: the connection was lost
/// before it.
pub(super) type ReplyCallback = Box<dyn FnOnce(Option<Value>) + Send>;

/// A handle of one connection. Cheap to clone.
#[derive(Clone)]
pub(super) enum CommandConnection {
    /// Over TCP in the clear, or a socket file.
    Stream(Arc<SharedStream>),
    /// Over TLS, by the client library.
    Library(MultiplexedConnection),
}

impl CommandConnection {
    /// Connects and authenticates, without a time limit.
    pub(super) async fn open(client: &Client) -> RedisResult<Self> {
        let info = client.get_connection_info();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let settings = info.redis_settings();
        // The library sets up the connection over a second handle of the socket, which is closed with its own.
        let stream = match info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let stream = connect(host, *port).await?;
                stream.set_nodelay(true)?;
                let stream = stream.into_std()?;
                let second = TcpStream::from_std(stream.try_clone()?)?;
                drop(MultiplexedConnection::new_with_config(settings, second, config).await?);
                SharedStream::start(TcpStream::from_std(stream)?.into_split())
            }
            ConnectionAddr::Unix(path) => {
                let stream = UnixStream::connect(path).await?.into_std()?;
                let second = UnixStream::from_std(stream.try_clone()?)?;
                drop(MultiplexedConnection::new_with_config(settings, second, config).await?);
                SharedStream::start(UnixStream::from_std(stream)?.into_split())
            }
            _ => {
                let connection = client.get_multiplexed_async_connection_with_config(&config);
                return Ok(Self::Library(connection.await?));
            }
        };
        Ok(Self::Stream(Arc::new(stream)))
    }

    /// Sends a command and waits for its reply, which may be an error of the server.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Stream(stream) => stream.send(command).await,
            // Boxed: the future of every command would otherwise be as large.
            Self::Library(connection) => Box::pin(by_library(connection, command)).await,
        }
    }

    /// Sends a command whose reply no caller waits for, and for which the library waits up to `limit`. Commands that are
    /// sent later come after it.
    pub(super) fn send_unawaited(self, command: &Cmd, limit: Duration, on_reply: ReplyCallback) {
        match self {
            Self::Stream(stream) => {
                let target = ReplyTarget::Callback(on_reply);
                if let Err(target) = stream.queue.push(command, target) {
                    target.lose();
                }
            }
            Self::Library(mut connection) => {
                // Without a runtime the process is stopping.
                let Ok(runtime) = Handle::try_current() else {
                    return on_reply(None);
                };
                let command = command.clone();
                let mut sending = Box::pin(async move {
                    let sent = timeout(limit, by_library(&mut connection, &command)).await;
                    on_reply(sent.ok().and_then(Result::ok));
                });
                // The first step puts it into the library's queue.
                if (&mut sending).now_or_never().is_none() {
                    runtime.spawn(sending);
                }
            }
        }
    }
}

/// The reply to a command over a connection of the library, if it is its own. The caller gives up the connection at an
/// error; each command in flight on it compares its own reply.
async fn by_library(connection: &mut MultiplexedConnection, command: &Cmd) -> RedisResult<Value> {
    let reply = connection.send_packed_command(command).await?;
    if ExpectedReply::to(command).admits(&reply) {
        return Ok(reply);
    }
    let error = foreign_reply();
    report(&error);
    Err(error.into())
}

/// A reply that belongs to another command.
fn foreign_reply() -> io::Error {
    let problem = "a reply of redis does not name the request that it answers";
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

/// Tells why a connection is closed.
fn report(error: &io::Error) {
    if error.kind() == io::ErrorKind::InvalidData {
        metrics::counter!("mooring_store_replies_refused_total").increment(1);
        tracing::warn!(%error, "connection to redis closed: its replies cannot be believed");
    } else {
        tracing::debug!(%error, "a connection to redis failed");
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

/// A connection, with the task that drives it.
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
    /// Starts with the two halves of a socket.
    fn start(
        (reader, writer): (
            impl AsyncRead + Unpin + Send + 'static,
            impl AsyncWrite + Unpin + Send + 'static,
        ),
    ) -> Self {
        let queue = Arc::<Queue>::default();
        let driver = tokio::spawn(drive(reader, writer, OpenQueue(Arc::clone(&queue))));
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
    pending: VecDeque<PendingReply>,
    is_closed: bool,
}

/// A reply that is still to come.
struct PendingReply {
    expected: ExpectedReply,
    target: ReplyTarget,
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
        let expected = ExpectedReply::to(command);
        state.pending.push_back(PendingReply { expected, target });
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
        let pending = {
            let mut state = self.0.state();
            state.is_closed = true;
            std::mem::take(&mut state.pending)
        };
        pending.into_iter().for_each(|reply| reply.target.lose());
    }
}

/// Writes commands and reads replies until the connection is lost.
async fn drive(reader: impl AsyncRead + Unpin, writer: impl AsyncWrite + Unpin, queue: OpenQueue) {
    let ended = tokio::select! {
        ended = read_replies(reader, &queue.0) => ended,
        ended = write_commands(writer, &queue.0) => ended,
    };
    if let Err(error) = ended {
        report(&error);
    }
}

async fn write_commands(mut writer: impl AsyncWrite + Unpin, queue: &Queue) -> io::Result<()> {
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
async fn read_replies(mut reader: impl AsyncRead + Unpin, queue: &Queue) -> io::Result<()> {
    let mut replies = ReplyReader::default();
    while reader.read_buf(replies.buffer()).await? > 0 {
        while let Some(value) = replies.next_reply()? {
            let pending = queue.state().pending.pop_front();
            let PendingReply { expected, target } = pending.ok_or_else(foreign_reply)?;
            if !expected.admits(&value) {
                target.lose();
                return Err(foreign_reply());
            }
            target.receive(value);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;
    use crate::test_support::server::{Module, RedisServer};

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A connection, and the other side of it.
    async fn connected() -> (CommandConnection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await;
        let stream = SharedStream::start(stream.unwrap().into_split());
        let (server, _) = listener.accept().await.unwrap();
        (CommandConnection::Stream(Arc::new(stream)), server)
    }

    const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

    async fn expect(server: &mut TcpStream, expected: &[u8]) {
        let mut received = vec![0; expected.len()];
        let reading = server.read_exact(&mut received);
        tokio::time::timeout(PATIENCE, reading)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(received, expected);
    }

    /// Sends PING, and the reply to `replies` when there is one.
    fn send(connection: &CommandConnection, replies: &mpsc::Sender<Option<Value>>) {
        let replies = replies.clone();
        let on_reply = Box::new(move |reply| replies.try_send(reply).unwrap());
        (connection.clone()).send_unawaited(&redis::cmd("PING"), PATIENCE, on_reply);
    }

    #[tokio::test]
    async fn a_callback_gets_the_reply_or_is_told_that_there_is_none() {
        let (connection, mut server) = connected().await;
        let (sender, mut replies) = mpsc::channel(8);
        let mut next = async || {
            let reply = tokio::time::timeout(PATIENCE, replies.recv()).await;
            reply.unwrap().unwrap()
        };
        send(&connection, &sender);
        expect(&mut server, PING).await;
        server.write_all(b"+PONG\r\n").await.unwrap();
        assert_eq!(next().await, Some(Value::SimpleString("PONG".to_owned())));
        send(&connection, &sender);
        expect(&mut server, PING).await;
        drop(server);
        assert_eq!(
            next().await,
            None,
            "the connection was lost before the reply"
        );
        send(&connection, &sender);
        assert_eq!(next().await, None, "the connection was lost before");
    }

    /// The library limits nothing.
    #[tokio::test]
    async fn a_socket_file_is_read_with_the_same_limits() {
        let server = RedisServer::start(Module::Absent);
        let client = Client::open(server.unix_url()).unwrap();
        let mut connection = CommandConnection::open(&client).await.unwrap();
        let long = "x".repeat(9 * 1024 * 1024);
        for at in ["0", "9437184"] {
            let mut fill = redis::cmd("SETRANGE");
            fill.arg("long").arg(at).arg(&long);
            connection.send(&fill).await.unwrap();
        }
        let mut get = redis::cmd("GET");
        get.arg("long");
        assert!(connection.send(&get).await.is_err(), "18 MiB");
    }

    /// The second reply is right, but it came too early to be believed.
    #[tokio::test]
    async fn a_foreign_reply_loses_every_command_in_flight() {
        for replies in [
            &b"+OK\r\n+PONG\r\n"[..],
            b"-STALE x (request 0123456789abcdef)\r\n+PONG\r\n",
        ] {
            let (connection, mut server) = connected().await;
            let (sender, mut told) = mpsc::channel(8);
            send(&connection, &sender);
            send(&connection, &sender);
            expect(&mut server, &[PING, PING].concat()).await;
            server.write_all(replies).await.unwrap();
            for _ in 0..2 {
                let reply = tokio::time::timeout(PATIENCE, told.recv()).await;
                assert_eq!(reply.unwrap(), Some(None));
            }
            let mut rest = Vec::new();
            let closed = tokio::time::timeout(PATIENCE, server.read_to_end(&mut rest));
            assert_eq!(
                closed.await.unwrap().unwrap_or(0),
                0,
                "the connection is closed"
            );
        }
    }

    #[tokio::test]
    async fn a_reply_that_nobody_asked_for_closes_the_connection() {
        let (connection, mut server) = connected().await;
        let (sender, mut told) = mpsc::channel(8);
        server.write_all(b"+PONG\r\n").await.unwrap();
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(PATIENCE, server.read_to_end(&mut rest));
        assert_eq!(closed.await.unwrap().unwrap_or(0), 0);
        send(&connection, &sender);
        assert_eq!(told.recv().await, Some(None));
    }
}
