//! MODULE UNLOAD and MODULE LOAD while the server is in use: what was followed until then, and what happened in between,
//! is known again.

use std::sync::atomic::{AtomicBool, Ordering};
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
        }
        Ok(())
    };
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let writers = [scope.spawn(write), scope.spawn(write)];
        let mut cycled = Ok(());
        for _ in 0..10 {
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
