//! The module's commands, compared with the alternatives of a gateway (plain strings, Lua, and MULTI/EXEC) on a primary
//! and its replica, with and without an append-only file; their cost for other commands on the server; and a million
//! sessions.
//!
//! Run by `cargo bench -p mooring-module --bench commands`, for single parts with `-- PART...`: `create`, `found`,
//! `route`, `cold`, `touch` and `bind` (`rates` for all of them), `bystanders`, `scale`, `death`, `replica`, `expiry`,
//! `loading`, `aof`. It starts its own redis-server, drives it over many TCP connections at once, with and without
//! pipelining, and prints ratios: every round measures every variant once, in another order each time, and a ratio is
//! the median over the rounds of two figures of the same round, so that noise affects both alike. `us/op` is the
//! server's CPU time per operation, which does not depend on the load of the client.

#![allow(
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a benchmark prints its result, and fails by panicking"
)]

mod bystanders;
mod client;
mod death;
mod expiry;
mod loading;
mod population;
mod processor;
mod replica;
mod scale;
mod scripts;
mod server;
mod talk;
mod workload;

use anyhow::{Result, ensure};
use client::Client;
use replica::Replicated;
use server::{Persistence, Server};
use workload::{Table, Variant, tables};

const ROUNDS: usize = 9;
/// Rounds with a file, which grows by a gigabyte in them.
const ROUNDS_WITH_FILE: usize = 5;
/// Rounds of a part that runs alone, so that it takes one to six minutes.
const ROUNDS_ALONE: usize = 3;
/// Rounds for the cost of a replica: CPU time only, which varies less, and takes longest to measure.
const ROUNDS_ON_REPLICA: usize = 1;
const CONNECTIONS: usize = 50;

/// The cost of a replica's own housekeeping per operation: ratios to a smaller cost are not significant.
const NOTHING_US: f64 = 0.2;

/// How many commands a connection sends before it reads, and how many are measured at once.
const DEPTHS: [(usize, usize); 2] = [(1, 40_000), (16, 160_000)];

/// Operations per second, and the server's CPU time for one.
#[derive(Clone, Copy)]
struct Pace {
    per_second: f64,
    server_us: f64,
}

/// Whether the module is loaded during a measurement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Loaded,
    Absent,
}

fn main() -> Result<()> {
    // `cargo test --benches` runs this file too; without `--bench`, nothing is measured.
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

/// With other load on the machine the figures are not reliable.
fn machine() -> Result<String> {
    let load = std::fs::read_to_string("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default();
    Ok(format!("load average before: {load}"))
}

fn rates(server: &Server, rounds: usize, wants: &impl Fn(&str) -> bool) -> Result<()> {
    let wanted = |table: &Table| wants("rates") || wants(table.part);
    let tables: Vec<Table> = tables().into_iter().filter(wanted).collect();
    if tables.is_empty() {
        return Ok(());
    }
    let rounds = if wants("rates") { rounds } else { ROUNDS_ALONE };
    let replicated = Replicated::start()?;
    println!(
        "\n{CONNECTIONS} connections{:45} {:>8} {:>7} {:>10}   module against it: {:>6} {:>8} {:>10}",
        "", "median/s", "us/op", "replica us", "rate", "per CPU", "on replica"
    );
    for table in tables {
        check_answers(server, &table.variants)?;
        for (depth, count) in DEPTHS {
            let paces = measure(&table.variants, rounds, |variant| {
                run_on(server, variant, variant.presence(), depth, count)
            })?;
            let on_replica = measure(&table.variants, ROUNDS_ON_REPLICA, |variant| {
                replicated.cost(variant, depth, count)
            })?;
            print(&table, depth, &paces, &on_replica);
        }
    }
    Ok(())
}

/// A reply without the digest of its request, which scripts leave out.
fn without_digest(answer: &str) -> String {
    let parts = answer.split_once(" $7 request $16 ");
    let shortened = parts.and_then(|(count, rest)| {
        let fields = count.strip_prefix('*')?.parse::<usize>().ok()?;
        let (_, rest) = rest.split_once(' ')?;
        Some(format!("*{} {rest}", fields.checked_sub(2)?))
    });
    shortened.unwrap_or_else(|| answer.to_owned())
}

/// Checks that a script does the same step: it has to return the same reply.
fn check_answers(server: &Server, variants: &[Variant]) -> Result<()> {
    let mut client = Client::connect(server.port(), 1)?;
    let module = without_digest(&client.answer(&variants[0])?);
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

/// One row per round: the figure of each variant.
fn measure<T: Clone>(
    variants: &[Variant],
    count_of_rounds: usize,
    figure: impl Fn(&Variant) -> Result<T>,
) -> Result<Vec<Vec<T>>> {
    let mut rounds = Vec::new();
    for round in 0..count_of_rounds {
        let mut figures = vec![None; variants.len()];
        for turn in 0..variants.len() {
            // Another variant begins each round, and every second round is in reverse order.
            let place = (turn + round) % variants.len();
            let place = if round % 2 == 0 {
                place
            } else {
                variants.len() - 1 - place
            };
            figures[place] = Some(figure(&variants[place])?);
        }
        rounds.push(figures.into_iter().flatten().collect());
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

fn print(table: &Table, depth: usize, paces: &[Vec<Pace>], on_replica: &[Vec<f64>]) {
    println!("{}, -P {depth}", table.title);
    for (place, variant) in table.variants.iter().enumerate() {
        let column = |value: fn(&[Pace], usize) -> f64| {
            median(paces.iter().map(|paces| value(paces, place)).collect())
        };
        let replica_us = median(on_replica.iter().map(|round| round[place]).collect());
        // The module is the first variant of every list.
        let ratios = on_replica.iter().map(|round| round[place] / round[0]);
        let on_replica = match on_replica.iter().all(|round| round[0] > NOTHING_US) {
            true => format!("{:.2}x", median(ratios.collect())),
            false => "-".to_owned(),
        };
        println!(
            "  {:<58} {:>8.0} {:>7.2} {:>10.2} {:>27.2}x {:>7.2}x {:>10}",
            variant.name(),
            column(|paces, place| paces[place].per_second),
            column(|paces, place| paces[place].server_us),
            replica_us,
            column(|paces, place| paces[0].per_second / paces[place].per_second),
            column(|paces, place| paces[place].server_us / paces[0].server_us),
            on_replica,
        );
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
