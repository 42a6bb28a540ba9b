//! ROUTE where little is in the processor's caches: over many sessions in random order, before and after a first CREATE
//! with CAP, from which on the module follows every use.
//!
//! GETEX of as many strings beside them is what it is compared with, in the same rounds.

use anyhow::Result;

use crate::client::Client;
use crate::population::{self, Driven, key, principal, worker};
use crate::server::Server;
use crate::talk::Talk;
use crate::{CONNECTIONS, median};

const SESSIONS: usize = 300_000;
const ROUNDS: usize = 5;
const DEPTH: usize = 16;
const COUNT: usize = 150_000;

/// Measures, and prints what it found.
pub(crate) fn measure(server: &Server) -> Result<()> {
    let mut talk = Talk::connect(server)?;
    talk.ask("FLUSHALL SYNC")?;
    population::beat(&mut talk)?;
    population::make(&mut talk, 0..SESSIONS, 3_600_000, Driven::ByAnybody)?;
    let strings: Vec<String> = (0..SESSIONS)
        .map(|session| format!("SET string:{} {} EX 3600", key(session), "v".repeat(180)))
        .collect();
    for batch in strings.chunks(500) {
        talk.ask_many(batch)?;
    }
    println!(
        "\nROUTE over {SESSIONS} sessions in random order, {CONNECTIONS} connections, -P {DEPTH}: server CPU"
    );
    println!("{:<28} {:>8} {:>8} {:>8}", "", "us/op", "GETEX", "ratio");
    rounds(server, "no cap was ever asked for")?;
    talk.ask("SESSION.CREATE mcpgw:capped capped user-0@example.org TTL 3600000 CAP 1000000")?;
    rounds(server, "after a CREATE with CAP")
}

fn rounds(server: &Server, when: &str) -> Result<()> {
    let route = |session| {
        let (key, principal) = (key(session), principal(session));
        format!("SESSION.ROUTE {key} {principal} tools {}", worker(session))
    };
    let getex = |session| format!("GETEX string:{} EX 3600", key(session));
    let mut pairs = Vec::new();
    for round in 0..ROUNDS {
        // Another order each time, for either the same.
        let routed = cpu_of(server, round, route)?;
        pairs.push((routed, cpu_of(server, round, getex)?));
    }
    let column = |value: fn(&(f64, f64)) -> f64| median(pairs.iter().map(value).collect());
    println!(
        "{when:<28} {:>8.2} {:>8.2} {:>7.2}x",
        column(|(route, _)| *route),
        column(|(_, getex)| *getex),
        column(|(route, getex)| getex / route),
    );
    Ok(())
}

/// The server's microseconds for one command.
fn cpu_of(server: &Server, round: usize, command: impl Fn(usize) -> String) -> Result<f64> {
    let mut random = fastrand::Rng::with_seed(round as u64);
    let mut client = Client::connect(server.port(), CONNECTIONS)?;
    let commands: Vec<String> = (0..COUNT)
        .map(|_| command(random.usize(..SESSIONS)))
        .collect();
    let before = server.cpu_seconds()?;
    client.send_all(&commands, DEPTH)?;
    Ok((server.cpu_seconds()? - before) * 1e6 / COUNT as f64)
}
