//! A server over HTTP+SSE that echoes, and that spoils answers with the answer to another call, of any session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use anyhow::Context;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::duplex::Fault;
use super::echo::{ACCEPTED, Calls, http, initialize_result, read_head, response, result, tools};

const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

/// The server. Its faults take turns.
pub(super) struct SseEcho {
    port: u16,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

impl Drop for SseEcho {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Most messages of a session that wait to be written.
const MESSAGES_MAX: usize = 64;

struct State {
    faults: &'static [Fault],
    calls: Calls,
    /// The stream of each session, by what its address ends with.
    streams: Mutex<HashMap<String, mpsc::Sender<String>>>,
}

impl SseEcho {
    pub(super) async fn start(faults: &'static [Fault]) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(State {
            faults,
            calls: Calls::default(),
            streams: Mutex::default(),
        });
        let of_connections = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&of_connections);
                // The gateway may close a connection at any time.
                tokio::spawn(async move {
                    let _ = serve(stream, &state).await;
                });
            }
        });
        Ok(Self {
            port,
            state,
            accepting,
        })
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/sse", self.port)
    }

    /// Counts the answers that were spoiled.
    pub(super) fn count_spoiled(&self) -> impl Fn() -> usize + Send + Sync + 'static {
        let state = Arc::clone(&self.state);
        move || state.calls.spoiled()
    }
}

async fn serve(mut stream: TcpStream, state: &State) -> anyhow::Result<()> {
    loop {
        let head = read_head(&mut stream).await?;
        if head.method == "GET" {
            return serve_stream(stream, state).await;
        }
        let mut body = vec![0; head.length];
        stream.read_exact(&mut body).await?;
        let messages = {
            let streams = state.streams.lock().unwrap();
            streams.get(&head.target).cloned().context("a session")?
        };
        let (answers, posted) = answer(&serde_json::from_slice(&body)?, state);
        stream.write_all(&posted).await?;
        for answer in answers {
            messages.send(format!("data: {answer}\n\n")).await?;
        }
    }
}

/// The stream of a session, until either side closes it.
async fn serve_stream(mut stream: TcpStream, state: &State) -> anyhow::Result<()> {
    let address = format!("/messages/{}", stream.peer_addr()?.port());
    let (sender, mut messages) = mpsc::channel(MESSAGES_MAX);
    state
        .streams
        .lock()
        .unwrap()
        .insert(address.clone(), sender);
    let first = format!("{STREAM_HEAD}event: endpoint\ndata: {address}\n\n");
    stream.write_all(first.as_bytes()).await?;
    while let Some(message) = messages.recv().await {
        stream.write_all(message.as_bytes()).await?;
    }
    Ok(())
}

/// What the session's stream gets, and the response to the POST.
fn answer(message: &Value, state: &State) -> (Vec<String>, Vec<u8>) {
    let id = &message["id"];
    let own = match message["method"].as_str().unwrap_or_default() {
        "tools/call" => {
            let text = message["params"]["arguments"]["text"].as_str();
            return answer_call(id, text.unwrap_or_default(), state);
        }
        "initialize" => vec![response(id, &initialize_result())],
        "tools/list" => vec![response(id, &tools())],
        _ if id.is_null() => Vec::new(),
        _ => vec![response(id, &json!({}))],
    };
    (own, ACCEPTED.to_vec())
}

fn answer_call(id: &Value, text: &str, state: &State) -> (Vec<String>, Vec<u8>) {
    let calls = &state.calls;
    let (last_id, last_text) = calls.replace_last(id, text);
    let (own, other) = (result(id, text), result(&last_id, &last_text));
    if last_text.is_empty() || !calls.is_due() {
        return (vec![own], ACCEPTED.to_vec());
    }
    let fault = state.faults[calls.spoiled() % state.faults.len()];
    calls.note_spoiled();
    let surplus = match fault {
        Fault::Surplus => return (vec![own, other], ACCEPTED.to_vec()),
        Fault::Posted => return (vec![own], http("200 OK", "", &other)),
        Fault::Before => other,
        Fault::TwoIds => other.replacen('{', &format!("{{\"id\":{id},"), 1),
        Fault::NoId => {
            let mut message: Value = serde_json::from_str(&other).unwrap_or_default();
            message.as_object_mut().map(|members| members.remove("id"));
            message.to_string()
        }
        Fault::Cut => other[..other.len() - 4].to_owned(),
    };
    (vec![surplus, own], ACCEPTED.to_vec())
}
