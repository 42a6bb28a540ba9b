//! The upstream server of the check: it counts per session, and keeps when each call ran. It has a thread of its own,
//! beside the network links, so that nothing else delays what it sees.
//!
//! Invariant: a call runs from when it was read until just before its answer is written. A time at which this thread did
//! not run is known, and an overlap near one is set apart: a witness that slept saw no order.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::process::setpriority_process;
use serde::Deserialize;
use serde_json::{Value, json};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::ledger::{CallName, GatewayLife, Ledger, Overlap, RunningCall};

/// How often the thread looks whether it was kept from running.
const TICK: Duration = Duration::from_millis(5);
/// From this delay on it says so. Shorter than the time that a gateway leaves between the last use of a turn and its lease.
const STALL_MIN: Duration = Duration::from_millis(60);
/// For how long before an overlap the thread must have run, for the order to be known.
const AWAKE_BEFORE: Duration = Duration::from_millis(500);
const PRIORITY: i32 = -15;
const HEADERS_MAX: usize = 64;

/// The life of each gateway: odd from when it is killed until it is started again.
pub(super) type Lives = Arc<Vec<AtomicU64>>;

/// The running upstream and its thread.
pub(super) struct Witness {
    port: u16,
    seen: Arc<Seen>,
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// What it has seen.
struct Seen {
    started: Instant,
    lives: Lives,
    ledger: Mutex<Ledger<Arc<TcpStream>>>,
    /// When a delay of the thread was noticed, and how long it was.
    stalls: Mutex<Vec<(Duration, Duration)>>,
}

impl Witness {
    pub(super) async fn start(lives: Lives) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let seen = Arc::new(Seen {
            started: Instant::now(),
            lives,
            ledger: Mutex::default(),
            stalls: Mutex::default(),
        });
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("witness".to_owned());
        let thread = thread.spawn(move || {
            // Before all others where that is allowed. On Linux a thread has a priority of its own.
            let _ = setpriority_process(None, PRIORITY);
            // An error is the end as well.
            let _ = runtime.block_on(stopped);
        })?;
        let mut witness = Self {
            port: 0,
            seen,
            handle,
            stop: Some(stop),
            thread: Some(thread),
        };
        let listener = witness
            .run(async { Ok(TcpListener::bind("127.0.0.1:0").await?) })
            .await?;
        witness.port = listener.local_addr()?.port();
        witness.handle.spawn(tick(Arc::clone(&witness.seen)));
        let seen = Arc::clone(&witness.seen);
        witness.handle.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let seen = Arc::clone(&seen);
                // A connection that breaks is the other side's doing.
                tokio::spawn(async move { converse(stream, &seen).await });
            }
        });
        Ok(witness)
    }

    /// The MCP endpoint.
    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Runs something else on this thread, with all the tasks that it starts.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = anyhow::Result<T>> + Send + 'static,
    ) -> anyhow::Result<T> {
        self.handle.spawn(future).await?
    }

    /// Since it was started.
    pub(super) fn now(&self) -> Duration {
        self.seen.started.elapsed()
    }

    /// The overlaps whose order is known, and how many others there are.
    pub(super) fn overlaps(&self) -> (Vec<Overlap>, usize) {
        let stalls = lock(&self.seen.stalls);
        let ledger = lock(&self.seen.ledger);
        let is_known = |overlap: &&Overlap| {
            let (from, to) = (
                overlap.earlier.2.saturating_sub(AWAKE_BEFORE),
                overlap.later.2,
            );
            let is_near = |(noticed, length): &(Duration, Duration)| {
                *noticed >= from && noticed.saturating_sub(*length) <= to
            };
            !stalls.iter().any(is_near)
        };
        let known: Vec<Overlap> = ledger.overlaps().iter().filter(is_known).cloned().collect();
        let unknown = ledger.overlaps().len() - known.len();
        (known, unknown)
    }

    /// How often each of these calls has begun.
    pub(super) fn times_begun(&self, names: impl Iterator<Item = CallName>) -> Vec<u32> {
        let ledger = lock(&self.seen.ledger);
        names.map(|name| ledger.times_begun(name)).collect()
    }

    /// How often the thread was kept from running, and for how long at most.
    pub(super) fn stalls(&self) -> (usize, Duration) {
        let stalls = lock(&self.seen.stalls);
        let longest = stalls.iter().map(|(_, length)| *length).max();
        (stalls.len(), longest.unwrap_or_default())
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn tick(seen: Arc<Seen>) {
    loop {
        let before = Instant::now();
        tokio::time::sleep(TICK).await;
        let delay = before.elapsed().saturating_sub(TICK);
        if delay >= STALL_MIN {
            lock(&seen.stalls).push((seen.started.elapsed(), delay));
        }
    }
}

/// What a call says of itself: see [`super::user`].
#[derive(Deserialize)]
struct Arguments {
    user: usize,
    number: u64,
    gateway: usize,
    life: u64,
    /// How long it runs.
    ms: u64,
}

async fn converse(stream: TcpStream, seen: &Seen) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let (stream, mut buffer) = (Arc::new(stream), Vec::new());
    while let Some(request) = read_request(&stream, &mut buffer).await? {
        let reply = answer(&request, &stream, seen).await?;
        write_all(&stream, &reply).await?;
    }
    Ok(())
}

