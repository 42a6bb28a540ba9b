//! What other clients notice while one program floods the gateway, and what an idle connection costs.
//!
//! Invariant: each flood runs in a process of its own and is at full strength before a call counts; every call's reply is
//! checked, so a flood that makes calls fail ends the benchmark.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use futures_util::future::try_join_all;
use mooring_tests::process::Process;
use mooring_tests::wait;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::arrangement::{Arrangement, GATEWAY_PATH};
use crate::figures::{median, percentile};
use crate::load::{self, Slice};
use crate::through::Plan;
use crate::upstream::Upstream;
use crate::wire::Target;

/// Sessions whose calls are measured.
const SESSIONS: usize = 4;
/// Connections that are kept idle: nearly all that the gateway accepts by default.
const IDLE: usize = 9_900;
/// Connections whose requests arrive byte by byte, or are refused.
const BUSY: usize = 500;
/// The length of a slow body, in bytes: none is read to its end.
const SLOW_BODY_BYTES: usize = 1024;
/// Pause between two bytes of a slow head or body.
const BYTE_EVERY: Duration = Duration::from_millis(200);
const STARTED_WITHIN: Duration = Duration::from_secs(60);
/// What a flood prints at full strength.
const AT_STRENGTH: &str = "at full strength";

/// What one program does to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Flood {
    /// Connections that have made one request, and make no other.
    Idle,
    /// Heads of requests that arrive byte by byte.
    SlowHeads,
    /// Bodies of requests that arrive byte by byte.
    SlowBodies,
    /// Connections that are closed as soon as they are open, one after another.
    Connections,
    /// The same, with a request that is refused in each, whose reply is not waited for.
    Requests,
    /// Requests that are refused, without a pause.
    RefusedRequests,
    /// Health probes, without a pause.
    Probes,
}

impl Flood {
    const fn name(self) -> &'static str {
        match self {
            Self::Idle => "9,900 idle connections",
            Self::SlowHeads => "500 connections with slow heads",
            Self::SlowBodies => "500 connections with slow bodies",
            Self::Connections => "new connections without a pause",
            Self::Requests => "new connections with a refused request each, without a pause",
            Self::Probes => "500 connections with health probes without a pause",
            Self::RefusedRequests => "500 connections with refused requests without a pause",
        }
    }
}

/// What one round measured.
#[derive(Clone, Copy, Debug)]
struct Round {
    alone: Latency,
    beside: Latency,
    /// How much the gateway's memory grew.
    grown_mib: f64,
}

#[derive(Clone, Copy, Debug)]
struct Latency {
    p50_ms: f64,
    p99_ms: f64,
}

impl Latency {
    fn of(slice: &Slice) -> Self {
        let ms = |part| f64::from(percentile(&slice.latencies_ns, part)) / 1e6;
        Self {
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
        }
    }
}

/// Measures calls alone and beside each of these floods, in turns.
pub(crate) async fn measure(
    floods: &[Flood],
    logs: &TempDir,
    plan: Plan,
) -> anyhow::Result<String> {
    let upstream = Upstream::start(logs.path()).await?;
    let mut arrangement = Arrangement::embedded(&[upstream.port()]).await?;
    let target = arrangement.target.clone();
    let mut sessions = load::open(&target, arrangement.counting, SESSIONS).await?;
    let mut lines = vec![
        format!("### {SESSIONS} sessions beside a flood"),
        String::new(),
        "| flood | p50 ms | p99 ms | p50 x alone | p99 x alone | KiB per connection |".to_owned(),
        "|---|---|---|---|---|---|".to_owned(),
    ];
    for flood in floods {
        let mut rounds = Vec::with_capacity(plan.rounds);
        for _ in 0..plan.rounds {
            let (calm, slice) = load::drive(sessions, plan.slice).await?;
            let alone = Latency::of(&slice);
            let (before, _) = arrangement.cost()?;
            let mut process = spawn(*flood, target.address, logs)?;
            wait::until_true("the flood", STARTED_WITHIN, async || {
                Ok(process.log_text().contains(AT_STRENGTH))
            })
            .await?;
            let (flooded, slice) = load::drive(calm, plan.slice).await?;
            sessions = flooded;
            let beside = Latency::of(&slice);
            let (during, _) = arrangement.cost()?;
            process.kill_now()?;
            rounds.push(Round {
                alone,
                beside,
                grown_mib: during.resident_mib - before.resident_mib,
            });
        }
        let of = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
        // Later rounds find the memory of the first one.
        let grown_mib = rounds.first().context("a round")?.grown_mib;
        let each = match flood {
            Flood::Idle => format!("{:.1}", grown_mib * 1024.0 / IDLE as f64),
            Flood::SlowHeads | Flood::SlowBodies | Flood::RefusedRequests | Flood::Probes => {
                format!("{:.1}", grown_mib * 1024.0 / BUSY as f64)
            }
            Flood::Connections | Flood::Requests => "-".to_owned(),
        };
        lines.push(format!(
            "| {} | {:.2} | {:.2} | {:.1} | {:.1} | {each} |",
            flood.name(),
            of(|round| round.beside.p50_ms),
            of(|round| round.beside.p99_ms),
            of(|round| round.beside.p50_ms / round.alone.p50_ms),
            of(|round| round.beside.p99_ms / round.alone.p99_ms),
        ));
    }
    load::close(sessions).await?;
    Ok(lines.join("\n"))
}

