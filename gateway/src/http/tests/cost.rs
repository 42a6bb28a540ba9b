//! What a call costs in allocations.
//!
//! Invariant: a `tools/call` of a stateful session allocates no more often, and no more bytes, than the bounds here say.
//! The count is that of this whole process: the routes, the client to the upstream server, the upstream server itself and
//! the test. The bytes have the future of the call, whose size is also what it costs to move it.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use mooring_session::names::{InstanceName, Principal, ServerName};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use super::{Gateway, METRICS};
use mooring_peers::fleet::UserDigests;
use mooring_pipeline::{RequestEntry, RequestKind, RequestLog};
use mooring_protocol::{Message, Reply, Sender};
use mooring_settings::{LogFormat, LogLevel, LogSettings, LoggedRequests};

/// Calls that are counted, after as many that are not.
const CALLS: u64 = 100;
/// Most allocations a call.
const ALLOCATIONS_MAX: u64 = 180;
/// Most bytes in them.
const BYTES_MAX: u64 = 42 * 1024;

#[test]
fn a_call_allocates_within_its_bound() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    for server in ["a", "serial"] {
        let (gateway, session) = runtime.block_on(async {
            let gateway = Gateway::start().await;
            let session = gateway.open(server).await;
            (gateway, session)
        });
        let calls = || {
            runtime.block_on(async {
                for _ in 0..CALLS {
                    let answer = gateway
                        .echo(server, &session, json!({"text": "hello"}))
                        .await;
                    assert!(answer.status.is_success(), "{}", answer.text);
                    // What is left to other tasks is done before a client's next request can arrive.
                    for _ in 0..4 {
                        tokio::task::yield_now().await;
                    }
                }
            });
        };
        calls();
        let counted = allocation_counter::measure(calls);
        let (count, bytes) = (counted.count_total / CALLS, counted.bytes_total / CALLS);
        assert!(
            count <= ALLOCATIONS_MAX && bytes <= BYTES_MAX,
            "{server}: {count} allocations of {bytes} bytes a call"
        );
    }
}

/// Requests of each kind that are measured.
const MEASURED: u32 = 200_000;

/// Prints the CPU time that timing, counting and logging cost a call, by `log.requests`. The figures are in
/// docs/benchmarks.md; the lines of `all` go to stderr.
#[test]
#[ignore = "a measurement of an optimized build"]
#[allow(clippy::print_stdout, reason = "a measurement prints")]
fn what_a_request_costs_in_the_log() {
    std::sync::LazyLock::force(&METRICS);
    let settings = |requests| LogSettings {
        format: LogFormat::Text,
        level: LogLevel::Info,
        requests,
        slow_request: Duration::from_secs(1),
    };
    let _logs = crate::logs::start(&settings(LoggedRequests::All)).unwrap();
    let user = Principal::parse(b"ada@example.org").unwrap();
    let instance = InstanceName::parse(b"http://127.0.0.1:9001/mcp").unwrap();
    let call = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{}}}"#;
    let message = Message::parse(call, Sender::Client).unwrap();
    let server = ServerName::parse(b"cost").unwrap();
    let digest = Arc::from("0123456789abcdef");
    let reply = r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"hello"}]}}"#;
    for requests in [
        LoggedRequests::Off,
        LoggedRequests::Slow,
        LoggedRequests::All,
    ] {
        let log = Arc::new(RequestLog::new(&settings(requests), UserDigests::new(None)));
        let request = || {
            let entry = RequestEntry::begin(&log, None);
            entry.note_user(&user);
            entry.note_server(&server, RequestKind::Unknown);
            entry.note_body(call.len());
            entry.note_message(&server, &message);
            entry.note_session(&digest);
            entry.note_instance(&instance);
            black_box(entry.watch(Reply::json(StatusCode::OK, reply)));
        };
        (0..MEASURED / 10).for_each(|_| request());
        let before = cpu_time();
        (0..MEASURED).for_each(|_| request());
        let took = (cpu_time() - before) / MEASURED;
        println!("log.requests = {requests:?}: {took:?} a call");
    }
}

/// That of this thread: the writer of the log is another one.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap())
}
