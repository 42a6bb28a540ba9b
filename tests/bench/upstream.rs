//! The upstream of the benchmark: an MCP server that counts per session, and does nothing else.
//!
//! It is this same program, started again as a process of its own, so that its CPU time is not the load
//! generator's. Invariant: a session counts 1, 2, 3 ... in the order of its calls, and a session that was not
//! opened here is answered 404, so a call that reached the wrong place cannot look right.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use mooring_tests::port::free_port;
use mooring_tests::process::Process;
use mooring_tests::session::PROTOCOL_VERSION;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::{TcpSocket, TcpStream};

use crate::wire::{Request, Wire};

/// The path of its MCP endpoint.
pub(crate) const PATH: &str = "/mcp";

/// The upstream as a process.
#[derive(Debug)]
pub(crate) struct Upstream {
    process: Process,
    port: u16,
    log_directory: PathBuf,
}

impl Upstream {
    pub(crate) async fn start(log_directory: &Path) -> anyhow::Result<Self> {
        let port = free_port()?;
        let mut upstream = Self {
            process: spawn(port, log_directory)?,
            port,
            log_directory: log_directory.to_owned(),
        };
        upstream.ready().await?;
        Ok(upstream)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn kill_now(&mut self) -> anyhow::Result<()> {
        self.process.kill_now()
    }

    /// Starts again on the same port, without the sessions it had.
    pub(crate) async fn restart(&mut self) -> anyhow::Result<()> {
        self.process.kill_now()?;
        self.process = spawn(self.port, &self.log_directory)?;
        self.ready().await
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let port = self.port;
        self.process
            .ready(async || Ok(TcpStream::connect(("127.0.0.1", port)).await.map(drop)?))
            .await
    }
}

fn spawn(port: u16, log_directory: &Path) -> anyhow::Result<Process> {
    let program = std::env::current_exe().context("find this program")?;
    Process::start(
        "upstream",
        Command::new(program).args(["upstream", &port.to_string()]),
        &log_directory.join(format!("upstream-{port}.log")),
    )
}

/// More connections than any part opens at the same moment: one that is not accepted would be tried again after a second.
const BACKLOG: u32 = 4096;

type Counts = Rc<RefCell<HashMap<String, u64>>>;

/// Serves for ever.
pub(crate) async fn serve(port: u16) -> anyhow::Result<()> {
    let socket = TcpSocket::new_v4().context("make a socket")?;
    socket.set_reuseaddr(true).context("make a socket")?;
    let address = (Ipv4Addr::LOCALHOST, port).into();
    socket.bind(address).context("bind the port")?;
    let listener = socket.listen(BACKLOG).context("listen")?;
    let counts = Counts::default();
    let server = async {
        loop {
            let (stream, _) = listener.accept().await.context("accept")?;
            let counts = Rc::clone(&counts);
            tokio::task::spawn_local(async move {
                // A peer that hangs up in the middle of a request is of no interest.
                let _ = converse(stream, port, &counts).await;
            });
        }
    };
    tokio::task::LocalSet::new().run_until(server).await
}

async fn converse(stream: TcpStream, port: u16, counts: &Counts) -> anyhow::Result<()> {
    let mut wire = Wire::new(stream)?;
    while let Some(request) = wire.request().await? {
        let Reply { bytes, after } = answer(&request, port, counts);
        if !after.is_zero() {
            tokio::time::sleep(after).await;
        }
        wire.send(&bytes).await?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Default, Deserialize)]
struct Params<'a> {
    #[serde(borrow, default)]
    arguments: Arguments<'a>,
}

/// What a call asks for; see [`crate::load::Call`].
#[derive(Default, Deserialize)]
struct Arguments<'a> {
    #[serde(default)]
    events: usize,
    #[serde(default)]
    reply_after_ms: u64,
    #[serde(default)]
    text: &'a str,
}

/// A reply, and the pause before it.
struct Reply {
    bytes: Vec<u8>,
    after: Duration,
}

impl From<Vec<u8>> for Reply {
    fn from(bytes: Vec<u8>) -> Self {
        let after = Duration::ZERO;
        Self { bytes, after }
    }
}

fn answer(request: &Request, port: u16, counts: &Counts) -> Reply {
    let session = request.session.as_deref();
    if !request.is_post {
        let ended = session.and_then(|id| counts.borrow_mut().remove(id));
        let status = match ended {
            Some(_) => "200 OK",
            None => "404 Not Found",
        };
        return empty(status).into();
    }
    let Ok(call) = serde_json::from_slice::<Call<'_>>(&request.body) else {
        return empty("400 Bad Request").into();
    };
    let Some(id) = call.id else {
        return empty("202 Accepted").into();
    };
    if call.method == "initialize" {
        return initialize(id, port, &mut counts.borrow_mut()).into();
    }
    let mut counts = counts.borrow_mut();
    let Some(count) = session.and_then(|session| counts.get_mut(session)) else {
        return empty("404 Not Found").into();
    };
    if call.method != "tools/call" {
        return json(
            "",
            &format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}"),
        )
        .into();
    }
    *count += 1;
    let arguments = call.params.unwrap_or_default().arguments;
    let text = arguments.text;
    let result = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"{count}{text}\"}}],\
         \"structuredContent\":{{\"count\":{count},\"instance\":{port}}}}}}}"
    );
    Reply {
        bytes: match arguments.events {
            0 => json("", &result),
            events => stream(events, &result),
        },
        after: Duration::from_millis(arguments.reply_after_ms),
    }
}

/// A stream of this many events and the result, one chunk each.
fn stream(events: usize, result: &str) -> Vec<u8> {
    const EVENT: &str = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"working\"}}\n\n";
    let chunk = |data: &str| format!("{:x}\r\n{data}\r\n", data.len());
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let result = chunk(&format!("data: {result}\n\n"));
    format!("{head}{}{result}0\r\n\r\n", chunk(EVENT).repeat(events)).into_bytes()
}

fn initialize(id: &RawValue, port: u16, counts: &mut HashMap<String, u64>) -> Vec<u8> {
    // Unlike that of any other process: a restarted one must not know the sessions of the one before.
    let session = format!("{port}-{}-{}", std::process::id(), counts.len());
    counts.insert(session.clone(), 0);
    json(
        &format!("Mcp-Session-Id: {session}\r\n"),
        &format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"protocolVersion\":\"{}\",\
             \"capabilities\":{{\"tools\":{{}}}},\"serverInfo\":{{\"name\":\"counting\",\"version\":\"1\"}}}}}}",
            PROTOCOL_VERSION
        ),
    )
}

fn empty(status: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

fn json(headers: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
