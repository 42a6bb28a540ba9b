//! The cost of writes for a replica: those of the module and of its alternatives; then the cost of one write for the
//! primary, a replica with the module, and a replica without it. All figures are the CPU time of each server's main
//! thread.
//!
//! Invariant: in the second part every write changes the record, so that each of them is replicated.

use anyhow::{Result, ensure};

use crate::client::Client;
use crate::population::{self, Driven, bind, create, key, principal};
use crate::processor::Processor;
use crate::server::{Persistence, Server};
use crate::talk::Talk;
use crate::workload::Variant;
use crate::{CONNECTIONS, Presence};

const SESSIONS: usize = 200_000;
const BATCH: usize = 500;
const TTL_MS: u64 = 3_600_000;

/// A separate primary, so that the figures without a replica are not those of a server that has one.
pub(crate) struct Replicated {
    primary: Server,
    with: Server,
    without: Server,
}

impl Replicated {
    pub(crate) fn start() -> Result<Self> {
        let primary = Server::start(Persistence::None)?;
        Ok(Self {
            with: primary.start_replica(Presence::Loaded)?,
            without: primary.start_replica(Presence::Absent)?,
            primary,
        })
    }

    /// The cost of one operation at the primary for a replica, with the module if the primary has it, in us.
    pub(crate) fn cost(&self, variant: &Variant, depth: usize, count: usize) -> Result<f64> {
        let mut client = Client::connect(self.primary.port(), CONNECTIONS)?;
        let script = client.prepare(variant, count)?;
        let requests = variant.requests(&script, CONNECTIONS, depth, count);
        let replica = match variant.presence() {
            Presence::Loaded => &self.with,
            Presence::Absent => {
                self.primary.unload_module()?;
                &self.without
            }
        };
        let processor = Processor::of(replica.id())?;
        catch_up(&mut client)?;
        let before = processor.so_far()?;
        client.drive(&requests)?;
        catch_up(&mut client)?;
        let spent = processor.so_far()?.saturating_sub(before);
        if variant.presence() == Presence::Absent {
            self.primary.load_module()?;
        }
        Ok(spent.as_secs_f64() * 1e6 / requests.operations() as f64)
    }
}

/// Waits until both replicas have applied everything. WAIT refers to the last write of its own connection.
fn catch_up(client: &mut Client) -> Result<()> {
    client.ask(&["SET", "caught-up", "1"])?;
    let behind = client.ask(&["WAIT", "2", "60000"])?;
    ensure!(behind.trim() == ":2", "WAIT answered {behind}");
    Ok(())
}

/// Measures, and prints the results.
pub(crate) fn measure(primary: &Server) -> Result<()> {
    let mut talk = Talk::connect(primary)?;
    talk.ask("FLUSHALL SYNC")?;
    population::beat(&mut talk)?;
    let with = primary.start_replica(Presence::Loaded)?;
    let without = primary.start_replica(Presence::Absent)?;
    let processors = [
        Processor::of(primary.id())?,
        Processor::of(with.id())?,
        Processor::of(without.id())?,
    ];
    println!("\n{SESSIONS} replicated writes of each kind: CPU us of each server for one");
    println!(
        "{:<20} {:>8} {:>20} {:>23} {:>16}",
        "", "primary", "replica with module", "replica without module", "with / primary"
    );
    let mut write = |name: &str, command: &dyn Fn(usize) -> String| -> Result<()> {
        let before = so_far(&processors)?;
        for first in (0..SESSIONS).step_by(BATCH) {
            let batch: Vec<String> = (first..first + BATCH).map(command).collect();
            talk.ask_many(&batch)?;
        }
        let behind = talk.ask("WAIT 2 60000")?.integer()?;
        ensure!(behind == 2, "only {behind} replicas have the writes");
        let each: Vec<f64> = so_far(&processors)?
            .iter()
            .zip(before)
            .map(|(after, before)| (after - before) * 1e6 / SESSIONS as f64)
            .collect();
        println!(
            "{name:<20} {:>8.2} {:>20.2} {:>23.2} {:>15.2}x",
            each[0],
            each[1],
            each[2],
            each[1] / each[0]
        );
        Ok(())
    };
    write("CREATE", &|session| create(session, TTL_MS))?;
    write("BIND", &|session| bind(session, Driven::ByAnybody))?;
    // Another TTL is always written.
    write("TOUCH, written", &|session| {
        let (key, principal) = (key(session), principal(session));
        format!("SESSION.TOUCH {key} {principal} TTL {}", 2 * TTL_MS)
    })?;
    write("KILL", &|session| format!("SESSION.KILL {}", key(session)))
}

fn so_far(processors: &[Processor; 3]) -> Result<[f64; 3]> {
    let mut seconds = [0.0; 3];
    for (seconds, processor) in seconds.iter_mut().zip(processors) {
        *seconds = processor.so_far()?.as_secs_f64();
    }
    Ok(seconds)
}
