//! A worker that is frozen in mid-run and comes back: nobody runs beside it, who waits is told so within a bound, and
//! reading goes on.

use std::time::Duration;

use mooring_tests::code::{CodeVolume, Coder};
use mooring_tests::gateway::Gateway;
use mooring_tests::process_tree::{descendants, name_of};
use mooring_tests::redis::Redis;
use mooring_tests::wait;
use serde_json::json;

const ADA: &str = "ada@example.org";
/// How long something that is under way may take on a busy machine.
const SEEN_WITHIN: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_frozen_run_is_neither_doubled_nor_lost() -> anyhow::Result<()> {
    let (volume, redis) = (CodeVolume::new()?, Redis::start().await?);
    // The shortest run there is makes the shortest wait for it: its time, and fifteen seconds.
    let settings = volume
        .settings(&redis.url())
        .env("MOORING_CODE_DEFAULT_MAX_EXECUTION_TIME_MS", "3000");
    let mut gateways = Gateway::fleet(2, &settings).await?;
    let mut first = Coder::open(&[&gateways[0]], ADA).await?;
    let mut second = Coder::open(&[&gateways[1]], ADA).await?;
    first.write("/scratch/before", "there").await?;

    let code = "import time\ntime.sleep(1)\nopen('/scratch/run', 'w').write('whole')";
    let run = tokio::spawn(async move { first.python(code).await });
    let frozen = gateways[0].process().id();
    // Before the program runs, the gateway still has a part in starting it.
    wait::until_true("the run has begun", SEEN_WITHIN, async || {
        let mut names = descendants(frozen)?.into_iter().filter_map(name_of);
        Ok(names.any(|name| name.starts_with("python")))
    })
    .await?;
    gateways[0].process().stop()?;

    // Nobody waits to read.
    assert_eq!(second.read("/scratch/before").await?, "there");
    // The turn passes on when its lease lapses, but the lock is the frozen process's for as long as it lives.
    let (answer, is_error) = second
        .call("fs_write", json!({"path": "/scratch/late", "content": ""}))
        .await?;
    assert!(is_error, "{answer}");
    assert!(answer.to_string().contains("busy"), "{answer}");

    gateways[0].process().cont()?;
    run.await??;
    assert_eq!(second.read("/scratch/run").await?, "whole");
    second.write("/scratch/late", "now").await?;
    assert_eq!(second.names("/scratch").await?, ["before", "late", "run"]);
    Ok(())
}
