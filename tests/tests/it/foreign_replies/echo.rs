//! A server over HTTP that echoes, over connections that it keeps, with a fault.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How often a server misbehaves: at each such call.
pub(super) const FAULT_EVERY: usize = 3;
/// A body of this length is that of a call.
const CALL_BYTES_MIN: usize = 150;
/// How late a body is that comes late.
const LATE_BY: Duration = Duration::from_millis(5);

/// What is wrong with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A reply is followed by another one, with the text of an earlier call.
    Surplus,
    /// A notification is answered with 204, a length, and a body that comes late.
    LateBody,
    /// A call is answered before its body was read, and again afterwards.
    Early,
    /// A reply has the id of an earlier request.
    OtherId,
    /// The same, in an event.
    OtherIdInEvent,
    /// A reply has two ids.
    TwoIds,
    /// A reply has no id.
    NoId,
    /// A reply is a page of HTML.
    Html,
}

impl Fault {
    pub(super) const ALL: [Self; 8] = [
        Self::Surplus,
        Self::LateBody,
        Self::Early,
        Self::OtherId,
        Self::OtherIdInEvent,
        Self::TwoIds,
        Self::NoId,
        Self::Html,
    ];
}

/// A server.
pub(super) struct Echo {
    port: u16,
    calls: Arc<Calls>,
    accepting: JoinHandle<()>,
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The calls of all connections.
#[derive(Default)]
pub(super) struct Calls {
    count: AtomicUsize,
    spoiled: AtomicUsize,
    /// The id and the text of the last call.
    last: Mutex<(Value, String)>,
}

impl Calls {
    /// Counts a call that may be answered wrongly; whether it is.
    pub(super) fn is_due(&self) -> bool {
        (self.count.fetch_add(1, Ordering::SeqCst) + 1).is_multiple_of(FAULT_EVERY)
    }

    /// Notes that a reply was spoiled.
    pub(super) fn note_spoiled(&self) {
        self.spoiled.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn spoiled(&self) -> usize {
        self.spoiled.load(Ordering::SeqCst)
    }

    pub(super) fn last(&self) -> (Value, String) {
        self.last.lock().unwrap().clone()
    }

    /// The last call, in whose place this one comes.
    pub(super) fn replace_last(&self, id: &Value, text: &str) -> (Value, String) {
        let mut last = self.last.lock().unwrap();
        std::mem::replace(&mut *last, (id.clone(), text.to_owned()))
    }
}

impl Echo {
    /// Starts one; without a fault, it is as servers should be.
    pub(super) async fn start(fault: Option<Fault>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let calls = Arc::<Calls>::default();
        let of_connections = Arc::clone(&calls);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let calls = Arc::clone(&of_connections);
                // The gateway may close a connection at any time.
                tokio::spawn(async move {
                    let _ = serve(stream, fault, &calls).await;
                });
            }
        });
        Ok(Self {
            port,
            calls,
            accepting,
        })
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Counts the replies that were spoiled.
    pub(super) fn count_spoiled(&self) -> impl Fn() -> usize + Send + Sync + 'static {
        let calls = Arc::clone(&self.calls);
        move || calls.spoiled()
    }
}

async fn serve(mut stream: TcpStream, fault: Option<Fault>, calls: &Calls) -> anyhow::Result<()> {
    loop {
        let head = read_head(&mut stream).await?;
        if fault == Some(Fault::Early) && head.length > CALL_BYTES_MIN && calls.is_due() {
            calls.note_spoiled();
            let (id, text) = calls.last();
            stream.write_all(&reply(&id, &text)).await?;
        }
        let mut body = vec![0; head.length];
        stream.read_exact(&mut body).await?;
        if head.method != "POST" {
            let refusal = b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(refusal).await?;
            continue;
        }
        let message: Value = serde_json::from_slice(&body)?;
        let id = &message["id"];
        match message["method"].as_str().unwrap_or_default() {
            "tools/call" => {
                let text = message["params"]["arguments"]["text"].as_str();
                let answer = answer_call(id, text.unwrap_or_default(), fault, calls);
                stream.write_all(&answer).await?;
            }
            "initialize" => {
                let number = calls.count.load(Ordering::SeqCst);
                let port = stream.peer_addr()?.port();
                let session = format!("mcp-session-id: {number}-{port}\r\n");
                let body = response(id, &initialize_result());
                stream.write_all(&http("200 OK", &session, &body)).await?;
            }
            "tools/list" => {
                let body = response(id, &tools());
                stream.write_all(&http("200 OK", "", &body)).await?;
            }
            _ if fault == Some(Fault::LateBody) => {
                let (id, text) = calls.last();
                let late = reply(&id, &text);
                let length = late.len();
                let head = format!("HTTP/1.1 204 No Content\r\ncontent-length: {length}\r\n\r\n");
                stream.write_all(head.as_bytes()).await?;
                tokio::time::sleep(LATE_BY).await;
                calls.note_spoiled();
                stream.write_all(&late).await?;
            }
            _ => stream.write_all(ACCEPTED).await?,
        }
    }
}

/// The answer to a call, as it is sent.
fn answer_call(id: &Value, text: &str, fault: Option<Fault>, calls: &Calls) -> Vec<u8> {
    let (last_id, last_text) = calls.replace_last(id, text);
    let own = reply(id, text);
    let spoiled = match fault {
        None | Some(Fault::LateBody | Fault::Early) => return own,
        Some(Fault::Surplus) => [own.clone(), reply(&last_id, &last_text)].concat(),
        Some(Fault::OtherId) => reply(&last_id, &last_text),
        Some(Fault::OtherIdInEvent) => {
            let message = result(&last_id, &last_text);
            http("200 OK", "", &format!("data: {message}\n\n"))
        }
        Some(Fault::TwoIds) => {
            let message = result(id, &last_text).replacen('{', &format!("{{\"id\":{id},"), 1);
            http("200 OK", "", &message)
        }
        Some(Fault::NoId) => {
            let message = json!({"jsonrpc": "2.0", "result": content(&last_text)});
            http("200 OK", "", &message.to_string())
        }
        Some(Fault::Html) => http("200 OK", "", &format!("<html>{last_text}</html>")),
    };
    if last_text.is_empty() || !calls.is_due() {
        return own;
    }
    calls.note_spoiled();
    spoiled
}

/// The answer to a notification.
pub(super) const ACCEPTED: &[u8] = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n";

/// The head of a request.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) method: String,
    pub(super) target: String,
    /// Of the body.
    pub(super) length: usize,
}

pub(super) async fn read_head(stream: &mut TcpStream) -> anyhow::Result<Head> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let lower = head.to_ascii_lowercase();
    let length = lower
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut words = head.split(' ').map(str::to_owned);
    Ok(Head {
        method: words.next().unwrap_or_default(),
        target: words.next().unwrap_or_default(),
        length: length.unwrap_or("0").parse()?,
    })
}

pub(super) fn initialize_result() -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
        "serverInfo": {"name": "echo", "version": "1"}})
}

pub(super) fn tools() -> Value {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    json!({"tools": [{"name": "echo", "inputSchema": schema}]})
}

fn content(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// A response with this result.
pub(super) fn response(id: &Value, result: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

/// The response to a call.
pub(super) fn result(id: &Value, text: &str) -> String {
    response(id, &content(text))
}

fn reply(id: &Value, text: &str) -> Vec<u8> {
    http("200 OK", "", &result(id, text))
}

pub(super) fn http(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let kind = match body.starts_with("data:") {
        true => "text/event-stream",
        false => "application/json",
    };
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{headers}content-length: {length}\r\n\r\n{body}")
        .into_bytes()
}
