//! Upstreams and proxies whose replies get out of step with the requests: no user ever gets the reply to a request that
//! was not theirs, and clients that use one id for every request get their own replies too.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use mooring_tests::client::HttpClient;
use mooring_tests::code::USER;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::paths;
use mooring_tests::session::{McpSession, Opening, read_exchange};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// How often the server misbehaves: at each such call.
const FAULT_EVERY: usize = 3;
/// Calls of each session.
const CALLS: usize = 25;
const SESSIONS: usize = 8;

/// What is wrong with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
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

/// A server that echoes, over connections that it keeps, with a fault.
struct Echo {
    port: u16,
    accepting: JoinHandle<()>,
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

#[derive(Default)]
struct Calls {
    count: AtomicUsize,
    /// The id and the text of the last call.
    last: std::sync::Mutex<(Value, String)>,
}

impl Echo {
    async fn start(fault: Fault) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let calls = Arc::<Calls>::default();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let calls = Arc::clone(&calls);
                // The gateway may close a connection at any time.
                tokio::spawn(async move {
                    let _ = serve(stream, fault, &calls).await;
                });
            }
        });
        Ok(Self { port, accepting })
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }
}

async fn serve(mut stream: TcpStream, fault: Fault, calls: &Calls) -> anyhow::Result<()> {
    loop {
        let (method, length) = read_head(&mut stream).await?;
        let is_faulty =
            || (calls.count.fetch_add(1, Ordering::SeqCst) + 1).is_multiple_of(FAULT_EVERY);
        // A body of this length is that of a call.
        let is_early = fault == Fault::Early && length > 150 && is_faulty();
        if is_early {
            let (id, text) = calls.last.lock().unwrap().clone();
            stream.write_all(&reply(&id, &text)).await?;
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        if method != "POST" {
            stream
                .write_all(b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n")
                .await?;
            continue;
        }
        let message: Value = serde_json::from_slice(&body)?;
        let id = message["id"].clone();
        let text = match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "echo", "version": "1"}});
                let number = calls.count.load(Ordering::SeqCst);
                let body = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
                let head = format!(
                    "mcp-session-id: {number}-{}\r\n",
                    stream.peer_addr()?.port()
                );
                stream.write_all(&http("200 OK", &head, &body)).await?;
                continue;
            }
            "tools/call" => message["params"]["arguments"]["text"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            "tools/list" => {
                let tools = json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]});
                let body = json!({"jsonrpc": "2.0", "id": id, "result": tools}).to_string();
                stream.write_all(&http("200 OK", "", &body)).await?;
                continue;
            }
            _ if fault == Fault::LateBody => {
                let (id, text) = calls.last.lock().unwrap().clone();
                let late = reply(&id, &text);
                let head = format!(
                    "HTTP/1.1 204 No Content\r\ncontent-length: {}\r\n\r\n",
                    late.len()
                );
                stream.write_all(head.as_bytes()).await?;
                tokio::time::sleep(Duration::from_millis(5)).await;
                stream.write_all(&late).await?;
                continue;
            }
            _ => {
                stream
                    .write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
                    .await?;
                continue;
            }
        };
        let (last_id, last_text) = {
            let mut last = calls.last.lock().unwrap();
            std::mem::replace(&mut *last, (id.clone(), text.clone()))
        };
        let answer = match fault {
            Fault::Surplus if is_faulty() => {
                [reply(&id, &text), reply(&last_id, &last_text)].concat()
            }
            Fault::OtherId if is_faulty() => reply(&last_id, &last_text),
            Fault::OtherIdInEvent if is_faulty() => {
                let message = result(&last_id, &last_text);
                http("200 OK", "", &format!("data: {message}\n\n"))
            }
            Fault::TwoIds if is_faulty() => {
                let message = result(&id, &last_text).replacen('{', &format!("{{\"id\":{id},"), 1);
                http("200 OK", "", &message)
            }
            Fault::NoId if is_faulty() => {
                let message = json!({"jsonrpc": "2.0", "result": content(&last_text)});
                http("200 OK", "", &message.to_string())
            }
            Fault::Html if is_faulty() => http("200 OK", "", &format!("<html>{last_text}</html>")),
            _ => reply(&id, &text),
        };
        stream.write_all(&answer).await?;
    }
}

