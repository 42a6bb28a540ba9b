//! The bridge against programs of every kind, over a real socket.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod abuse;
mod ending;
mod frames;
mod ordinary;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

use super::*;
use crate::calls::{CallError, CallErrorKind, NestedCall};

/// Small, so that they are met soon.
const LIMITS: BridgeLimits = BridgeLimits {
    request_bytes_max: 4096,
    result_bytes_max: 256 * 1024,
    depth_max: 8,
    calls_max: 100_000,
    at_once_max: 4,
};

/// Answers by the tool's name.
#[derive(Debug)]
struct Tools {
    begun: AtomicUsize,
    running: AtomicUsize,
    running_most: AtomicUsize,
    /// One for each call that has begun.
    begins: Semaphore,
    /// One for each call of `wait` that may end.
    ends: Semaphore,
}

/// Counts a call for as long as it runs, however it ends.
struct Running<'a>(&'a Tools);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Tools {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            running_most: AtomicUsize::new(0),
            begins: Semaphore::new(0),
            ends: Semaphore::new(0),
        })
    }

    /// Returns when so many more calls have begun.
    async fn have_begun(&self, calls: u32) {
        self.begins.acquire_many(calls).await.unwrap().forget();
    }
}

impl Callee for Tools {
    async fn call(&self, call: NestedCall) -> Result<Value, CallError> {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        let _running = Running(self);
        self.running_most.fetch_max(running, Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.begins.add_permits(1);
        match &*call.tool {
            "echo" => Ok(Value::Object(call.arguments)),
            "name" => Ok(json!([call.server, call.tool])),
            "wait" => {
                self.ends.acquire().await.unwrap().forget();
                Ok(Value::Null)
            }
            "long" => {
                let bytes = call.arguments["bytes"].as_u64().unwrap();
                Ok("x".repeat(usize::try_from(bytes).unwrap()).into())
            }
            "fail" => {
                let message = call.arguments["message"].as_str().unwrap();
                Err(CallErrorKind::ToolError.error(message))
            }
            "panic" => panic!("a defect"),
            other => Err(CallErrorKind::NotMounted.error(format!("{other} is not mounted"))),
        }
    }
}

/// The program's end.
struct Program(UnixStream);

impl Program {
    fn new(end: OwnedFd) -> Self {
        let end = std::os::unix::net::UnixStream::from(end);
        end.set_nonblocking(true).unwrap();
        Self(UnixStream::from_std(end).unwrap())
    }

    async fn send(&mut self, message: &Value) {
        self.send_bytes(&framed(&serde_json::to_vec(message).unwrap()))
            .await;
    }

    async fn send_bytes(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// The next answer; none at the end.
    async fn answer(&mut self) -> Option<Value> {
        let mut length = [0; 4];
        match self.0.read_exact(&mut length).await {
            Ok(_) => {}
            Err(_) => return None,
        }
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut frame).await.unwrap();
        Some(serde_json::from_slice(&frame).unwrap())
    }

    async fn ask(&mut self, message: &Value) -> Value {
        self.send(message).await;
        self.answer().await.expect("an answer")
    }

    /// The bridge still works.
    async fn is_fine(&mut self) {
        let answer = self.ask(&call(4711, "echo", json!({"fine": true}))).await;
        assert_eq!(answer, json!({"id": 4711, "result": {"fine": true}}));
    }
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap();
    [length.to_be_bytes().as_slice(), bytes].concat()
}

fn call(id: u64, tool: &str, arguments: Value) -> Value {
    json!({"id": id, "server": "some", "tool": tool, "arguments": arguments})
}

/// A bridge with its program's end.
fn bridge_within(limits: BridgeLimits) -> (Program, Bridge, Arc<Tools>) {
    let (host, end) = pair().unwrap();
    let tools = Tools::new();
    let bridge = serve(host, Arc::clone(&tools), limits);
    (Program::new(end), bridge, tools)
}

fn bridge() -> (Program, Bridge, Arc<Tools>) {
    bridge_within(LIMITS)
}
