//! MODULE UNLOAD and MODULE LOAD while the server is in use: what was followed until then, and what happened in between,
//! is known again.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use mooring_tests::paths;
use mooring_tests::redis::Redis;
use mooring_tests::wait;

use super::resp::{Connection, Value};
use super::truth;

const UNBLOCKED_WITHIN: Duration = Duration::from_secs(10);

/// Unloads the module. While an index is rebuilt, or somebody has or awaits a turn, it has a timer set: the server
/// then refuses, and a moment later does not.
fn unload(c: &mut Connection) -> anyhow::Result<()> {
    const REFUSED_MAX: usize = 20_000;
    for _ in 0..REFUSED_MAX {
        let reply = c.show("MODULE UNLOAD mooring")?;
        if reply == "OK" {
            return Ok(());
        }
        assert!(reply.contains("timer"), "{reply}");
    }
    anyhow::bail!("it is never let go")
}

#[tokio::test]
async fn the_indexes_are_true_after_an_unload_under_traffic() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    for n in 0..200 {
        c.run(&format!("SESSION.CREATE mcpgw:a{n} s{n} zoe TTL 900000"))?;
    }
    let path = paths::redis_module()?.display().to_string();
    let is_done = AtomicBool::new(false);
    let rounds = AtomicUsize::new(0);
    let write = || -> anyhow::Result<()> {
        let mut c = Connection::open(&redis)?;
        for n in (0..200).cycle() {
            if is_done.load(Ordering::Acquire) {
                break;
            }
            // With and without the module, which comes and goes.
            c.run(&format!("SESSION.CREATE mcpgw:b{n} s zoe TTL 900000"))?;
            c.run(&format!("COPY mcpgw:a{n} mcpgw:c{n} REPLACE"))?;
            c.run(&format!("DEL mcpgw:c{}", (n + 100) % 200))?;
            c.run(&format!("SET plain{n} x"))?;
            rounds.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let writers = [scope.spawn(write), scope.spawn(write)];
        let mut cycled = Ok(());
        for cycle in 1..=10 {
            // Traffic in between, also where the machine has no time for it.
            while rounds.load(Ordering::Relaxed) < 20 * cycle
                && !writers.iter().any(|writer| writer.is_finished())
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            cycled = cycled.and_then(|()| unload(&mut c)).and_then(|()| {
                let reply = c.show(&format!("MODULE LOAD {path}"))?;
                anyhow::ensure!(reply == "OK", "{reply}");
                Ok(())
            });
        }
        is_done.store(true, Ordering::Release);
        for writer in writers {
            writer.join().expect("a writer does not panic")?;
        }
        cycled
    })?;
    assert!(truth::holds(&redis, "reloaded").await? > 200);
    Ok(())
}

#[tokio::test]
async fn a_waiting_worker_keeps_it_loaded_until_it_is_unblocked() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    let mut waiting = Connection::open(&redis)?;
    let id = waiting.run("CLIENT ID")?.integer();
    waiting.say(&[b"WORKER.WAIT", b"w:1", b"TIMEOUT", b"60000"])?;
    wait::until_true("the worker to wait", UNBLOCKED_WITHIN, async || {
        Ok(c.run("SESSION.STATS")?.field("workers_waiting").integer() == 1)
    })
    .await?;
    let refused = c.show("MODULE UNLOAD mooring")?;
    assert!(refused.contains("blocked clients"), "{refused}");
    assert_eq!(c.run(&format!("CLIENT UNBLOCK {id}"))?, Value::Integer(1));
    assert_eq!(waiting.read()?, Value::Array(Vec::new()));
    wait::until_true("the module to be let go", UNBLOCKED_WITHIN, async || {
        Ok(c.show("MODULE UNLOAD mooring")? == "OK")
    })
    .await?;
    let path = paths::redis_module()?.display().to_string();
    assert_eq!(c.show(&format!("MODULE LOAD {path}"))?, "OK");
    Ok(())
}

