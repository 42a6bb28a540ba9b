//! A million sessions are created and expire: the server's memory before, while they exist, and after their last
//! tombstone was dropped.

use std::time::Duration;

use anyhow::Result;

use crate::population::{self, Driven};
use crate::scale::used_memory;
use crate::server::Server;
use crate::talk::Talk;

const SESSIONS: usize = 1_000_000;
/// Longer than it takes to create them.
const TTL_MS: u64 = 90_000;

/// Measures, and prints the results.
pub(crate) fn measure(server: &Server) -> Result<()> {
    let mut talk = Talk::connect(server)?;
    talk.ask("FLUSHALL SYNC")?;
    // Without tombstones: a session's key is dropped when it expires.
    talk.ask("CONFIG SET mooring.tombstone-min-ms 0")?;
    talk.ask("CONFIG SET mooring.tombstone-ratio 1")?;
    population::beat(&mut talk)?;
    let before = used_memory(&mut talk)?;
    population::make(&mut talk, 0..SESSIONS, TTL_MS, Driven::ByAnybody)?;
    let full = used_memory(&mut talk)?;
    while talk.ask("DBSIZE")?.integer()? > 0 {
        std::thread::sleep(Duration::from_millis(500));
    }
    // The module frees memory in steps.
    std::thread::sleep(Duration::from_secs(10));
    let after = used_memory(&mut talk)?;
    let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
    println!(
        "\n{SESSIONS} sessions come and go, MiB of Redis memory: before {:.1}, with them {:.1}, after {:.1}",
        mib(before),
        mib(full),
        mib(after)
    );
    talk.ask("CONFIG SET mooring.tombstone-ratio 2")?;
    talk.ask("CONFIG SET mooring.tombstone-min-ms 600000")?;
    Ok(())
}
