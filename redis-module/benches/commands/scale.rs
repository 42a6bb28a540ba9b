//! A million sessions: the memory of one, the duration of an index rebuild, and the longest call of every command while
//! operators page through all sessions.
//!
//! One connection sends one command after the other, so that no call waits for another: the time that the caller sees
//! is that of the server, including any step of background work before it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::population::{self, Driven, bind, create, key, principal, worker};
use crate::server::Server;
use crate::talk::{Reply, Talk, WORK_MAX};

const SESSIONS: usize = 1_000_000;
/// The number of further sessions that expire at once and are reaped.
const EXPIRING: usize = 50_000;
/// The threshold of the slow log, in microseconds.
const SLOW_US: u64 = 200;
const TTL_MS: u64 = 3_600_000;
/// Other calls between two pages.
const TRAFFIC: usize = 20;

/// Measures, and prints the results.
pub(crate) fn measure(server: &Server) -> Result<()> {
    let mut talk = Talk::connect(server)?;
    talk.ask("FLUSHALL SYNC")?;
    watch_times(&mut talk)?;
    population::beat(&mut talk)?;
    let before = used_memory(&mut talk)?;
    let started = Instant::now();
    population::make(&mut talk, 0..SESSIONS, TTL_MS, Driven::ByAnybody)?;
    let made = started.elapsed();
    let each = (used_memory(&mut talk)? - before) / SESSIONS as u64;
    println!(
        "\n{SESSIONS} sessions with one binding, made in {:.1} s",
        made.as_secs_f64()
    );
    println!("Redis memory of one, indexes included: {each} bytes");
    forget_times(&mut talk)?;

    let mut traffic = Traffic::new();
    let started = Instant::now();
    talk.ask("SESSION.REINDEX")?;
    while talk.ask("SESSION.STATS")?.field("index_ready")?.integer()? == 0 {
        traffic.run(&mut talk)?;
    }
    println!(
        "rebuild of the indexes under traffic: {:.1} s",
        started.elapsed().as_secs_f64()
    );
    print_times("while the indexes were rebuilt", &mut talk)?;

    for filter in [
        "",
        " PRINCIPAL user-77@example.org",
        " OWNER gateway-05:5f3a9c0d7e214b68",
        " SERVER tools INSTANCE http://10.0.0.2:9001/mcp",
        " STATE expired",
        " MATCH *nothing*like*this*",
        " ORDER oldest",
    ] {
        let (pages, sessions, elapsed) = walk(&mut talk, &mut traffic, filter)?;
        println!(
            "LIST COUNT 1000{filter}: {pages} pages, {sessions} sessions, {:.1} s",
            elapsed.as_secs_f64()
        );
    }
    print_times("while LIST paged through everything", &mut talk)?;

    population::make(
        &mut talk,
        SESSIONS..SESSIONS + EXPIRING,
        1_000,
        Driven::ByAnybody,
    )?;
    forget_times(&mut talk)?;
    let reaped = reap(&mut talk, &mut traffic)?;
    ensure!(
        reaped >= EXPIRING,
        "only {reaped} of {EXPIRING} were reaped"
    );
    println!("reaped: {reaped} sessions");
    print_times("while REAP paged through what had expired", &mut talk)?;

    let with_indexes = used_memory(&mut talk)?;
    server.unload_module()?;
    let records = used_memory(&mut talk)?;
    let sessions = u64::try_from(talk.ask("DBSIZE")?.integer()?)?;
    println!(
        "of the memory the indexes are {} bytes a session",
        (with_indexes - records) / sessions
    );
    server.load_module()
}

/// The memory that the server has allocated, in bytes.
pub(crate) fn used_memory(talk: &mut Talk) -> Result<u64> {
    let info = talk.ask("INFO memory")?;
    let line = info
        .text()
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    Ok(line.unwrap_or_default().trim().parse()?)
}

/// Enables the slow log of the server.
pub(crate) fn watch_times(talk: &mut Talk) -> Result<()> {
    talk.ask(&format!("CONFIG SET slowlog-log-slower-than {SLOW_US}"))?;
    talk.ask("CONFIG SET slowlog-max-len 100000")?;
    talk.ask(&format!(
        "CONFIG SET latency-monitor-threshold {}",
        WORK_MAX.as_millis()
    ))?;
    Ok(())
}

pub(crate) fn forget_times(talk: &mut Talk) -> Result<()> {
    talk.ask("SLOWLOG RESET")?;
    talk.ask("LATENCY RESET")?;
    talk.taken.clear();
    Ok(())
}

/// A mix of all commands, over sessions from the whole keyspace.
struct Traffic {
    turn: usize,
}

impl Traffic {
    fn new() -> Self {
        Self { turn: 0 }
    }

    /// Some calls, each time with another session.
    fn run(&mut self, talk: &mut Talk) -> Result<()> {
        for _ in 0..TRAFFIC {
            self.turn += 1;
            let session = self.turn * 7_919 % SESSIONS;
            self.one(talk, session)?;
        }
        Ok(())
    }

