//! An upstream whose bytes a test writes one by one: it stands for faults that no real server shows on demand, and
//! it remembers every request as it came.
//!
//! It makes the handshake, answers pings and lists no tools by itself; every other request waits, with its connection,
//! until the test takes it. Invariant: one connection carries at most one request that a test answers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// How long a request may take to arrive.
const ARRIVES_WITHIN: Duration = Duration::from_secs(60);

/// Most requests that wait for the test at once.
const WAITING_MAX: usize = 64;

/// What every upstream session id of this server begins with; a number follows.
pub(crate) const UPSTREAM_SESSION_PREFIX: &str = "upstream-secret-";

/// One request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) http_method: String,
    /// Its path and query.
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Seen {
    /// The value of a header; the name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    /// The JSON-RPC method; empty for a response, and where there is no body.
    pub(crate) fn method(&self) -> String {
        self.json()["method"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

/// What the server answers itself of the handshake and of what follows it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Handshake {
    Made,
    /// And lists are left to the test.
    MadeWithoutLists,
    LeftToTheTest,
}

/// The server.
pub(crate) struct Scripted {
    port: u16,
    waiting: mpsc::Receiver<Exchange>,
    seen: Arc<Mutex<Vec<Seen>>>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Scripted {
    /// Starts one that makes the handshake.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        Self::start_as(Handshake::Made).await
    }

    /// Starts one that leaves the answer to `initialize` to the test as well.
    pub(crate) async fn start_without_handshake() -> anyhow::Result<Self> {
        Self::start_as(Handshake::LeftToTheTest).await
    }

    /// Starts one that makes the handshake and leaves lists of tools to the test.
    pub(crate) async fn start_without_lists() -> anyhow::Result<Self> {
        Self::start_as(Handshake::MadeWithoutLists).await
    }

    async fn start_as(handshake: Handshake) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let (sender, waiting) = mpsc::channel(WAITING_MAX);
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let remembered = Arc::clone(&seen);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (sender, seen) = (sender.clone(), Arc::clone(&remembered));
                // A connection that breaks is the other side's doing; what it means shows in the test.
                tokio::spawn(async move {
                    let _ = serve(stream, handshake, &sender, &seen).await;
                });
            }
        });
        Ok(Self {
            port,
            waiting,
            seen,
            accepting,
        })
    }

    /// The MCP endpoint.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// The next request that waits for its answer.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Exchange> {
        self.next_within(ARRIVES_WITHIN).await
    }

    /// The same where it may take longer.
    pub(crate) async fn next_within(&mut self, limit: Duration) -> anyhow::Result<Exchange> {
        let next = tokio::time::timeout(limit, self.waiting.recv());
        let next = next.await.context("no request reached the upstream")?;
        next.context("the upstream has stopped")
    }

    /// Every request so far, in the order of arrival.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The JSON-RPC methods of every request so far, or the HTTP method where there is none.
    pub(crate) fn seen_methods(&self) -> Vec<String> {
        let name = |seen: Seen| match seen.method() {
            method if method.is_empty() => seen.http_method,
            method => method,
        };
        self.seen().into_iter().map(name).collect()
    }
}

async fn serve(
    mut stream: TcpStream,
    handshake: Handshake,
    sender: &mpsc::Sender<Exchange>,
    seen: &Mutex<Vec<Seen>>,
) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let request = read_request(&mut stream).await?;
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(request.clone());
            seen.len()
        };
        match own_answer(&request, handshake, number) {
            Some(answer) => stream.write_all(answer.as_bytes()).await?,
            None => {
                let _ = sender.send(Exchange { request, stream }).await;
                return Ok(());
            }
        }
    }
}

