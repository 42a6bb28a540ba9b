//! The module under valgrind, in the stock server: every command, good and bad, reloads and unloading. Memory that is
//! read or written where it must not be, and memory that nobody can give back any more, fail the test.
//!
//! The server alone is clean under the same options, but for its compression, which branches on bytes that it never
//! wrote: that is off, and nothing is filtered.

use std::time::Duration;

use anyhow::Context;
use mooring_tests::paths;
use mooring_tests::redis::{Module, Redis};
use mooring_tests::wait;
use tempfile::TempDir;

use super::resp::{Connection, Value};
use super::traffic::{Mix, Traffic};

/// What valgrind makes of a run that had errors.
const HAD_ERRORS: i32 = 99;

/// How long it may take until the module has nothing under way.
const IDLE_WITHIN: Duration = Duration::from_secs(30);

/// The search for leaks takes its time.
const ENDED_WITHIN: Duration = Duration::from_secs(60);

const MIX: Mix = Mix {
    bad: 15,
    foreign: 10,
};

/// A client that waits until its time is over, one that hangs up, and one that is killed.
fn wait_in_every_way(redis: &Redis, c: &mut Connection) -> anyhow::Result<()> {
    c.run("WORKER.WAIT w9:1 TIMEOUT 20")?;
    let mut hangs_up = Connection::open(redis)?;
    hangs_up.say(&[b"WORKER.WAIT", b"w8:1", b"TIMEOUT", b"10000"])?;
    let mut killed = Connection::open(redis)?;
    let id = killed.run("CLIENT ID")?;
    killed.say(&[b"WORKER.WAIT", b"w7:1", b"TIMEOUT", b"10000"])?;
    drop(hangs_up);
    c.run(&format!("CLIENT KILL ID {id}"))?;
    Ok(())
}

#[tokio::test]
#[ignore = "soak"]
async fn soak_every_command_is_clean_under_valgrind() -> anyhow::Result<()> {
    let reports = TempDir::with_prefix("mooring-valgrind-")?;
    let report = reports.path().join("report");
    let program = [
        "valgrind",
        "--quiet",
        // The server's own allocator, linked as a library, is replaced like the C library's.
        "--soname-synonyms=somalloc=*jemalloc*",
        "--leak-check=full",
        "--show-leak-kinds=definite",
        "--errors-for-leak-kinds=definite",
        // What was unloaded before the end still has its names.
        "--keep-debuginfo=yes",
        "--child-silent-after-fork=yes",
        &format!("--error-exitcode={HAD_ERRORS}"),
        &format!("--log-file={}", report.display()),
        "redis-server",
    ];
    let arguments = ["--rdbcompression", "no"];
    let mut redis = Redis::start_by(&program, Module::Loaded, &arguments).await?;
    let mut c = Connection::open(&redis)?;
    let mut resp3 = Connection::open_resp3(&redis)?;
    let module = paths::redis_module()?.display().to_string();
    let mut traffic = Traffic::new(&mut c, 3, MIX)?;
    for _ in 0..2 {
        traffic.run(&mut [&mut c, &mut resp3], 1_200)?;
        wait_in_every_way(&redis, &mut c)?;
        for line in [
            "DEBUG RELOAD",
            "INFO everything",
            "COMMAND DOCS",
            "SWAPDB 0 1",
            "FLUSHALL ASYNC",
            "CONFIG SET mooring.touch-step 7",
        ] {
            let reply = c.run(line)?;
            assert!(!matches!(reply, Value::Error(_)), "{line}: {reply}");
        }
        traffic.run(&mut [&mut c, &mut resp3], 300)?;
        // Refused while a client waits or an index is being rebuilt.
        wait::until_true("the module to be unloaded", IDLE_WITHIN, async || {
            Ok(c.show("MODULE UNLOAD mooring")? == "OK")
        })
        .await?;
        assert_eq!(c.show(&format!("MODULE LOAD {module}"))?, "OK");
        // A record is left over each time, so that the next load finds one.
        traffic.run(&mut [&mut c], 300)?;
    }
    traffic.cover(&mut [&mut c])?;
    c.say(&[b"SHUTDOWN", b"NOSAVE"])?;
    let ended = redis.process().ended(ENDED_WITHIN).await?;
    let report = std::fs::read_to_string(report).context("valgrind's report")?;
    assert!(ended.success() && report.is_empty(), "{ended}\n{report}");
    Ok(())
}
