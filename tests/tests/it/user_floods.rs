//! What one user's calls cost while another user floods the gateway, and how much memory the flood takes.
//!
//! Invariant: of each flood so much is on its way that the shares of the flooding user are used up; what counts is that none
//! of the other's calls fails, and that the gateway's memory stays below a bound that follows from its settings.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Request;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::hook::{Hook, HookAnswer};
use mooring_tests::legacy::LegacySession;
use mooring_tests::session::{McpSession, Opening};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::rig::{connect_from, resident_peak_kib};
use crate::scripted::Scripted;
use crate::user_shares::{ADA, BOB, USER, open_as};

const MIB: usize = 1024 * 1024;
/// Each budget, and the longest event.
const BUDGET: usize = 64 * MIB;
const EVENT_BYTES_MAX: usize = 8 * MIB;
/// The length of a reply that nobody reads.
const LONG_REPLY: usize = 6 * MIB;
/// How many tasks or connections a flood has.
const WIDTH: usize = 96;
/// Three times what a user may take of both budgets, and a process without load with what docs/limits.md lists besides.
const RESIDENT_MAX: usize = 3 * 2 * BUDGET / 4 + 128 * MIB;
/// How long a flood lasts before and while calls are measured.
const STRENGTH_AFTER: Duration = Duration::from_secs(3);
const CALLS: usize = 200;

/// What one user does, without a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flood {
    Calls,
    HeldCalls,
    UnfinishedBodies,
    UnfinishedStreams,
    UnreadReplies,
    UnreadStream,
    OpenStreams,
    Initialize,
    Lists,
    RefusedCalls,
    InterimResponses,
    Comments,
    HookedReplies,
    Batches,
    Cancellations,
    LongArguments,
}

const FLOODS: [Flood; 16] = [
    Flood::Calls,
    Flood::HeldCalls,
    Flood::UnfinishedBodies,
    Flood::UnfinishedStreams,
    Flood::UnreadReplies,
    Flood::UnreadStream,
    Flood::OpenStreams,
    Flood::Initialize,
    Flood::Lists,
    Flood::RefusedCalls,
    Flood::HookedReplies,
    Flood::Batches,
    Flood::Cancellations,
    Flood::LongArguments,
    Flood::Comments,
    Flood::InterimResponses,
];

/// The gateway and what is behind it.
struct Scene {
    gateway: Gateway,
    client: HttpClient,
    /// Answers lists of ten thousand tools, interim responses and comments, as the call says.
    _noisy: JoinSet<()>,
    _fixtures: [Fixture; 2],
    _hook: Hook,
}

impl Scene {
    async fn start() -> anyhow::Result<Self> {
        // What a flood costs its own server is not what is measured.
        let (fixture, calm) = (Fixture::start("one").await?, Fixture::start("calm").await?);
        let (noisy, url) = noisy().await?;
        let hook = Hook::start(|_| HookAnswer::allowed()).await?;
        let server = |id: &str, url: &str| {
            format!(
                "[[servers]]\nid = \"{id}\"\naffinity = \"on\"\nconcurrency = \"parallel\"\ninstances = [{url:?}]\n"
            )
        };
        let toml = [
            format!(
                "[listen]\nbody_budget_bytes = {BUDGET}\n\
                 [upstream]\nreply_budget_bytes = {BUDGET}\nevent_bytes_max = {EVENT_BYTES_MAX}\n\
                 [[calls.hooks]]\nurl = {:?}\nwhen = [\"after\"]\nservers = [\"hooked\"]\n",
                hook.url()
            ),
            server("tools", &fixture.url()),
            server("calm", &calm.url()),
            server("hooked", &fixture.url()),
            server("noisy", &url),
            format!(
                "[[servers]]\nid = \"piped\"\nkind = \"stdio\"\ncommand = {:?}\n",
                stdio_command("two", None, &[])?
            ),
            "[[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"tools\", \"noisy\"]\n"
                .to_owned(),
        ]
        .concat();
        let gateway = Gateway::start("flooded", Settings::toml(toml).users_by_header()).await?;
        Ok(Self {
            gateway,
            client: HttpClient::new(Duration::from_secs(120)),
            _noisy: noisy,
            _fixtures: [fixture, calm],
            _hook: hook,
        })
    }

    async fn session(&self, user: &str, server: &str) -> anyhow::Result<McpSession> {
        open_as(&self.client, &self.gateway, user, server).await
    }

    fn fork(&self, session: &McpSession, server: &str) -> McpSession {
        session.fork(
            &HttpClient::new(Duration::from_secs(120)),
            &[self.gateway.mcp_url(server)],
        )
    }

    /// The latencies of another user's calls, sorted, in milliseconds. A call that fails ends the test.
    async fn measure(&self, bob: &mut McpSession) -> anyhow::Result<Vec<f64>> {
        let mut latencies = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let begun = Instant::now();
            bob.increment().await?;
            latencies.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        latencies.sort_by(f64::total_cmp);
        Ok(latencies)
    }