async fn answer(
    request: &Request,
    stream: &Arc<TcpStream>,
    seen: &Seen,
) -> anyhow::Result<Vec<u8>> {
    if request.method != "POST" {
        let status = if request.method == "DELETE" {
            "200 OK"
        } else {
            "405 Method Not Allowed"
        };
        return Ok(reply(status, "", &Value::Null));
    }
    let message: Value = serde_json::from_slice(&request.body).context("parse the message")?;
    let result = |headers: &str, result: Value| {
        let message = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        reply("200 OK", headers, &message)
    };
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => {
            let id = lock(&seen.ledger).open();
            let about = json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "witness", "version": "1"},
            });
            Ok(result(&format!("mcp-session-id: {id}\r\n"), about))
        }
        "tools/list" => {
            let tool = json!({"name": "count", "inputSchema": {"type": "object"}});
            Ok(result("", json!({"tools": [tool]})))
        }
        "tools/call" => {
            let session = request.session.as_deref().context("a session")?;
            let arguments = Arguments::deserialize(&message["params"]["arguments"])?;
            let Some(count) = seen.run(session, &arguments, stream).await else {
                return Ok(reply("404 Not Found", "", &Value::Null));
            };
            let content = json!({"type": "text", "text": count.to_string()});
            let structured = json!({"count": count, "session": session});
            Ok(result(
                "",
                json!({"content": [content], "structuredContent": structured}),
            ))
        }
        _ if message["id"].is_null() => Ok(reply("202 Accepted", "", &Value::Null)),
        _ => Ok(result("", json!({}))),
    }
}

impl Seen {
    /// Runs a call; its count.
    async fn run(
        &self,
        session: &str,
        arguments: &Arguments,
        stream: &Arc<TcpStream>,
    ) -> Option<u64> {
        let name = CallName {
            user: arguments.user,
            number: arguments.number,
        };
        let call = RunningCall {
            name,
            through: GatewayLife {
                gateway: arguments.gateway,
                life: arguments.life,
            },
            began: self.started.elapsed(),
            connection: Arc::clone(stream),
        };
        let is_over = |running: &RunningCall<Arc<TcpStream>>| {
            self.is_dead(running.through) && is_closed(&running.connection)
        };
        let count = lock(&self.ledger).begin(session, call, is_over)?;
        if arguments.ms > 0 {
            tokio::time::sleep(Duration::from_millis(arguments.ms)).await;
        }
        lock(&self.ledger).end(session, name);
        Some(count)
    }

    /// Whether the process was killed that a call was sent to.
    fn is_dead(&self, GatewayLife { gateway, life }: GatewayLife) -> bool {
        let now = self
            .lives
            .get(gateway)
            .map(|life| life.load(Ordering::SeqCst));
        life % 2 == 1 || now != Some(life)
    }
}

/// Whether the other side has closed the connection, at this moment.
fn is_closed(stream: &TcpStream) -> bool {
    match SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

struct Request {
    method: String,
    session: Option<String>,
    body: Vec<u8>,
}

/// The next request; none at the end of the connection.
async fn read_request(stream: &TcpStream, buffer: &mut Vec<u8>) -> anyhow::Result<Option<Request>> {
    loop {
        if let Some(request) = parse_request(buffer)? {
            return Ok(Some(request));
        }
        stream.readable().await?;
        match stream.try_read_buf(buffer) {
            Ok(0) => return Ok(None),
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => {
                return Err(error.into());
            }
            _ => {}
        }
    }
}

fn parse_request(buffer: &mut Vec<u8>) -> anyhow::Result<Option<Request>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head_bytes) = head.parse(buffer)? else {
        return Ok(None);
    };
    let header = |name: &str| -> anyhow::Result<Option<&str>> {
        let found = (head.headers.iter()).find(|header| header.name.eq_ignore_ascii_case(name));
        Ok(found
            .map(|header| std::str::from_utf8(header.value))
            .transpose()?)
    };
    ensure!(
        header("transfer-encoding")?.is_none(),
        "a body has a length"
    );
    let body_bytes: usize = header("content-length")?.unwrap_or("0").parse()?;
    let whole = head_bytes + body_bytes;
    if buffer.len() < whole {
        return Ok(None);
    }
    let request = Request {
        method: head.method.context("a method")?.to_owned(),
        session: header("mcp-session-id")?.map(str::to_owned),
        body: buffer[head_bytes..whole].to_vec(),
    };
    buffer.drain(..whole);
    Ok(Some(request))
}

fn reply(status: &str, headers: &str, body: &Value) -> Vec<u8> {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> anyhow::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => {
                return Err(error.into());
            }
            Err(_) => {}
        }
    }
    Ok(())
}
