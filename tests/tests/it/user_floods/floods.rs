//! What a user may do to a gateway without a pause, and the upstream server that helps.
//!
//! Invariant: a flood goes on whatever it is answered, until its tasks are dropped.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Request;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mooring_tests::client::HttpClient;
use mooring_tests::gateway::Gateway;
use mooring_tests::legacy::LegacySession;
use mooring_tests::session::{McpSession, Opening};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::MIB;
use crate::rig::{connect_from, post_text};
use crate::scripted::Scripted;
use crate::user_shares::{ADA, USER, open_as};

/// The length of a reply that nobody reads.
const LONG_REPLY: usize = 6 * MIB;
/// How many tasks or connections a flood has.
const WIDTH: usize = 96;
/// How many requests are written at once where no reply is waited for.
const PIPELINED: usize = 8;

/// What one user does, without a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flood {
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
    Runs,
}

pub(super) const FLOODS: [Flood; 17] = [
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
    Flood::Runs,
];

/// Starts a flood of Ada's.
pub(super) async fn start_flood(flood: Flood, gateway: &Gateway) -> anyhow::Result<JoinSet<()>> {
    let mut tasks = JoinSet::new();
    let client = HttpClient::new(Duration::from_secs(120));
    let server = match flood {
        Flood::Lists => "all",
        Flood::InterimResponses | Flood::Comments => "noisy",
        Flood::HookedReplies => "hooked",
        Flood::Runs => "sandbox",
        Flood::RefusedCalls => "guarded",
        _ => "tools",
    };
    if flood == Flood::UnreadStream {
        tasks.spawn(unread_stream(gateway.url("/servers/tools/sse"), client));
        return Ok(tasks);
    }
    if flood == Flood::UnfinishedStreams {
        for _ in 0..4 {
            tasks.spawn(unfinished_streams(gateway.port()));
        }
        return Ok(tasks);
    }
    let session = open_as(&client, gateway, ADA, server).await?;
    let session = Arc::new(session);
    for _ in 0..WIDTH {
        let url = gateway.mcp_url(server);
        let client = HttpClient::new(Duration::from_secs(120));
        let mut session = session.fork(&client, std::slice::from_ref(&url));
        let raw = connect_from("127.0.0.1", gateway).await?;
        let endpoint = Endpoint {
            server,
            session: session.id().unwrap_or_default().to_owned(),
        };
        tasks.spawn(async move {
            // What a flood is refused is no failure of the test.
            let _ = match flood {
                Flood::UnfinishedBodies => unfinished_body(raw, &endpoint).await,
                Flood::UnreadReplies | Flood::HookedReplies => unread_reply(raw, &endpoint).await,
                Flood::LongArguments => long_arguments(&client, &mut session).await,
                Flood::OpenStreams => match session.listen(None).await {
                    Ok(_stream) => std::future::pending().await,
                    Err(error) => Err(error),
                },
                Flood::HeldCalls | Flood::InterimResponses | Flood::Comments | Flood::Runs => {
                    repeat(flood, &mut session).await
                }
                _ => pipelined(raw, endpoint.requests(flood)).await,
            };
            // Connections of floods stay open.
            std::future::pending::<()>().await;
        });
    }
    Ok(tasks)
}

/// Where Ada's requests go.
struct Endpoint {
    server: &'static str,
    session: String,
}

impl Endpoint {
    /// The head of a request with a body of this length.
    fn head(&self, session: &str, length: usize) -> String {
        let server = self.server;
        format!(
            "POST /servers/{server}/mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\n{session}{USER}: {ADA}\r\ncontent-length: {length}\r\n\r\n"
        )
    }

    /// A request of the session.
    fn request(&self, message: &Value) -> String {
        let text = message.to_string();
        let session = format!("mcp-session-id: {}\r\n", self.session);
        self.head(&session, text.len()) + &text
    }

