//! A worker that is killed with a run: its record says so, once, whoever looks. Runs of workers that live go on.

use std::time::Duration;

use mooring_tests::code::Coder;
use mooring_tests::wait;
use serde_json::json;

use super::{ADA, BOB, Scene, text};

/// A worker has to be missed by the store and then by another worker.
const LOST_WITHIN: Duration = Duration::from_secs(90);

/// No run reaches its limit while that is waited for.
const RUN_TIME: &str = "sandbox_policy = { max_execution_time_ms = 240000 }";

#[tokio::test]
async fn a_run_whose_worker_is_killed_is_lost() -> anyhow::Result<()> {
    let mut scene = Scene::start(RUN_TIME).await?;
    let mut ada = Coder::open(&[&scene.fleet.gateways[0]], ADA.user).await?;
    let running = tokio::spawn(async move {
        let code = "import time\nprint('begun', flush=True)\ntime.sleep(200)";
        ada.call("shell_exec", json!({"code": code, "language": "python"}))
            .await
    });
    let id = wait::until("the run to begin", LOST_WITHIN, async || {
        let runs = scene.runs(1, ADA, "?status=running").await?;
        Ok(runs.first().map(|run| text(run, "id")))
    })
    .await?;
    // A run of a worker that lives goes on all the while.
    let mut bob = Coder::open(&[&scene.fleet.gateways[1]], BOB.user).await?;
    tokio::spawn(async move {
        let code = "import time\ntime.sleep(200)";
        bob.call("shell_exec", json!({"code": code, "language": "python"}))
            .await
    });
    let living_id = wait::until("the other run to begin", LOST_WITHIN, async || {
        let runs = scene.runs(1, BOB, "?status=running").await?;
        Ok(runs.first().map(|run| text(run, "id")))
    })
    .await?;
    scene.fleet.gateways[0].process().kill_now()?;
    assert!(running.await?.is_err(), "its client hears nothing");
    let path = format!("code/runs/{id}");
    wait::until_true("the record to end", LOST_WITHIN, async || {
        Ok(scene.get(1, &path, ADA).await?["status"] == "lost")
    })
    .await?;
    let run = scene.get(2, &path, ADA).await?;
    assert!(text(&run, "error").contains("the gateway ended during the run"));
    assert!(run["finished_at"].is_string());
    let living = scene.get(2, &format!("code/runs/{living_id}"), BOB).await?;
    assert_eq!(living["status"], "running", "{living}");
    // The session goes on.
    let mut ada = Coder::open(
        &[&scene.fleet.gateways[1], &scene.fleet.gateways[2]],
        ADA.user,
    )
    .await?;
    assert_eq!(ada.python("print('on')").await?, "on");
    let counted = |status: &'static str| {
        let scene = &scene;
        async move {
            scene
                .runs(2, ADA, &format!("?status={status}"))
                .await
                .map(|runs| runs.len())
        }
    };
    assert_eq!(
        (counted("lost").await?, counted("completed").await?),
        (1, 1)
    );
    Ok(())
}
