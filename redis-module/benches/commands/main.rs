//! The module's commands: against what a gateway would use without them (plain strings, Lua, and MULTI/EXEC), with and
//! without an append-only file; what they cost others on the server and its replicas; and a million sessions.
//!
//! Run by `cargo bench -p mooring-module --bench commands`, for single parts with `-- PART...`: `create`, `found`, `route`,
//! `touch` and `bind` (`rates` for all of them), `cold`, `bystanders`, `scale`, `death`, `replica`, `expiry`, `loading`,
//! `aof`. It starts its own redis-server, drives it over many TCP connections at once, with and without pipelining, and
//! prints ratios: every round measures every variant once, in another order each time, and a ratio is the median over the
//! rounds of two figures of the same round, so that a noisy machine hits both alike. `us/op` is the server's own CPU time per operation, which a busy client cannot blur.

#![allow(
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a benchmark prints its result, and fails by panicking"
)]

mod bystanders;
mod client;
mod cold;
mod death;
mod expiry;
mod loading;
mod population;
mod processor;
mod replica;
mod scale;
mod server;
mod talk;
mod workload;

use anyhow::{Result, ensure};
use client::Client;
use server::{Persistence, Server};
use workload::{Variant, tables};

const ROUNDS: usize = 9;
/// A file grows by a gigabyte in these.
const ROUNDS_WITH_FILE: usize = 5;
/// Of a table that was asked for by itself, so that it takes less than two minutes.
const ROUNDS_ALONE: usize = 5;
const CONNECTIONS: usize = 50;

/// How many commands a connection sends before it reads, and how many are measured in one go.
const DEPTHS: [(usize, usize); 2] = [(1, 40_000), (16, 160_000)];

/// Operations per second, and the server's CPU time for one.
#[derive(Clone, Copy)]
struct Pace {
    per_second: f64,
    server_us: f64,
}

/// Whether the module is in the server while something is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Loaded,
    Absent,
}

fn main() -> Result<()> {
    // `cargo test --benches` runs this file too; a benchmark that nobody asked for measures nothing.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let asked: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let wants = |part: &str| asked.is_empty() || asked.iter().any(|asked| asked == part);
    let server = Server::start(Persistence::None)?;
    println!("{}; {}", server.describe()?, machine()?);
    rates(&server, ROUNDS, &wants)?;
    if wants("cold") {
        cold::measure(&server)?;
    }
    if wants("bystanders") {
        bystanders::measure(&server)?;
    }
    if wants("scale") {
        scale::measure(&server)?;
    }
    if wants("death") {
        death::measure(&server)?;
    }
    if wants("replica") {
        replica::measure(&server)?;
    }
    if wants("expiry") {
        expiry::measure(&server)?;
    }
    drop(server);
    if wants("loading") {
        loading::measure()?;
    }
    if wants("aof") {
        let server = Server::start(Persistence::EverySecond)?;
        println!("\nWith an append-only file, appendfsync everysec");
        rates(&server, ROUNDS_WITH_FILE, &|part| part == "rates")?;
    }
    Ok(())
}

/// With other work on the machine the figures say little.
fn machine() -> Result<String> {
    let load = std::fs::read_to_string("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default();
    Ok(format!("load average before: {load}"))
}

fn rates(server: &Server, rounds: usize, wants: &impl Fn(&str) -> bool) -> Result<()> {
    for table in tables() {
        if !wants("rates") && !wants(table.part) {
            continue;
        }
        let rounds = if wants("rates") { rounds } else { ROUNDS_ALONE };
        check_answers(server, &table.variants)?;
        for (depth, count) in DEPTHS {
            let paces = measure(server, &table.variants, rounds, depth, count)?;
            print(table.title, depth, &table.variants, &paces);
        }
    }
    Ok(())
}

/// A script does the same step only if it answers the same.
fn check_answers(server: &Server, variants: &[Variant]) -> Result<()> {
    let mut client = Client::connect(server.port(), 1)?;
    let module = client.answer(&variants[0])?;
    for variant in variants.iter().filter(|variant| variant.script().is_some()) {
        let script = client.answer(variant)?;
        ensure!(
            script == module,
            "{}: {script}\nthe module: {module}",
            variant.name()
        );
    }
    Ok(())
}

/// One row of paces per round.
fn measure(
    server: &Server,
    variants: &[Variant],
    count_of_rounds: usize,
    depth: usize,
    count: usize,
) -> Result<Vec<Vec<Pace>>> {
    let mut rounds = Vec::new();
    for round in 0..count_of_rounds {
        let mut paces = vec![None; variants.len()];
        for turn in 0..variants.len() {
            // Another one begins each round, and every second round goes backwards.
            let place = (turn + round) % variants.len();
            let place = if round % 2 == 0 {
                place
            } else {
                variants.len() - 1 - place
            };
            let variant = &variants[place];
            // What stands in for the module is measured without it, so that it does not pay for the module's indexes.
            let presence = match place {
                0 => Presence::Loaded,
                _ => Presence::Absent,
            };
            paces[place] = Some(run_on(server, variant, presence, depth, count)?);
        }
        rounds.push(paces.into_iter().flatten().collect());
    }
    Ok(rounds)
}

fn run_on(
    server: &Server,
    variant: &Variant,
    presence: Presence,
    depth: usize,
    count: usize,
) -> Result<Pace> {
    let mut client = Client::connect(server.port(), CONNECTIONS)?;
    let script = client.prepare(variant, count)?;
    let requests = variant.requests(&script, CONNECTIONS, depth, count);
    if presence == Presence::Absent {
        server.unload_module()?;
    }
    let cpu_before = server.cpu_seconds()?;
    let elapsed = client.drive(&requests)?;
    let cpu = server.cpu_seconds()? - cpu_before;
    if presence == Presence::Absent {
        server.load_module()?;
    }
    let operations = requests.operations() as f64;
    Ok(Pace {
        per_second: operations / elapsed.as_secs_f64(),
        server_us: cpu * 1e6 / operations,
    })
}

fn print(title: &str, depth: usize, variants: &[Variant], rounds: &[Vec<Pace>]) {
    println!("\n{title}, {CONNECTIONS} connections, -P {depth}");
    println!(
        "{:<38} {:>10} {:>7}   module against it: {:>6} {:>8}",
        "", "median/s", "us/op", "rate", "per CPU"
    );
    for (place, variant) in variants.iter().enumerate() {
        let column = |value: fn(&[Pace], usize) -> f64| {
            median(rounds.iter().map(|paces| value(paces, place)).collect())
        };
        println!(
            "{:<38} {:>10.0} {:>7.2} {:>26.2}x {:>7.2}x",
            variant.name(),
            column(|paces, place| paces[place].per_second),
            column(|paces, place| paces[place].server_us),
            // The module is the first variant of every list.
            column(|paces, place| paces[0].per_second / paces[place].per_second),
            column(|paces, place| paces[place].server_us / paces[0].server_us),
        );
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