    /// Some requests of a flood, which may be repeated.
    fn requests(&self, flood: Flood) -> String {
        let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
        let increment = call("increment", json!({}));
        match flood {
            Flood::Initialize => {
                let params = Opening::default().initialize_params();
                let text =
                    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
                let text = text.to_string();
                self.head("", text.len()) + &text
            }
            Flood::Lists => {
                let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
                self.request(&list)
            }
            Flood::RefusedCalls => self.request(&call("echo", json!({}))),
            Flood::Batches => {
                let with_id = |at| {
                    let mut message = increment.clone();
                    message["id"] = json!(at);
                    message
                };
                self.request(&(0..64).map(with_id).collect())
            }
            Flood::Cancellations => self.request(&increment) + &self.request(&cancelled),
            _ => self.request(&increment),
        }
    }
}

/// Sends these requests again and again, and waits for no reply before the next one.
async fn pipelined(raw: TcpStream, requests: String) -> anyhow::Result<()> {
    let (mut reading, mut writing) = raw.into_split();
    let requests = requests.repeat(PIPELINED);
    let write = async {
        loop {
            if let Err(error) = writing.write_all(requests.as_bytes()).await {
                return Err(error.into());
            }
            // Replies are read in between.
            tokio::task::yield_now().await;
        }
    };
    let read = async {
        let mut buffer = vec![0; 64 * 1024];
        while reading.read(&mut buffer).await? > 0 {}
        anyhow::bail!("the gateway closed the connection")
    };
    tokio::select! {
        ended = write => ended,
        ended = read => ended,
    }
}

/// Calls with arguments of 3 MiB. A refusal closes the connection.
async fn long_arguments(client: &HttpClient, session: &mut McpSession) -> anyhow::Result<()> {
    let padding = "x".repeat(3 * MIB);
    loop {
        let mut message = session.request_body("tools/call", Value::Null);
        let id = message["id"].take();
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"increment","arguments":{{"padding":"{padding}"}}}}}}"#
        );
        if let Ok(reply) = post_text(client, session, text).await {
            let _ = reply.text().await;
        }
    }
}

/// A server whose lists have ten thousand tools, and whose calls are answered without end.
pub(crate) async fn noisy() -> anyhow::Result<(JoinSet<()>, String)> {
    let mut scripted = Scripted::start_without_lists().await?;
    let url = scripted.url();
    let tool = |number| json!({"name": format!("tool{number}"), "description": "x".repeat(100), "inputSchema": {"type": "object"}});
    let tools: Vec<Value> = (0..10_000).map(tool).collect();
    // Written once: a server that wrote it for each request would be slower than the gateway.
    let result: Arc<str> = json!({"tools": tools}).to_string().into();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut answering = JoinSet::new();
        while let Ok(mut exchange) = scripted.next_within(Duration::from_secs(3600)).await {
            let id = exchange.request.json()["id"].clone();
            let result = Arc::clone(&result);
            let tool = exchange.request.json()["params"]["name"].clone();
            let is_list = exchange.request.method() == "tools/list";
            answering.spawn(async move {
                let _ = async {
                    if is_list {
                        let list = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
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

async fn unfinished_body(mut raw: TcpStream, endpoint: &Endpoint) -> anyhow::Result<()> {
    let length = 4 * MIB;
    raw.write_all(endpoint.head("", length).as_bytes()).await?;
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
async fn unread_reply(mut raw: TcpStream, endpoint: &Endpoint) -> anyhow::Result<()> {
    let call = call("big", json!({"bytes": LONG_REPLY}));
    raw.write_all(endpoint.request(&call).as_bytes()).await?;
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

fn call(tool: &str, arguments: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
}

/// Makes one call after another, and reads its reply to the end.
async fn repeat(flood: Flood, session: &mut McpSession) -> anyhow::Result<()> {
    loop {
        let (tool, arguments) = match flood {
            Flood::HeldCalls => ("hang", json!({})),
            Flood::InterimResponses => ("interim", json!({})),
            Flood::Runs => (
                "shell_exec",
                json!({"code": "print(1)", "language": "python"}),
            ),
            _ => ("comments", json!({})),
        };
        let params = json!({"name": tool, "arguments": arguments});
        let message = session.request_body("tools/call", params);
        let mut reply = session.post(&message).await?;
        if reply.is_event_stream() {
            while reply.next_event().await?.is_some() {}
        } else {
            let _ = reply.json().await;
        }
    }
}