/// A fleet that goes on: workers that wait and wait again, and clients that use sessions.
#[tokio::test]
async fn a_quiesced_module_is_unloaded_from_under_waiting_workers() -> anyhow::Result<()> {
    const WORKERS: i64 = 6;
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    for n in 0..50 {
        c.run(&format!("SESSION.CREATE mcpgw:a{n} s{n} zoe TTL 900000"))?;
    }
    // A turn's lease sets a timer.
    c.run("SESSION.BIND mcpgw:a0 zoe tools w0:b t LEASE 60000 INSTANCES 1 i UPSTREAM u")?;
    let path = paths::redis_module()?.display().to_string();
    let is_done = AtomicBool::new(false);
    let wait = |worker: i64| -> anyhow::Result<()> {
        let mut c = Connection::open(&redis)?;
        while !is_done.load(Ordering::Acquire) {
            let answer = c.show(&format!("WORKER.WAIT w{worker}:b TIMEOUT 2000"))?;
            // As a gateway does after an error.
            if answer.starts_with("ERR") {
                let is_known = ["mooring.quiesce is on", "unknown command"];
                anyhow::ensure!(
                    is_known.iter().any(|known| answer.contains(known)),
                    "{answer}"
                );
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    };
    let call = || -> anyhow::Result<()> {
        let mut c = Connection::open(&redis)?;
        for n in 0_u64.. {
            if is_done.load(Ordering::Acquire) {
                break;
            }
            c.run("WORKER.BEAT w0:b 127.0.0.1:1 TTL 60000")?;
            c.run(&format!(
                "SESSION.ENTER mcpgw:a0 zoe tools w0:b t{n} LEASE 1000"
            ))?;
            c.run(&format!("SESSION.LEAVE mcpgw:a0 zoe tools t{n}"))?;
        }
        Ok(())
    };
    let waiting = |c: &mut Connection| -> anyhow::Result<i64> {
        Ok(c.run("SESSION.STATS")?.field("workers_waiting").integer())
    };
    let exchange = |c: &mut Connection| -> anyhow::Result<()> {
        until(|| Ok(waiting(c)? == WORKERS))?;
        let refused = c.show("MODULE UNLOAD mooring")?;
        anyhow::ensure!(refused != "OK", "workers wait");
        let load = format!("MODULE LOAD {path}");
        for command in [
            "CONFIG SET mooring.quiesce yes",
            "MODULE UNLOAD mooring",
            &load,
        ] {
            // A client that was just woken gets its reply first.
            until(|| Ok(c.show(command)? == "OK"))?;
        }
        let shown = c.show("CONFIG GET mooring.quiesce")?;
        anyhow::ensure!(shown == "[mooring.quiesce, no]", "{shown}");
        until(|| Ok(waiting(c)? == WORKERS))
    };
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let wait = &wait;
        let workers: Vec<_> = (0..WORKERS).map(|n| scope.spawn(move || wait(n))).collect();
        let caller = scope.spawn(call);
        let exchanged = (0..3).try_for_each(|_| exchange(&mut c));
        is_done.store(true, Ordering::Release);
        for worker in workers {
            worker.join().expect("a worker does not panic")?;
        }
        caller.join().expect("the caller does not panic")?;
        exchanged
    })?;
    assert_eq!(truth::holds(&redis, "reloaded").await?, 50);
    Ok(())
}

#[tokio::test]
async fn a_module_that_is_no_longer_quiesced_waits_again() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    let mut waiting = Connection::open(&redis)?;
    waiting.say(&[b"WORKER.WAIT", b"w:1", b"TIMEOUT", b"60000"])?;
    wait::until_true("the worker to wait", UNBLOCKED_WITHIN, async || {
        Ok(c.run("SESSION.STATS")?.field("workers_waiting").integer() == 1)
    })
    .await?;
    assert_eq!(c.show("CONFIG SET mooring.quiesce yes")?, "OK");
    assert_eq!(waiting.read()?, Value::Array(Vec::new()));
    let wait = "WORKER.WAIT w:1 TIMEOUT 1";
    let refused = "ERR mooring.quiesce is on: WORKER.WAIT does not wait";
    assert_eq!(c.show(wait)?, refused);
    let created = c.run("SESSION.CREATE mcpgw:a s zoe TTL 900000")?;
    assert_eq!(created.field("created").integer(), 1);
    assert_eq!(c.show("CONFIG SET mooring.quiesce no")?, "OK");
    assert_eq!(c.show(wait)?, "[]");
    Ok(())
}

/// Polls from a thread that has no runtime.
fn until(mut is_so: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let started = std::time::Instant::now();
    while !is_so()? {
        anyhow::ensure!(started.elapsed() < UNBLOCKED_WITHIN, "it never is so");
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
