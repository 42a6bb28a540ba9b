//! A waiting client that is to be woken in more than one way at once is answered all the same, once.

use std::time::Duration;

use mooring_tests::redis::Redis;
use mooring_tests::wait;

use super::resp::{Connection, Value};

const BLOCKED_WITHIN: Duration = Duration::from_secs(10);

async fn blocked(c: &mut Connection, count: usize) -> anyhow::Result<()> {
    let line = format!("blocked_clients:{count}\\r\\n");
    wait::until_true("the client to wait", BLOCKED_WITHIN, async || {
        Ok(c.show("INFO clients")?.contains(&line))
    })
    .await
}

#[tokio::test]
async fn a_wake_and_the_time_out_in_one_turn_of_the_loop_answer() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    let mut waiting = Connection::open(&redis)?;
    waiting.say(&[b"WORKER.WAIT", b"w:1", b"TIMEOUT", b"100"])?;
    blocked(&mut c, 1).await?;
    // While the server sleeps the time-out passes; the wake, a second WAIT of the same worker, comes first all the
    // same, since both commands are read before the server looks at its clock.
    let [slept, second] = c.pipeline([
        &[b"DEBUG", b"SLEEP", b"0.3"],
        &[b"WORKER.WAIT", b"w:1", b"TIMEOUT", b"1"],
    ])?;
    assert_eq!(slept.to_string(), "OK");
    assert_eq!(second, Value::Array(Vec::new()));
    assert_eq!(
        waiting.read()?,
        Value::Array(Vec::new()),
        "and the first has its answer"
    );
    assert_eq!(waiting.show("PING")?, "PONG", "one answer");
    blocked(&mut c, 0).await
}

#[tokio::test]
async fn whoever_ends_a_wait_it_is_answered_once() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    let mut waiting = Connection::open(&redis)?;
    let id = waiting.run("CLIENT ID")?;
    for _ in 0..20 {
        waiting.say(&[b"WORKER.WAIT", b"w:1", b"TIMEOUT", b"60000"])?;
        blocked(&mut c, 1).await?;
        assert_eq!(c.show(&format!("CLIENT UNBLOCK {id}"))?, "1");
        assert_eq!(waiting.read()?, Value::Array(Vec::new()));
        assert_eq!(waiting.show("PING")?, "PONG", "one answer");
    }
    // A server with a waiting client keeps the module; without one it lets it go.
    waiting.say(&[b"WORKER.WAIT", b"w:1", b"TIMEOUT", b"60000"])?;
    blocked(&mut c, 1).await?;
    assert!(c.show("MODULE UNLOAD mooring")?.starts_with("ERR"));
    drop(waiting);
    wait::until_true("the module to be unloaded", BLOCKED_WITHIN, async || {
        Ok(c.show("MODULE UNLOAD mooring")? == "OK")
    })
    .await
}
