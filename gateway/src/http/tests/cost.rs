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
const BYTES_MAX: u64 = 44 * 1024;
/// Most allocations of a call more if it is traced and not recorded: the context that says so to its server.
const UNSAMPLED_MAX: u64 = 8;
/// Most allocations of a call more if it is recorded: its spans, which are three here.
const SAMPLED_MAX: u64 = 150;
/// Settings with which calls are traced; nothing listens at the port.
const TELEMETRY: &str = "[telemetry]\notlp_endpoint = \"http://127.0.0.1:1\"\nsample_ratio = ";

/// Calls of one gateway, which are counted.
struct CountedCalls {
    runtime: tokio::runtime::Runtime,
    gateway: Gateway,
    server: &'static str,
    session: String,
}

impl CountedCalls {
    fn start(server: &'static str, telemetry: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (gateway, session) = runtime.block_on(async {
            let gateway = Gateway::start_with(telemetry).await;
            let session = gateway.open(server).await;
            (gateway, session)
        });
        Self {
            runtime,
            gateway,
            server,
            session,
        }
    }

    fn make(&self) {
        let Self {
            gateway,
            server,
            session,
            ..
        } = self;
        self.runtime.block_on(async {
            for _ in 0..CALLS {
                let answer = gateway
                    .echo(server, session, json!({"text": "hello"}))
                    .await;
                assert!(answer.status.is_success(), "{}", answer.text);
                // What is left to other tasks is done before a client's next request can arrive.
                for _ in 0..4 {
                    tokio::task::yield_now().await;
                }
            }
        });
    }

    /// Allocations of a call, and the bytes in them.
    fn allocations(&self) -> (u64, u64) {
        self.make();
        let counted = allocation_counter::measure(|| self.make());
        (counted.count_total / CALLS, counted.bytes_total / CALLS)
    }
}

#[test]
fn a_call_allocates_within_its_bound() {
    for server in ["a", "serial"] {
        let (count, bytes) = CountedCalls::start(server, "").allocations();
        assert!(
            count <= ALLOCATIONS_MAX && bytes <= BYTES_MAX,
            "{server}: {count} allocations of {bytes} bytes a call"
        );
    }
}

#[test]
fn a_trace_allocates_nearly_nothing_unless_it_is_recorded() {
    for server in ["a", "serial"] {
        let traced = |ratio| {
            let telemetry = format!("{TELEMETRY}\"{ratio}\"\n");
            CountedCalls::start(server, &telemetry).allocations().0
        };
        let (off, _) = CountedCalls::start(server, "").allocations();
        let (unsampled, sampled) = (traced(0), traced(1));
        assert!(
            unsampled <= off + UNSAMPLED_MAX && sampled <= off + SAMPLED_MAX,
            "{server}: {off} allocations a call, {unsampled} unsampled, {sampled} sampled"
        );
    }
}

/// Prints the processor time of a call by what is traced of it, with the upstream server and the client of the test.
#[test]
#[ignore = "a measurement of an optimized build"]
#[allow(clippy::print_stdout, reason = "a measurement prints")]
fn what_a_trace_costs_a_call() {
    const ROUNDS: u32 = 20;
    for server in ["a", "serial"] {
        let modes = [
            ("off", String::new()),
            ("unsampled", format!("{TELEMETRY}\"0\"\n")),
            ("sampled", format!("{TELEMETRY}\"1\"\n")),
        ];
        for (mode, telemetry) in modes {
            let calls = CountedCalls::start(server, &telemetry);
            let (count, bytes) = calls.allocations();
            let before = cpu_time();
            (0..ROUNDS).for_each(|_| calls.make());
            let took = (cpu_time() - before) / ROUNDS / u32::try_from(CALLS).unwrap();
            println!("{server}, {mode}: {count} allocations of {bytes} bytes, {took:?} a call");
        }
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
        let log = Arc::new(RequestLog::new(
            &settings(requests),
            UserDigests::new(None),
            None,
        ));
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