fn spawn(flood: Flood, address: SocketAddr, logs: &TempDir) -> anyhow::Result<Process> {
    let program = std::env::current_exe().context("find this program")?;
    let value = flood.to_possible_value().context("a name")?;
    Process::start(
        "flood",
        Command::new(program).args(["flood", value.get_name(), &address.to_string()]),
        &logs.path().join("flood.log"),
    )
}

/// Is the flood, for ever.
pub(crate) async fn run(flood: Flood, address: SocketAddr) -> anyhow::Result<()> {
    let target = Target::local(address.port(), "/servers/unknown/mcp");
    let refused = [
        head(&format!("POST {}", target.path), address, 2),
        b"{}".to_vec(),
    ]
    .concat();
    let probe = head("GET /healthz", address, 0);
    let slow = head(&format!("POST {GATEWAY_PATH}"), address, SLOW_BODY_BYTES);
    let body = vec![b' '; SLOW_BODY_BYTES];
    let mut busy = JoinSet::new();
    let _idle = match flood {
        Flood::Idle => idle(address, &probe).await?,
        _ => Vec::new(),
    };
    for _ in 0..BUSY {
        match flood {
            Flood::SlowHeads => busy.spawn(byte_by_byte(address, Vec::new(), slow.clone())),
            Flood::SlowBodies => busy.spawn(byte_by_byte(address, slow.clone(), body.clone())),
            Flood::RefusedRequests => busy.spawn(without_pause(address, refused.clone())),
            Flood::Probes => busy.spawn(without_pause(address, probe.clone())),
            Flood::Idle | Flood::Connections | Flood::Requests => break,
        };
    }
    eprintln!("{AT_STRENGTH}");
    loop {
        match flood {
            Flood::Connections => drop(TcpStream::connect(address).await?),
            Flood::Requests => {
                let mut stream = TcpStream::connect(address).await?;
                stream.write_all(&refused).await?;
            }
            Flood::Idle => std::future::pending::<()>().await,
            Flood::SlowHeads | Flood::SlowBodies | Flood::RefusedRequests | Flood::Probes => {
                busy.join_next().await.context("a connection")???;
            }
        }
    }
}

/// Connections that have made one request. Their replies are delayed beyond a rate, so it takes many at once.
async fn idle(address: SocketAddr, probe: &[u8]) -> anyhow::Result<Vec<TcpStream>> {
    let mut streams = Vec::with_capacity(IDLE);
    while streams.len() < IDLE {
        let opening = (0..BUSY.min(IDLE - streams.len())).map(async |_| {
            let mut stream = TcpStream::connect(address).await?;
            exchange(&mut stream, probe).await?;
            anyhow::Ok(stream)
        });
        streams.extend(try_join_all(opening).await?);
    }
    Ok(streams)
}

/// The head of a request with a body of this length.
fn head(line: &str, address: SocketAddr, length: usize) -> Vec<u8> {
    let accept = "application/json, text/event-stream";
    format!(
        "{line} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nAccept: {accept}\r\n\
         Content-Length: {length}\r\n\r\n"
    )
    .into_bytes()
}

/// One request, and as much of its reply as comes at once.
async fn exchange(stream: &mut TcpStream, request: &[u8]) -> anyhow::Result<()> {
    stream.write_all(request).await?;
    let read = stream.read(&mut [0; 4096]).await?;
    ensure!(read > 0, "the connection was closed");
    Ok(())
}

/// Sends the beginning of a request at once and the rest byte by byte, again and again.
async fn byte_by_byte(
    address: SocketAddr,
    at_once: Vec<u8>,
    slowly: Vec<u8>,
) -> anyhow::Result<()> {
    loop {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(&at_once).await?;
        for byte in &slowly {
            if stream.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(BYTE_EVERY).await;
        }
    }
}

async fn without_pause(address: SocketAddr, request: Vec<u8>) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    loop {
        exchange(&mut stream, &request).await?;
    }
}
