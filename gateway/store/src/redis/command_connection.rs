//! One connection to Redis that many callers share: commands that are sent at about the same time leave in one write,
//! and replies are assigned in their order.
//!
//! The client library only formats commands and parses rare replies: as the driver of a connection it cost a third of a
//! call, and it limits nothing. Invariants: a caller gets the reply to its own command, or an error
//! if the connection is lost first; a reply that is not the [`ExpectedReply`] loses the connection, with all commands in
//! flight; the driver of the connection ends with the last handle.

use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::select_ok;
use mooring_settings::{RedisAddress, RedisEndpoint};
use redis::{Cmd, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::expected_reply::ExpectedReply;
use super::reply_reader::ReplyReader;
use super::tls;
use crate::lock::lock;

/// Size of the buffer for commands that wait to be written, above which it is not kept, in bytes.
const OUTPUT_BYTES_KEPT: usize = 64 * 1024;

/// How long what the server has sent is read after a write has failed.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(100);

/// What is done with a reply that no caller waits for, by the task of the connection. `None`: the connection was lost
/// before it.
pub(super) type ReplyCallback = Box<dyn FnOnce(Option<Value>) + Send>;

/// A handle of one connection, over TCP in the clear or with TLS, or a socket file. Cheap to clone.
#[derive(Clone)]
pub(super) struct CommandConnection(Arc<SharedStream>);

impl CommandConnection {
    /// Connects, without a time limit.
    pub(super) async fn open(server: &RedisEndpoint) -> io::Result<Self> {
        let stream = match &server.address {
            RedisAddress::Tcp(host, port) => {
                SharedStream::start(connect(host, *port).await?.into_split())
            }
            RedisAddress::Unix(path) => {
                SharedStream::start(UnixStream::connect(path).await?.into_split())
            }
            RedisAddress::Tls(host, port) => {
                let stream = connect(host, *port).await?;
                let stream = tls::handshake(host, stream, &server.tls_files).await?;
                SharedStream::start(tokio::io::split(stream))
            }
        };
        Ok(Self(Arc::new(stream)))
    }

    /// Sends a command and waits for its reply, which may be an error of the server.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) async fn send(&self, command: &Cmd) -> io::Result<Value> {
        let (caller, reply) = oneshot::channel();
        let pushed = self.0.queue.push([(command, ReplyTarget::Caller(caller))]);
        pushed.map_err(|_| self.0.queue.end())?;
        reply.await.map_err(|_| self.0.queue.end())
    }

    /// Sends a command directly after ASKING: its key is in a slot that the server is importing.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) async fn send_asking(&self, command: &Cmd) -> io::Result<Value> {
        let ((asker, asked), (caller, reply)) = (oneshot::channel(), oneshot::channel());
        let asking = redis::cmd("ASKING");
        let pushed = self.0.queue.push([
            (&asking, ReplyTarget::Caller(asker)),
            (command, ReplyTarget::Caller(caller)),
        ]);
        pushed.map_err(|_| self.0.queue.end())?;
        match asked.await {
            // What the server says without it would be of no use.
            Ok(refused @ Value::ServerError(_)) => Ok(refused),
            Ok(_) => reply.await.map_err(|_| self.0.queue.end()),
            Err(_) => Err(self.0.queue.end()),
        }
    }

    /// Sends a command whose reply no caller waits for. Commands that are sent later come after it.
    pub(super) fn send_unawaited(&self, command: &Cmd, on_reply: ReplyCallback) {
        let target = ReplyTarget::Callback(on_reply);
        if let Err([(_, target)]) = self.0.queue.push([(command, target)]) {
            target.lose();
        }
    }
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
    let stream = select_ok(attempts).await?.0;
    stream.set_nodelay(true)?;
    Ok(stream)
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
    /// Why it was closed, if that is known.
    cause: Option<Arc<io::Error>>,
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
    /// Adds commands, with none of others between them. Gives them back if the connection is lost.
    fn push<'c, const N: usize>(
        &self,
        commands: [(&'c Cmd, ReplyTarget); N],
    ) -> Result<(), [(&'c Cmd, ReplyTarget); N]> {
        let mut state = lock(&self.state);
        if state.is_closed {
            return Err(commands);
        }
        let is_first = state.output.is_empty();
        for (command, target) in commands {
            command.write_packed_command(&mut state.output);
            let expected = ExpectedReply::to(command);
            state.pending.push_back(PendingReply { expected, target });
        }
        drop(state);
        if is_first {
            self.is_filled.notify_one();
        }
        Ok(())
    }

    /// The error of a command on the lost connection.
    fn end(&self) -> io::Error {
        match &lock(&self.state).cause {
            Some(cause) => io::Error::new(cause.kind(), Arc::clone(cause)),
            None => io::ErrorKind::BrokenPipe.into(),
        }
    }
}

/// The queue of a driver. Dropping it fails every caller that waits.
struct OpenQueue(Arc<Queue>);

impl Drop for OpenQueue {
    fn drop(&mut self) {
        let pending = {
            let mut state = lock(&self.0.state);
            state.is_closed = true;
            std::mem::take(&mut state.pending)
        };
        pending.into_iter().for_each(|reply| reply.target.lose());
    }
}

/// Writes commands and reads replies until the connection is lost.
async fn drive(reader: impl AsyncRead + Unpin, writer: impl AsyncWrite + Unpin, queue: OpenQueue) {
    let mut reading = pin!(read_replies(reader, &queue.0));
    let ended = tokio::select! {
        ended = &mut reading => ended,
        // A server that closes the connection says before it why.
        unwritten = write_commands(writer, &queue.0) => match timeout(LAST_WORDS_WITHIN, reading).await {
            Ok(Err(said)) => Err(said),
            Ok(Ok(())) | Err(_) => unwritten,
        },
    };
    if let Err(error) = ended {
        report(&error);
        lock(&queue.0.state).cause = Some(Arc::new(error));
    }
}

async fn write_commands(mut writer: impl AsyncWrite + Unpin, queue: &Queue) -> io::Result<()> {
    let mut output = Vec::new();
    loop {
        queue.is_filled.notified().await;
        std::mem::swap(&mut output, &mut lock(&queue.state).output);
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
            let pending = lock(&queue.state).pending.pop_front();
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
    use mooring_settings::{RedisTopology, RedisUrl};
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
        (CommandConnection(Arc::new(stream)), server)
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
        connection.send_unawaited(&redis::cmd("PING"), on_reply);
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
        let url = RedisUrl::parse(&server.unix_url()).unwrap();
        let RedisTopology::Single(endpoint) = url.topology() else {
            unreachable!("{url:?} names one server");
        };
        let connection = CommandConnection::open(endpoint).await;
        let connection = connection.unwrap();
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
