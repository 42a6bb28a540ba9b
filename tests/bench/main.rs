//! The whole system under load: what a call costs through the gateway, and what a loss costs.
//!
//! `make bench` runs it; `cargo bench -p mooring-tests --bench whole -- --help` names its parts. Everything it
//! measures runs on this machine, load included, so its figures are ratios and differences against the same
//! load without the gateway. It prints the tables of docs/benchmarks.md.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints its result and its progress"
)]

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, Subcommand, ValueEnum};
use tempfile::TempDir;

mod arrangement;
mod changing;
mod child;
mod code;
mod code_mode;
mod cost;
mod delegation;
mod figures;
mod floods;
mod forward;
mod fresh;
mod growth;
mod holder;
mod load;
mod lookup;
mod memory;
mod pair;
mod recovery;
mod route;
mod sizing;
mod start;
mod through;
mod trio;
mod upstream;
mod wire;

use arrangement::Arrangement;
use floods::Flood;
use through::Plan;
use upstream::Upstream;

/// Measures the whole system.
#[derive(Debug, Parser)]
struct Arguments {
    /// Given by `cargo bench`; without it nothing is measured, so that `cargo test --benches` is quick.
    #[arg(long)]
    bench: bool,
    /// The parts to measure; all of them by default.
    #[arg(long, value_delimiter = ',')]
    parts: Vec<Part>,
    /// Sessions at once, for the part `through`.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64])]
    sessions: Vec<usize>,
    /// The floods of the part `floods`; all of them by default.
    #[arg(long, value_delimiter = ',')]
    floods: Vec<Flood>,
    /// Rounds, each with one slice of every arrangement.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The length of a slice in milliseconds.
    #[arg(long, default_value_t = 2000)]
    slice_ms: u64,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Calls through nginx and the gateway, against direct ones.
    Through,
    /// One SESSION.ROUTE as a gateway sees it.
    Route,
    /// Memory of 10,000 idle sessions, and of 1,000 calls in flight.
    Memory,
    /// The next reply after an instance was killed.
    Recovery,
    /// Runs of code, and a thousand code sessions.
    Code,
    /// Code that calls tools.
    CodeMode,
    /// Calls of a child process at the worker that holds it, and at another.
    Forward,
    /// Calls with turns, and without.
    Turn,
    /// The start of a child process.
    Start,
    /// Clients that start their server anew for each call.
    Fresh,
    /// Calls while another program floods the gateway.
    Floods,
    /// The cost of a call with more sessions, more idle ones, larger messages and streams.
    Growth,
    /// Calls against nginx with each store, with turns and without, with delegated turns and without.
    Delegation,
    /// Sessions that change their gateway.
    Changing,
    /// The next reply after the gateway of a session was killed.
    Holder,
    /// How soon an operator finds one of 100,000 sessions.
    Lookup,
    /// What 100,000 sessions cost, from what a call more costs here.
    Sizing,
}

/// What this program does where it does not measure.
#[derive(Debug, Subcommand)]
enum Role {
    /// Be the upstream.
    #[command(hide = true)]
    Upstream {
        /// The port to serve on.
        port: u16,
    },
    /// Be a flood of the gateway at this address.
    #[command(hide = true)]
    Flood {
        /// What to do to it.
        flood: Flood,
        /// The gateway.
        address: SocketAddr,
    },
    /// Be the upstream on standard input and output.
    #[command(hide = true)]
    Child,
}

impl Arguments {
    fn plan(&self) -> Plan {
        Plan {
            rounds: self.rounds,
            slice: Duration::from_millis(self.slice_ms),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    match arguments.role {
        Some(Role::Upstream { port }) => return upstream::serve(port).await,
        Some(Role::Flood { flood, address }) => return floods::run(flood, address).await,
        Some(Role::Child) => return child::serve(),
        None => {}
    }
    if !arguments.bench {
        return Ok(());
    }
    println!("{}\n", machine()?);
    let logs = TempDir::with_prefix("mooring-bench-").context("make a directory")?;
    let wants = |part| arguments.parts.is_empty() || arguments.parts.contains(&part);
    if wants(Part::Through) {
        through(&arguments, &logs).await?;
    }
    if wants(Part::Route) {
        println!("{}\n", route::measure(&logs).await?);
    }
    if wants(Part::Memory) {
        println!("{}\n", memory::measure(&logs).await?);
    }
    if wants(Part::Recovery) {
        println!("{}\n", recovery::measure(&logs).await?);
    }
    if wants(Part::Code) {
        println!("{}\n", code::measure().await?);
    }
    if wants(Part::CodeMode) {
        println!("{}\n", code_mode::measure().await?);
    }
    if wants(Part::Forward) {
        println!("{}\n", forward::measure(&logs, arguments.plan()).await?);
    }
    if wants(Part::Turn) {
        println!("{}\n", forward::turns(&logs, arguments.plan()).await?);
    }
    if wants(Part::Start) {
        println!("{}\n", start::measure(&logs).await?);
    }
    if wants(Part::Fresh) {
        println!("{}\n", fresh::measure().await?);
    }
    if wants(Part::Floods) {
        let floods = match arguments.floods.as_slice() {
            [] => Flood::value_variants(),
            some => some,
        };
        let plan = arguments.plan();
        println!("{}\n", floods::measure(floods, &logs, plan).await?);
    }
    if wants(Part::Growth) {
        println!("{}\n", growth::measure(&logs, arguments.plan()).await?);
    }
    if wants(Part::Delegation) {
        println!("{}\n", delegation::measure(&logs, arguments.plan()).await?);
    }
    if wants(Part::Changing) {
        println!("{}\n", changing::measure(&logs, arguments.plan()).await?);
    }
    if wants(Part::Holder) {
        println!("{}\n", holder::measure(&logs, arguments.plan()).await?);
    }
    if wants(Part::Lookup) {
        println!("{}\n", lookup::measure().await?);
    }
    if wants(Part::Sizing) {
        println!("{}\n", sizing::measure(&logs, arguments.plan()).await?);
    }
    Ok(())
}

/// What the figures were measured on: with other work on the machine they say little.
fn machine() -> anyhow::Result<String> {
    let cores = std::thread::available_parallelism().context("count the cores")?;
    let load = std::fs::read_to_string("/proc/loadavg").context("read the load average")?;
    let load = load.split(' ').next().unwrap_or_default();
    Ok(format!("{cores} cores; load average before: {load}."))
}

async fn through(arguments: &Arguments, logs: &TempDir) -> anyhow::Result<()> {
    let upstream = Upstream::start(logs.path()).await?;
    let port = upstream.port();
    let mut arrangements = [
        Arrangement::direct(port),
        Arrangement::nginx(port).await?,
        Arrangement::redis(&[port]).await?,
        Arrangement::redis_with_two_threads(&[port]).await?,
        Arrangement::embedded(&[port]).await?,
        Arrangement::off(&[port]).await?,
    ];
    let plan = arguments.plan();
    for &sessions in &arguments.sessions {
        println!(
            "{}\n",
            through::table(&mut arrangements, sessions, plan).await?
        );
    }
    Ok(())
}
