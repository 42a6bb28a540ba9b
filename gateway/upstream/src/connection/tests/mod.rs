//! A connection over a link whose other side is the test: what the server receives and sends, and what the client's
//! streams carry.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod calls;
mod ends;
mod general_stream;
mod idle;
mod questions;
mod readers;
mod resuming;

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use super::actor::QUESTIONS_MAX;
use super::link::{LinkEnd, TransportEnd, pair};
use super::*;
use mooring_protocol::{EventStream, ReplyBody};

/// All capabilities.
const ALL: &str = r#"{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}"#;
const OLDER: &str = "2025-06-18";
const NEWER: &str = "2025-11-25";

struct Bench {
    connection: Connection,
    transport_end: TransportEnd,
}

/// An event of a stream.
#[derive(Clone, Debug, PartialEq)]
struct ReceivedEvent {
    id: Option<String>,
    /// Null for a priming event.
    data: Value,
}

struct Stream(EventStream);

fn options() -> ConnectionOptions {
    ConnectionOptions {
        events_max: 100,
        event_bytes_max: 1 << 20,
        message_bytes_max: 1 << 20,
        client_answer_timeout: Duration::from_secs(60),
        epoch: 7,
        memory: None,
        server: "tools".into(),
        session: "d1ge57".into(),
    }
}

/// A connection after `initialize` with these capabilities and this revision.
async fn bench(options: ConnectionOptions, capabilities: &str, revision: &str) -> Bench {
    let (link, transport_end) = pair(16);
    let connection = Connection::start(link, options);
    let mut bench = Bench {
        connection,
        transport_end,
    };
    let initialize = format!(
        r#"{{"jsonrpc":"2.0","id":"boot:0","method":"initialize","params":{{"capabilities":{capabilities}}}}}"#
    );
    let mut stream = bench.call(&initialize).await;
    bench
        .server_sends(&format!(
            r#"{{"id":"boot:0","result":{{"protocolVersion":"{revision}"}}}}"#
        ))
        .await;
    let answer = stream.next().await.unwrap();
    assert_eq!(answer.id, None, "initialize cannot be resumed");
    assert_eq!(stream.next().await, None);
    bench
}

async fn older() -> Bench {
    bench(options(), ALL, OLDER).await
}

fn post(text: &str) -> Outgoing {
    let body = Bytes::copy_from_slice(text.as_bytes());
    Outgoing::forwarded(Method::POST, HeaderMap::new(), body)
}

fn get(after: Option<&str>) -> Outgoing {
    let mut headers = HeaderMap::new();
    if let Some(after) = after {
        headers.insert(LAST_EVENT_ID, HeaderValue::from_str(after).unwrap());
    }
    Outgoing::forwarded(Method::GET, headers, Bytes::new())
}

fn tools_call(id: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"c:0000000000000000000000000000000a:{id}","method":"tools/call","params":{{"name":"t","_meta":{{"progressToken":"c:0000000000000000000000000000000a:{id}"}}}}}}"#
    )
}

fn result(id: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"c:0000000000000000000000000000000a:{id}","result":{{"of":{id}}}}}"#
    )
}

impl Bench {
    async fn post(&self, text: &str) -> Reply {
        self.connection.serve(&post(text)).await.unwrap()
    }

    /// Posts a request, which the server reads.
    async fn call(&mut self, text: &str) -> Stream {
        let reply = self.post(text).await;
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(
            self.server_receives().await,
            serde_json::from_str::<Value>(text).unwrap()
        );
        Stream::of(reply)
    }

    async fn listen(&self, after: Option<&str>) -> Stream {
        Stream::of(self.connection.serve(&get(after)).await.unwrap())
    }

    /// The next message that the server receives.
    async fn server_receives(&mut self) -> Value {
        let text = self.transport_end.outgoing.recv().await.unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    /// Whether the server receives nothing, once the actor has processed all earlier messages.
    async fn server_receives_nothing(&mut self) -> bool {
        let reply = self.post(r#"{"method":"notifications/mark"}"#).await;
        assert_eq!(reply.status, StatusCode::ACCEPTED);
        self.server_receives().await["method"] == "notifications/mark"
    }

    async fn server_sends(&self, text: &str) {
        let text = Bytes::copy_from_slice(text.as_bytes());
        self.transport_end.incoming.send(text).await.unwrap();
    }

    /// Waits until the connection has processed everything that the server sent: it answers a ping after the rest.
    async fn wait_processed(&mut self) {
        self.server_sends(r#"{"id":"heard","method":"ping"}"#).await;
        assert_eq!(
            self.server_receives().await,
            json!({"jsonrpc": "2.0", "id": "heard", "result": {}})
        );
    }
}

impl Stream {
    fn of(reply: Reply) -> Self {
        assert_eq!(reply.status, StatusCode::OK);
        match reply.body {
            ReplyBody::Events(events) => Self(events),
            other => panic!("{other:?} instead of events"),
        }
    }

    /// The next event; `None` at an end without an error.
    async fn next(&mut self) -> Option<ReceivedEvent> {
        self.try_next().await.map(Result::unwrap)
    }

    async fn try_next(&mut self) -> Option<Result<ReceivedEvent, String>> {
        let event = match self.0.next().await? {
            Ok(event) => event,
            Err(error) => return Some(Err(error.to_string())),
        };
        let data = event.data.unwrap();
        Some(Ok(ReceivedEvent {
            id: event.id.map(Into::into),
            data: match &*data {
                b"" => Value::Null,
                data => serde_json::from_slice(data).unwrap(),
            },
        }))
    }

    async fn data(&mut self) -> Value {
        self.next().await.unwrap().data
    }

    async fn rest(&mut self) -> Vec<Value> {
        let mut rest = Vec::new();
        while let Some(seen) = self.next().await {
            rest.push(seen.data);
        }
        rest
    }
}

async fn json_of(reply: Reply) -> Value {
    let text = reply.body.read_text(1 << 20).await.unwrap();
    serde_json::from_slice(&text).unwrap()
}