/// What the server answers without the test.
fn own_answer(request: &Seen, handshake: Handshake, number: usize) -> Option<String> {
    let id = request.json()["id"].clone();
    let result = |result: Value, headers: &str| {
        let body = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
        let length = body.len();
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        )
    };
    let method = request.method();
    match method.as_str() {
        "initialize" | "notifications/initialized" if handshake == Handshake::LeftToTheTest => None,
        "initialize" => {
            let session = format!("mcp-session-id: {UPSTREAM_SESSION_PREFIX}{number}\r\n");
            Some(result(initialize_result(), &session))
        }
        "notifications/initialized" => {
            Some("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned())
        }
        "ping" => Some(result(json!({}), "")),
        "tools/list" if handshake == Handshake::MadeWithoutLists => None,
        "tools/list" => Some(result(json!({"tools": []}), "")),
        _ if request.http_method == "DELETE" => {
            Some("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned())
        }
        _ => None,
    }
}

/// The result of `initialize`.
pub(crate) fn initialize_result() -> Value {
    json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "logging": {}},
        "serverInfo": {"name": "scripted", "version": "1"},
    })
}

/// Reads one request.
pub(crate) async fn read_request(stream: &mut TcpStream) -> anyhow::Result<Seen> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (http_method, target) = (words.next(), words.next());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut seen = Seen {
        http_method: http_method.context("a method")?.to_owned(),
        target: target.context("a target")?.to_owned(),
        headers,
        body: String::new(),
    };
    let length = seen.header("content-length").unwrap_or("0").parse()?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    seen.body = String::from_utf8(body)?;
    Ok(seen)
}

/// A request that waits for its answer, and the connection that the answer goes over. Dropping it closes the
/// connection without more.
pub(crate) struct Exchange {
    pub(crate) request: Seen,
    stream: TcpStream,
}

impl Exchange {
    /// The id in the form that the upstream sees, as JSON.
    pub(crate) fn wire_id(&self) -> String {
        self.request.json()["id"].to_string()
    }

    /// Writes bytes as they are.
    pub(crate) async fn raw(&mut self, bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
        Ok(self.stream.write_all(bytes.as_ref()).await?)
    }

    /// Answers with one body, and closes.
    pub(crate) async fn answer(
        mut self,
        status: &str,
        content_type: &str,
        body: &str,
    ) -> anyhow::Result<()> {
        let length = body.len();
        self.raw(format!(
            "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        ))
        .await?;
        self.close().await
    }

    /// Answers with a result, in one JSON body.
    pub(crate) async fn result(self, result: &Value) -> anyhow::Result<()> {
        let id = self.wire_id();
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        self.answer("200 OK", "application/json", &body).await
    }

    /// Begins a chunked body.
    pub(crate) async fn begin(&mut self, content_type: &str) -> anyhow::Result<()> {
        self.raw(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        ))
        .await
    }

    /// Begins a stream of events.
    pub(crate) async fn begin_events(&mut self) -> anyhow::Result<()> {
        self.begin("text/event-stream").await
    }

    /// Writes one chunk of the body.
    pub(crate) async fn chunk(&mut self, bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
        let bytes = bytes.as_ref();
        self.raw(format!("{:x}\r\n", bytes.len())).await?;
        self.raw(bytes).await?;
        self.raw("\r\n").await
    }

    /// Writes one event with this message.
    pub(crate) async fn event(&mut self, message: &str) -> anyhow::Result<()> {
        self.chunk(format!("data: {message}\n\n")).await
    }

    /// Ends the chunked body as it should be, and closes.
    pub(crate) async fn end(mut self) -> anyhow::Result<()> {
        self.raw("0\r\n\r\n").await?;
        self.close().await
    }

    /// Closes with a reset instead of the usual end.
    pub(crate) fn reset(self) -> anyhow::Result<()> {
        Ok(self.stream.set_zero_linger()?)
    }

    /// Whether the gateway has closed the connection.
    pub(crate) fn is_abandoned(&self) -> bool {
        let mut byte = [0];
        match self.stream.try_read(&mut byte) {
            Ok(read) => read == 0,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }

    /// Closes, and waits until the gateway has taken everything.
    async fn close(mut self) -> anyhow::Result<()> {
        self.stream.shutdown().await?;
        let mut rest = [0; 64];
        match tokio::time::timeout(ARRIVES_WITHIN, self.stream.read(&mut rest)).await {
            Ok(_) => Ok(()),
            Err(_) => bail!("the gateway does not close a connection that has ended"),
        }
    }
}
