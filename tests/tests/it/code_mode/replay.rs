//! Runs that are repeated: from their record, without a call, or with the tools called again.

use anyhow::Context;
use mooring_tests::client::HttpClient;
use mooring_tests::code::USER;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::Gateway;
use serde_json::{Value, json};

use super::refused::governed;
use super::{Rig, run};
use crate::keyed::instances_table;

const ADA: &str = "ada@example.org";

const COUNTS: &str = "import tools\nfor _ in range(3):\n    print(tools.web.increment()['count'])\n\
                      open('/results/kept.txt', 'a').write('x')";

async fn replayed(gateway: &Gateway, run_id: &str, mode: Option<&str>) -> anyhow::Result<Value> {
    let path = format!("/servers/sandbox/code/runs/{run_id}/replay");
    let body = mode.map_or_else(|| json!({}), |mode| json!({"mode": mode}));
    let request = http::Request::post(gateway.url(&path))
        .header(USER, ADA)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&body)?.into())?;
    let reply = HttpClient::default().send(request).await?;
    let status = reply.status;
    let answer = reply.json().await?;
    anyhow::ensure!(status == 200, "{status}: {answer}");
    Ok(answer)
}

#[tokio::test]
async fn a_recorded_replay_prints_the_same_and_calls_nothing() -> anyhow::Result<()> {
    let web = Fixture::start("a").await?;
    let rig = Rig::start(&instances_table("web", "http", &[web.url()]), "").await?;
    let mut session = rig.open("sandbox", ADA).await?;
    let first = run(&mut session, "python", COUNTS).await?;
    assert_eq!(first["output"], "1\n2\n3\n", "{first}");
    let run_id = first["run_id"].as_str().context("a run id")?;

    let again = replayed(&rig.0.gateways[2], run_id, None).await?;
    assert_eq!(again["answer"]["output"], first["output"], "{again}");
    assert_eq!(
        again["answer"]["replayed_from_run_id"], first["run_id"],
        "{again}"
    );
    assert_eq!(again["replay"]["same"], true, "{again}");
    assert_eq!(again["replay"]["mode"], "recorded", "{again}");

    // Nothing was called: the tool counts on from where the first run left it; and nothing was written.
    let after = run(&mut session, "python", COUNTS).await?;
    assert_eq!(after["output"], "4\n5\n6\n", "{after}");
    let kept = session
        .call("fs_read", json!({"path": "/results/kept.txt"}))
        .await?;
    assert_eq!(kept["structuredContent"]["content"], "xx", "{kept}");

    let live = replayed(&rig.0.gateways[0], run_id, Some("live")).await?;
    assert_eq!(live["answer"]["output"], "7\n8\n9\n", "{live}");
    assert_eq!(live["replay"]["same_output"], false, "{live}");
    let runs = governed(&rig.0.gateways[1], ADA, "/servers/sandbox/code/runs").await?;
    let runs = runs["runs"].as_array().cloned().unwrap_or_default();
    assert_eq!(runs.len(), 4, "{runs:?}");
    assert!(
        runs.iter().all(|run| run["status"] == "completed"),
        "{runs:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_replay_that_leaves_its_record_says_where() -> anyhow::Result<()> {
    let web = Fixture::start("a").await?;
    let rig = Rig::start(&instances_table("web", "http", &[web.url()]), "").await?;
    let mut session = rig.open("sandbox", ADA).await?;
    // What it calls follows from a file, which is another one when it is repeated.
    let code =
        "import tools\nname = open('/scratch/name').read()\nprint(tools.call('web', name, {}))";
    let write = |name: &str| json!({"path": "/scratch/name", "content": name});
    session.call("fs_write", write("increment")).await?;
    let first = run(&mut session, "python", code).await?;
    assert_eq!(first["metrics"]["outcome"], "completed", "{first}");
    session.call("fs_write", write("whoami")).await?;
    let run_id = first["run_id"].as_str().context("a run id")?;
    let again = replayed(&rig.0.gateways[1], run_id, Some("recorded")).await?;
    assert_eq!(again["replay"]["same"], false, "{again}");
    let divergences = again["replay"]["divergences"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let told: Vec<(&str, &str)> = divergences
        .iter()
        .map(|d| {
            (
                d["tool"].as_str().unwrap_or_default(),
                d["what"].as_str().unwrap_or_default(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [("whoami", "unknown_call"), ("increment", "call_not_made")],
        "{again}"
    );
    Ok(())
}