    fn one(&self, talk: &mut Talk, session: usize) -> Result<()> {
        let (key, principal) = (key(session), principal(session));
        let of = format!("{key} {principal}");
        match self.turn % 11 {
            0 => talk.try_ask(&create(session, TTL_MS))?,
            1 => talk.try_ask(&format!("SESSION.TOUCH {of} HASH {:x}", self.turn))?,
            2 => talk.try_ask(&format!("SESSION.GET {key}"))?,
            3 => rebind(talk, &of)?,
            4 => {
                talk.try_ask(&format!("SESSION.END {of} IFIDLE"))?;
                talk.try_ask(&create(session, TTL_MS))?;
                talk.try_ask(&bind(session, Driven::ByAnybody))?
            }
            5 => talk.try_ask(&format!(
                "{} CAP 50",
                create(session + 2 * SESSIONS, TTL_MS)
            ))?,
            6 => talk.try_ask(&format!(
                "SESSION.ENTER {of} tools {} t{} LEASE 1000",
                worker(session),
                self.turn
            ))?,
            7 => talk.try_ask("WORKER.LIST")?,
            9 => talk.try_ask("PING")?,
            8 => talk.try_ask(&format!(
                "SESSION.RATE mcpgw:rate:{} LIMIT 10 WINDOW 1000",
                session % 100
            ))?,
            _ => talk.try_ask(&format!("SESSION.ROUTE {of} tools {}", worker(session + 1)))?,
        };
        Ok(())
    }
}

fn rebind(talk: &mut Talk, of: &str) -> Result<Reply> {
    let route = talk.try_ask(&format!("SESSION.ROUTE {of} tools {}", worker(1)))?;
    let Ok(epoch) = route.field("epoch").and_then(Reply::integer) else {
        return Ok(route);
    };
    talk.try_ask(&format!(
        "SESSION.REBIND {of} tools {epoch} {} t-{epoch} LEASE 60000 INSTANCES 2 http://10.0.0.1:9001/mcp \
         http://10.0.0.2:9001/mcp AVOID http://10.0.0.1:9001/mcp",
        worker(1)
    ))
}

/// Pages through LIST to its end, with traffic between the pages.
fn walk(talk: &mut Talk, traffic: &mut Traffic, filter: &str) -> Result<(usize, usize, Duration)> {
    let started = Instant::now();
    let (mut pages, mut sessions, mut cursor) = (0, 0, "0".to_owned());
    loop {
        let page = talk.ask(&format!("SESSION.LIST{filter} CURSOR {cursor} COUNT 1000"))?;
        pages += 1;
        sessions += page.field("sessions")?.items().len();
        page.field("cursor")?.text().clone_into(&mut cursor);
        if cursor == "0" {
            return Ok((pages, sessions, started.elapsed()));
        }
        traffic.run(talk)?;
    }
}

/// Cleans up what has expired, until nothing is left.
fn reap(talk: &mut Talk, traffic: &mut Traffic) -> Result<usize> {
    let reaper = worker(0);
    let (mut reaped, mut idle) = (0, 0);
    // The last of them expires a second after the first page was requested.
    while idle < 3_000 {
        let page = talk.ask(&format!("SESSION.REAP {reaper} COUNT 1000"))?;
        let keys = page.field("keys")?.items();
        idle = if keys.is_empty() { idle + 1 } else { 0 };
        for key in keys {
            let claim = talk.try_ask(&format!(
                "SESSION.CLAIM {} {reaper} LEASE 60000",
                key.text()
            ))?;
            if let Ok(generation) = claim.field("gen").and_then(Reply::integer) {
                talk.ask(&format!(
                    "SESSION.FORGET {} {generation} {reaper}",
                    key.text()
                ))?;
                reaped += 1;
            }
        }
        traffic.run(talk)?;
    }
    Ok(reaped)
}

/// The longest call of each command: as measured by the caller, by the CPU time of the server, and by the slow log.
/// PING does nothing: its time is noise of the machine, or background work.
pub(crate) fn print_times(when: &str, talk: &mut Talk) -> Result<()> {
    let by_server = by_server(talk)?;
    let calls: u64 = talk.taken.values().map(|taken| taken.count).sum();
    println!("\n{when}, {calls} calls; the longest of each command, us:");
    println!(
        "{:<16} {:>9} {:>11} {:>12} {:>11} {:>12}",
        "", "calls", "seen", "server CPU", "by server", "CPU > 5 ms"
    );
    let is_shown =
        |name: &str| !matches!(name, "SLOWLOG" | "LATENCY" | "CONFIG" | "INFO" | "MODULE");
    for (name, taken) in talk.taken.iter().filter(|(name, _)| is_shown(name)) {
        let server = by_server
            .get(name)
            .map_or_else(|| format!("< {SLOW_US}"), u64::to_string);
        println!(
            "{name:<16} {:>9} {:>11} {:>12} {server:>11} {:>12}",
            taken.count,
            taken.longest.as_micros(),
            taken.most_worked.as_micros(),
            taken.over,
        );
    }
    for event in talk.ask("LATENCY LATEST")?.items() {
        println!("LATENCY: {event:?}");
    }
    forget_times(talk)
}

/// The longest call of each command in SLOWLOG, in microseconds.
fn by_server(talk: &mut Talk) -> Result<BTreeMap<String, u64>> {
    let mut longest_us: BTreeMap<String, u64> = BTreeMap::new();
    for entry in talk.ask("SLOWLOG GET -1")?.items() {
        if let [_, _, micros, words, ..] = entry.items() {
            let name = words.items().first().map(Reply::text).unwrap_or_default();
            let longest = longest_us.entry(name.to_owned()).or_default();
            *longest = (*longest).max(u64::try_from(micros.integer()?)?);
        }
    }
    Ok(longest_us)
}