/// The method of a request, and the length of its body.
async fn read_head(stream: &mut TcpStream) -> anyhow::Result<(String, usize)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head)?.to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let method = head
        .split(' ')
        .next()
        .unwrap_or_default()
        .to_ascii_uppercase();
    Ok((method, length.unwrap_or("0").parse()?))
}

fn content(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

fn result(id: &Value, text: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": content(text)}).to_string()
}

fn reply(id: &Value, text: &str) -> Vec<u8> {
    http("200 OK", "", &result(id, text))
}

fn http(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let kind = match body.starts_with("data:") {
        true => "text/event-stream",
        false => "application/json",
    };
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{headers}content-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// Opens a session. A server with a fault may spoil a handshake too.
async fn open(client: &HttpClient, endpoint: &str, user: &str) -> anyhow::Result<McpSession> {
    let mut attempts_left = 20;
    loop {
        let opening = Opening::default().header(USER, user)?;
        match McpSession::open_with(client, &[endpoint.to_owned()], opening).await {
            Ok(session) => return Ok(session),
            Err(error) if attempts_left == 0 => return Err(error),
            Err(_) => attempts_left -= 1,
        }
    }
}

/// Calls of one session, each with a text that no other has. Errors are allowed, foreign texts are not.
async fn call_repeatedly(endpoint: String, number: usize) -> anyhow::Result<usize> {
    let client = HttpClient::default();
    let user = ["ann", "bob"][number % 2];
    let mut session = open(&client, &endpoint, user).await?;
    let tool = match endpoint.contains("/all/") {
        true => "web__echo",
        false => "echo",
    };
    let mut answered = 0;
    for call in 0..CALLS {
        let own = format!("{user}-{number}-{call}-{:032x}", rand_text());
        let params = json!({"name": tool, "arguments": {"text": own}});
        let body = session.request_body("tools/call", params);
        // All users number their requests in the same way.
        let reply = session.post(&body).await?;
        if !reply.status.is_success() {
            reply.bytes().await?;
            continue;
        }
        let text = reply.text().await?;
        let is_error = text.contains("\"error\"");
        ensure!(is_error || text.contains(&own), "call {own} got {text}");
        for other in ["ann-", "bob-"] {
            let foreign = text
                .split(other)
                .skip(1)
                .filter(|_| !text.contains(&own))
                .count();
            ensure!(foreign == 0, "call {own} got {text}");
        }
        answered += usize::from(!is_error);
    }
    Ok(answered)
}

fn rand_text() -> u128 {
    u128::from(fastrand::u64(..)) << 64 | u128::from(fastrand::u64(..))
}

async fn check(fault: Fault) -> anyhow::Result<()> {
    let echo = Echo::start(fault).await?;
    let url = echo.url();
    let settings = Settings::toml(format!(
        "[[servers]]\nid = \"web\"\naffinity = \"on\"\ninstances = [{url:?}]\n\
         [[servers]]\nid = \"shared\"\naffinity = \"off\"\ninstances = [{url:?}]\n\
         [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"web\"]\n"
    ))
    .users_by_header();
    let gateway = Gateway::start("foreign", settings).await?;
    for server in ["web", "shared", "all"] {
        let mut sessions = JoinSet::new();
        for number in 0..SESSIONS {
            sessions.spawn(call_repeatedly(gateway.mcp_url(server), number));
        }
        let mut answered = 0;
        while let Some(session) = sessions.join_next().await {
            answered += session?.with_context(|| format!("{fault:?} at {server}"))?;
        }
        // Most calls have nothing wrong with them.
        let least = SESSIONS * CALLS / 3;
        assert!(
            answered >= least,
            "{fault:?} at {server}: {answered} answered"
        );
    }
    let mismatched = ["source=\"upstream\""];
    let counted = gateway
        .metric("mooring_mismatched_replies_total", &mismatched)
        .await?;
    match fault {
        Fault::OtherId | Fault::OtherIdInEvent => assert!(counted > 0.0, "{fault:?}"),
        _ => {}
    }
    Ok(())
}

#[tokio::test]
async fn a_surplus_reply_reaches_nobody() -> anyhow::Result<()> {
    check(Fault::Surplus).await
}

#[tokio::test]
async fn a_late_body_of_a_reply_without_one_reaches_nobody() -> anyhow::Result<()> {
    check(Fault::LateBody).await
}

#[tokio::test]
async fn a_reply_that_came_before_its_request_reaches_nobody() -> anyhow::Result<()> {
    check(Fault::Early).await
}

#[tokio::test]
async fn a_reply_with_the_id_of_another_request_reaches_nobody() -> anyhow::Result<()> {
    check(Fault::OtherId).await?;
    check(Fault::OtherIdInEvent).await
}

#[tokio::test]
async fn a_reply_with_two_ids_none_or_another_shape_is_an_error() -> anyhow::Result<()> {
    check(Fault::TwoIds).await?;
    check(Fault::NoId).await?;
    check(Fault::Html).await
}

/// A server over standard input that answers each call in its own time, whatever is cancelled.
const SLOW_SERVER: &str = r#"
import json, sys, threading, time
lock = threading.Lock()
def say(message):
    with lock:
        print(json.dumps(message), flush=True)
def answer(message):
    arguments = message["params"]["arguments"]
    time.sleep(arguments["seconds"])
    content = [{"type": "text", "text": arguments["text"]}]
    say({"jsonrpc": "2.0", "id": message["id"], "result": {"content": content}})
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        say({"jsonrpc": "2.0", "id": message["id"], "result": {"protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}}, "serverInfo": {"name": "slow", "version": "1"}}})
    elif method == "tools/call":
        threading.Thread(target=answer, args=(message,), daemon=True).start()
    elif method == "tools/list":
        say({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": [
            {"name": "wait", "inputSchema": {"type": "object"}}]}})
    elif "id" in message:
        say({"jsonrpc": "2.0", "id": message["id"], "result": {}})
"#;

/// Some clients give every request the id 1. After a cancellation the answer to the earlier call may still come.
#[tokio::test]
async fn a_client_that_numbers_every_request_1_gets_its_own_replies() -> anyhow::Result<()> {
    let python = paths::tool("python")?;
    let command = json!([python, "-c", SLOW_SERVER]).to_string();
    let settings = Settings::toml(format!(
        "[[servers]]\nid = \"serial\"\nkind = \"stdio\"\ncommand = {command}\n\
         [[servers]]\nid = \"parallel\"\nkind = \"stdio\"\nconcurrency = \"parallel\"\ncommand = {command}\n\
         [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"serial\"]\n"
    ));
    let gateway = Gateway::start("ones", settings).await?;
    let client = HttpClient::default();
    let tools = HashMap::from([
        ("serial", "wait"),
        ("parallel", "wait"),
        ("all", "serial__wait"),
    ]);
    for (server, tool) in tools {
        let mut session = McpSession::open(&client, &[gateway.mcp_url(server)]).await?;
        let call = |text: &str, seconds: f64| {
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params":
                {"name": tool, "arguments": {"text": text, "seconds": seconds}}})
        };
        let mut slow = session.fork(&client, &[gateway.mcp_url(server)]);
        let slow_call = call("old", 3.0);
        let waiting = tokio::spawn(async move { slow.post(&slow_call).await });
        // The server has it.
        tokio::time::sleep(Duration::from_millis(700)).await;
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
        assert_eq!(session.post(&cancel).await?.status, 202, "{server}");
        let next = call("new", 2.5);
        let reply = session.post(&next).await?;
        let answer = read_exchange(reply, &next).await?.response;
        assert_eq!(
            answer["result"]["content"][0]["text"], "new",
            "{server}: {answer}"
        );
        // Two requests with one id at a time, of which each gets its own reply.
        if server == "parallel" {
            let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
            let both = call("both", 1.0);
            let mut other = session.fork(&client, &[gateway.mcp_url(server)]);
            let (called, listed) = tokio::try_join!(session.post(&both), other.post(&list))?;
            let listed = read_exchange(listed, &list).await?.response;
            assert_eq!(listed["result"]["tools"][0]["name"], "wait", "{listed}");
            let called = read_exchange(called, &both).await?.response;
            assert_eq!(called["result"]["content"][0]["text"], "both", "{called}");
        }
        drop(waiting.await?);
    }
    Ok(())
}