    /// Lets the peak of the memory begin again.
    fn reset_peak(&mut self) -> anyhow::Result<()> {
        let file = format!("/proc/{}/clear_refs", self.gateway.process().id());
        Ok(std::fs::write(file, "5")?)
    }

    /// Starts a flood of Ada's.
    async fn flood(&self, flood: Flood) -> anyhow::Result<JoinSet<()>> {
        let mut tasks = JoinSet::new();
        let server = match flood {
            Flood::Lists => "all",
            Flood::InterimResponses | Flood::Comments => "noisy",
            Flood::HookedReplies => "hooked",
            _ => "tools",
        };
        let session = self.session(ADA, server).await?;
        if flood == Flood::UnreadStream {
            tasks.spawn(unread_stream(
                self.gateway.url("/servers/tools/sse"),
                self.client.clone(),
            ));
            return Ok(tasks);
        }
        if flood == Flood::UnfinishedStreams {
            for _ in 0..4 {
                tasks.spawn(unfinished_streams(self.gateway.port()));
            }
            return Ok(tasks);
        }
        let session = Arc::new(session);
        for number in 0..WIDTH {
            let mut session = self.fork(&session, server);
            let raw = connect_from("127.0.0.1", &self.gateway).await?;
            let url = self.gateway.mcp_url(server);
            tasks.spawn(async move {
                // What a flood is refused is no failure of the test.
                let _ = match flood {
                    Flood::UnfinishedBodies => unfinished_body(raw).await,
                    Flood::UnreadReplies | Flood::HookedReplies => {
                        unread_reply(raw, &session, server).await
                    }
                    Flood::Initialize => initialize(&url).await,
                    _ => repeat(flood, &mut session, number).await,
                };
                // Connections of floods stay open.
                std::future::pending::<()>().await;
            });
        }
        Ok(tasks)
    }
}

/// A server whose lists have ten thousand tools, and whose calls are answered without end.
async fn noisy() -> anyhow::Result<(JoinSet<()>, String)> {
    let mut scripted = Scripted::start_without_lists().await?;
    let url = scripted.url();
    let tool = |number| json!({"name": format!("tool{number}"), "description": "x".repeat(100), "inputSchema": {"type": "object"}});
    let tools: Vec<Value> = (0..10_000).map(tool).collect();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut answering = JoinSet::new();
        while let Ok(mut exchange) = scripted.next_within(Duration::from_secs(3600)).await {
            let list = json!({"jsonrpc": "2.0", "id": exchange.request.json()["id"], "result": {"tools": tools}});
            let tool = exchange.request.json()["params"]["name"].clone();
            let is_list = exchange.request.method() == "tools/list";
            answering.spawn(async move {
                let _ = async {
                    if is_list {
                        let list = list.to_string();
                        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", list.len());
                        return exchange.raw(head + &list).await;
                    }
                    let interim = tool == "interim";
                    if !interim {
                        exchange.raw("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await?;
                    }
                    let noise = match interim {
                        true => "HTTP/1.1 102 Processing\r\n\r\n".repeat(500),
                        false => ": noise\n".repeat(2000),
                    };
                    loop {
                        exchange.raw(&noise).await?;
                    }
                }
                .await;
            });
        }
    });
    Ok((tasks, url))
}

async fn unfinished_body(mut raw: TcpStream) -> anyhow::Result<()> {
    let length = 4 * MIB;
    let head = format!(
        "POST /servers/tools/mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\n{USER}: {ADA}\r\ncontent-length: {length}\r\n\r\n"
    );
    raw.write_all(head.as_bytes()).await?;
    raw.write_all(&vec![b' '; length - 1]).await?;
    std::future::pending().await
}

/// As many streams of one HTTP/2 connection as it may have, each with a body that does not end.
async fn unfinished_streams(port: u16) {
    let _ = async {
        let raw = TcpStream::connect(("127.0.0.1", port)).await?;
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(raw)).await?;
        let mut replies = JoinSet::new();
        for _ in 0..64 {
            let part = Frame::data(Bytes::from(vec![b' '; 4 * MIB - 1]));
            let body =
                stream::iter([Ok::<_, std::convert::Infallible>(part)]).chain(stream::pending());
            let request = Request::post(format!("http://localhost:{port}/servers/tools/mcp"))
                .header("content-type", "application/json")
                .header("accept", "application/json, text/event-stream")
                .header(USER, ADA)
                .body(StreamBody::new(Box::pin(body)))?;
            replies.spawn(sender.send_request(request));
        }
        connection.await?;
        anyhow::Ok(())
    }
    .await;
    std::future::pending().await
}

