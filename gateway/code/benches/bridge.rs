//! What the bridge costs: a call of a tool that answers at once, against as many bytes that a thread sends back over a
//! bare pair of sockets, one at a time and sixteen at once. The variants take turns, so that a busy machine is busy for
//! both.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a benchmark prints, and fails by panicking"
)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use mooring_code::bridge::{self, BridgeLimits};
use mooring_code::calls::{CallError, Callee, NestedCall};
use serde_json::Value;
use tokio::runtime::Runtime;

/// Turns of each variant.
const TURNS: usize = 10;
/// Calls of one turn.
const CALLS: u64 = 5_000;
/// Calls that are open at the same time, where several are.
const AT_ONCE: u64 = 16;

/// Answers at once, with what it was called with.
struct Immediate;

impl Callee for Immediate {
    async fn call(&self, call: NestedCall) -> Result<Value, CallError> {
        Ok(Value::Object(call.arguments))
    }
}

fn main() {
    // `cargo test --benches` runs this file too; without `--bench` it measures nothing.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = Runtime::new().expect("a runtime");
    println!(
        "| open calls | bare p50 us | bridge p50 us | ratio | bare calls/s | bridge calls/s |"
    );
    println!("|---|---|---|---|---|---|");
    for open in [1, AT_ONCE] {
        let (mut bare, mut bridged) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            bare.push(over_bare_sockets(open));
            bridged.push(over_a_bridge(&runtime, open));
        }
        let (bare, bridged) = (middle(&mut bare), middle(&mut bridged));
        println!(
            "| {open} | {:.1} | {:.1} | {:.2} | {:.0} | {:.0} |",
            bare * 1e6,
            bridged * 1e6,
            bridged / bare,
            1.0 / bare,
            1.0 / bridged
        );
    }
}

/// Seconds of one call.
fn over_bare_sockets(open: u64) -> f64 {
    let (mut near, mut far) = UnixStream::pair().expect("a pair");
    let echo = thread::spawn(move || {
        while let Some(frame) = read_frame(&mut far) {
            write_frame(&mut far, &frame);
        }
    });
    let took = ask(&mut near, open);
    drop(near);
    echo.join().expect("the other end");
    took
}

/// Seconds of one call.
fn over_a_bridge(runtime: &Runtime, open: u64) -> f64 {
    let _inside = runtime.enter();
    let (host, program) = bridge::pair().expect("a pair");
    let bridge = bridge::serve(host, Arc::new(Immediate), BridgeLimits::new(u64::MAX, 16));
    let took = ask(&mut UnixStream::from(program), open);
    let served = runtime.block_on(bridge.end());
    assert_eq!((served.calls, served.refused), (CALLS, 0));
    took
}

/// Asks with so many calls open.
fn ask(stream: &mut UnixStream, open: u64) -> f64 {
    let begun = Instant::now();
    for id in 0..open {
        write_frame(stream, &call(id));
    }
    for id in open..CALLS {
        read_frame(stream).expect("an answer");
        write_frame(stream, &call(id));
    }
    for _ in 0..open {
        read_frame(stream).expect("an answer");
    }
    begun.elapsed().as_secs_f64() / CALLS as f64
}

fn call(id: u64) -> Vec<u8> {
    format!(
        r#"{{"id":{id},"server":"github","tool":"create_issue","arguments":{{"title":"A title","body":"Some text","labels":["one","two"]}}}}"#
    )
    .into_bytes()
}

/// In one write, as every program of good will does.
fn write_frame(stream: &mut UnixStream, frame: &[u8]) {
    let length = u32::try_from(frame.len()).expect("a short frame");
    let bytes = [length.to_be_bytes().as_slice(), frame].concat();
    stream.write_all(&bytes).expect("the other end");
}

/// None at the end.
fn read_frame(stream: &mut UnixStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame).ok()?;
    Some(frame)
}

fn middle(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}
