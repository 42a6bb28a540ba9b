//! Everything at once: many clients with random commands, good and bad, while an operator flushes, swaps, reconfigures,
//! reloads, kills clients, and unloads the module under them. Afterwards the same server runs, and works.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use fastrand::Rng;
use mooring_tests::paths;
use mooring_tests::redis::Redis;

use super::resp::{Connection, Value};
use super::traffic::{Mix, Traffic, check, seeded, shown};
use super::truth;

/// How many clients there are, and how many commands each of them says at least.
const CLIENTS: usize = 4;
const COMMANDS: usize = 6_000;

/// How many things the operator does.
const DISTURBANCES: usize = 600;

/// Less than Redis reads from a client at once.
const READ_AT_ONCE_BYTES: usize = 4_096;

/// How often a client tries to connect again before that is a failure.
const CONNECTS_MAX: usize = 100;

/// One client: says commands until it has said enough and the operator is done, and connects again when it is cut off.
fn client(redis: &Redis, mut traffic: Traffic, operating: &AtomicUsize) -> anyhow::Result<()> {
    let mut c = Connection::open(redis)?;
    let (mut said_so_far, mut cut_off) = (0, 0);
    while said_so_far < COMMANDS || operating.load(Ordering::Acquire) > 0 {
        let said = traffic.draw();
        said_so_far += 1;
        let words: Vec<&[u8]> = said.words.iter().map(Vec::as_slice).collect();
        let reply = match said_so_far % 17 == 0 && is_short(&said.words) {
            true => c.transaction(&words),
            false => traffic.say(&mut c, &said),
        };
        match reply {
            Ok(Value::Array(replies)) => replies.iter().try_for_each(check),
            Ok(reply) => check(&reply),
            Err(error) if is_defect(&error) => Err(error),
            Err(_) => {
                cut_off += 1;
                anyhow::ensure!(cut_off < CONNECTS_MAX, "cut off too often");
                c = Connection::open(redis)?;
                Ok(())
            }
        }
        .with_context(|| shown(&said))?;
    }
    Ok(())
}

/// Whether the server reads a transaction of it in one go. One that a MODULE UNLOAD comes into the middle of kills
/// Redis itself: the queued command is called at EXEC, wherever its code was. No module can see that coming.
fn is_short(words: &[Vec<u8>]) -> bool {
    words.iter().map(Vec::len).sum::<usize>() < READ_AT_ONCE_BYTES
}

/// Whether a reply was wrong, and not only the connection cut.
fn is_defect(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_none()
        && !format!("{error:#}").contains("an empty reply")
}

/// One thing that an operator does, and that no client may be harmed by.
fn disturb(c: &mut Connection, rng: &mut Rng, module: &str) -> anyhow::Result<()> {
    let key = super::traffic::words::any_key(rng);
    let command = match rng.u32(..20) {
        0 => "FLUSHALL".to_owned(),
        1 => "FLUSHALL ASYNC".to_owned(),
        2 => "FLUSHDB ASYNC".to_owned(),
        3 => "SWAPDB 0 1".to_owned(),
        4 => "DEBUG RELOAD".to_owned(),
        5 => "BGREWRITEAOF".to_owned(),
        6 => "SAVE".to_owned(),
        7 => "CLIENT KILL TYPE normal SKIPME yes".to_owned(),
        8 | 9 => {
            let shown = c.show("MODULE UNLOAD mooring")?;
            anyhow::ensure!(shown == "OK" || shown.starts_with("ERR"), "{shown}");
            format!("MODULE LOAD {module}")
        }
        10 => format!("CONFIG SET mooring.touch-step {}", rng.u32(0..1_002)),
        11 => format!("CONFIG SET mooring.tombstone-ratio {}", rng.u32(0..12)),
        12 => format!("CONFIG SET mooring.tombstone-min-ms {}", rng.u32(0..1_000)),
        13 => format!("CONFIG SET mooring.worker-grace-ms {}", rng.u32(900..5_000)),
        14 => format!(
            "CONFIG SET maxmemory {}",
            ["0", "0", "0", "1"][rng.usize(..4)]
        ),
        15 => format!("RENAME {key} elsewhere"),
        16 => format!("PEXPIRE {key} 1"),
        17 => "INFO everything".to_owned(),
        18 => "REPLICAOF NO ONE".to_owned(),
        _ => "SCRIPT FLUSH".to_owned(),
    };
    let reply = c.run(&command)?;
    // A module that was not unloaded cannot be loaded, a key that is not there cannot be renamed.
    check(&reply).with_context(|| command)
}