/// A call with a long reply, of which nothing is read.
async fn unread_reply(
    mut raw: TcpStream,
    session: &McpSession,
    server: &str,
) -> anyhow::Result<()> {
    let call = call("big", json!({"bytes": LONG_REPLY})).to_string();
    let (id, length) = (session.id().unwrap_or_default(), call.len());
    let head = format!(
        "POST /servers/{server}/mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-session-id: {id}\r\n{USER}: {ADA}\r\ncontent-length: {length}\r\n\r\n"
    );
    raw.write_all((head + &call).as_bytes()).await?;
    std::future::pending().await
}

/// A client of HTTP+SSE that makes calls with long replies and reads nothing of its stream.
async fn unread_stream(url: String, client: HttpClient) {
    loop {
        let _ = async {
            let opening = Opening {
                protocol_version: "2024-11-05".to_owned(),
                ..Opening::default().header(USER, ADA)?
            };
            let mut session = LegacySession::open_with(&client, &url, &opening).await?;
            for _ in 0..110 {
                let call = session.request_body(
                    "tools/call",
                    json!({"name": "big", "arguments": {"bytes": LONG_REPLY}}),
                );
                session.send(&call).await?;
            }
            tokio::time::sleep(Duration::from_secs(40)).await;
            anyhow::Ok(())
        }
        .await;
    }
}

async fn initialize(url: &str) -> anyhow::Result<()> {
    let client = HttpClient::default();
    loop {
        let opening = Opening::default().header(USER, ADA)?;
        let _ = McpSession::open_with(&client, &[url.to_owned()], opening).await;
    }
}

fn call(tool: &str, arguments: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
}

/// Sends one message after another.
async fn repeat(flood: Flood, session: &mut McpSession, number: usize) -> anyhow::Result<()> {
    if flood == Flood::OpenStreams {
        let _stream = session.listen(None).await?;
        return std::future::pending().await;
    }
    if flood == Flood::Batches {
        session.set_header("mcp-protocol-version", "2025-03-26")?;
    }
    loop {
        let id = session.request_body("ping", json!({}))["id"].clone();
        let with_id = |mut message: Value| {
            message["id"] = id.clone();
            message
        };
        let message = match flood {
            Flood::HeldCalls => with_id(call("hang", json!({}))),
            Flood::Lists => {
                with_id(json!({"jsonrpc": "2.0", "method": "tools/list", "params": {}}))
            }
            Flood::RefusedCalls => with_id(call(&format!("no-such-tool-{number}"), json!({}))),
            Flood::InterimResponses => with_id(call("interim", json!({}))),
            Flood::Comments => with_id(call("comments", json!({}))),
            Flood::LongArguments => {
                with_id(call("increment", json!({"padding": "x".repeat(3 * MIB)})))
            }
            Flood::Batches => Value::from(
                (0..64)
                    .map(|at| {
                        let mut message = call("increment", json!({}));
                        message["id"] = json!(format!("{id}-{at}"));
                        message
                    })
                    .collect::<Vec<_>>(),
            ),
            Flood::Cancellations => {
                let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
                session.post(&cancelled).await?;
                with_id(call("increment", json!({})))
            }
            _ => with_id(call("increment", json!({}))),
        };
        let mut reply = session.post(&message).await?;
        if reply.is_event_stream() {
            while reply.next_event().await?.is_some() {}
        } else {
            let _ = reply.json().await;
        }
    }
}

/// Prints a row for each flood. Its figures are in docs/benchmarks.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak"]
#[allow(clippy::print_stdout, reason = "the table is what the test is for")]
async fn soak_one_users_floods_beside_anothers_calls() -> anyhow::Result<()> {
    println!("| flood | p50 ms | p99 ms | p50 x alone | p99 x alone | peak MiB |");
    println!("|---|---|---|---|---|---|");
    let mut problems = Vec::new();
    for flood in FLOODS {
        let mut scene = Scene::start().await?;
        let mut bob = scene.session(BOB, "calm").await?;
        scene.measure(&mut bob).await?;
        let alone = scene.measure(&mut bob).await?;
        scene.reset_peak()?;
        let tasks = scene.flood(flood).await?;
        tokio::time::sleep(STRENGTH_AFTER).await;
        let beside = scene.measure(&mut bob).await;
        let peak = usize::try_from(resident_peak_kib(&mut scene.gateway)?)? * 1024;
        drop(tasks);
        let beside = match beside {
            Ok(beside) => beside,
            Err(error) => {
                println!("| {flood:?} | failed: {error} | | | | {} |", peak / MIB);
                problems.push(format!(
                    "{flood:?}: a call of another user failed: {error:#}"
                ));
                continue;
            }
        };
        let part = |of: &[f64], part: f64| of[((of.len() - 1) as f64 * part) as usize];
        let slower = |at| part(&beside, at) / part(&alone, at);
        println!(
            "| {flood:?} | {:.2} | {:.2} | {:.1} | {:.1} | {} |",
            part(&beside, 0.5),
            part(&beside, 0.99),
            slower(0.5),
            slower(0.99),
            peak / MIB
        );
        if peak > RESIDENT_MAX {
            problems.push(format!("{flood:?}: {} MiB", peak / MIB));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
    Ok(())
}