#[tokio::test]
async fn nothing_that_clients_and_operators_do_breaks_the_server() -> anyhow::Result<()> {
    let mut redis = Redis::start().await?;
    let module = paths::redis_module()?.display().to_string();
    let mut operator = Connection::open(&redis)?;
    let run_id = run_id(&mut operator)?;
    let mix = Mix {
        bad: 25,
        foreign: 10,
    };
    let traffics: Vec<Traffic> = (0..CLIENTS as u64)
        .map(|n| Traffic::new(&mut operator, 2_024 + n, mix))
        .collect::<Result<_, _>>()?;
    let operating = AtomicUsize::new(DISTURBANCES);
    let outcome = std::thread::scope(|scope| -> anyhow::Result<()> {
        let (redis, operating) = (&redis, &operating);
        let clients: Vec<_> = traffics
            .into_iter()
            .map(|traffic| scope.spawn(move || client(redis, traffic, operating)))
            .collect();
        let mut rng = Rng::with_seed(seeded(2_024)?);
        let mut operated = Ok(());
        while operating.load(Ordering::Acquire) > 0 {
            operated = operated.and_then(|()| disturb(&mut operator, &mut rng, &module));
            operating.fetch_sub(1, Ordering::AcqRel);
        }
        for client in clients {
            client.join().expect("a client's thread")?;
        }
        operated
    });
    // A server that ended is the finding, and its log says why; that clients lost it follows.
    let ended = redis.process().exit_status()?;
    assert!(
        ended.is_none(),
        "{}",
        last_words(&redis.process().log_text())
    );
    outcome?;
    let mut c = Connection::open(&redis)?;
    assert_eq!(c.show("PING")?, "PONG");
    assert_eq!(self::run_id(&mut c)?, run_id, "it is the same process");
    assert_eq!(c.show("CONFIG SET maxmemory 0")?, "OK");
    if !c.show("MODULE LIST")?.contains("mooring") {
        assert_eq!(c.show(&format!("MODULE LOAD {module}"))?, "OK");
    }
    list_what_is_held(&mut c).await?;
    let created = c.run("SESSION.CREATE mcpgw:after a zoe TTL 900000")?;
    assert_eq!(created.field("created").integer(), 1);
    let log = redis.process().log_text();
    for word in [
        "internal error",
        "ASSERTION",
        "BUG REPORT",
        "crashed by signal",
        "panicked",
    ] {
        assert!(!log.contains(word), "{word} in {log}");
    }
    Ok(())
}

/// Fails unless the indexes know exactly the sessions that there are.
async fn list_what_is_held(c: &mut Connection) -> anyhow::Result<()> {
    truth::whole(c).await?;
    for database in 0..2 {
        c.run(&format!("SELECT {database}"))?;
        let listed: BTreeSet<String> = truth::listed(c, "")?.into_keys().collect();
        let Value::Array(keys) = c.run("KEYS mcpgw:*")? else {
            anyhow::bail!("KEYS is an array");
        };
        let mut held = BTreeSet::new();
        for key in keys {
            let record = c.run(&format!("SESSION.GET {key}"))?;
            if !matches!(record, Value::Error(_)) {
                held.insert(key.to_string());
            }
        }
        assert_eq!(listed, held, "database {database}");
    }
    Ok(())
}

/// What a server that crashed says of the place.
fn last_words(log: &str) -> String {
    let report = log
        .lines()
        .skip_while(|line| !line.contains("REDIS BUG REPORT START"));
    let lines: Vec<&str> = report
        .take_while(|line| !line.contains("INFO OUTPUT"))
        .collect();
    format!("the server ended:\n{}", lines.join("\n"))
}

fn run_id(c: &mut Connection) -> anyhow::Result<String> {
    let info = c.show("INFO server")?;
    let line = info
        .split("\\r\\n")
        .find(|line| line.starts_with("run_id:"));
    line.map(str::to_owned).context("run_id")
}
