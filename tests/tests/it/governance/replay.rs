//! Runs that are run again: from their record, or with the tools.

use http::Method;
use mooring_tests::fixture::Fixture;
use serde_json::{Value, json};

use super::{ADA, AUDITOR, Scene, text};
use crate::keyed::instances_table;

const COUNT: &str =
    "from tools.web import increment\nprint(increment()['count'], increment()['count'])";

async fn recorded(scene: &Scene, code: &str) -> anyhow::Result<String> {
    let mut ada = scene.coder(ADA).await?;
    let arguments = json!({"code": code, "language": "python"});
    Ok(text(&ada.done("shell_exec", arguments).await?, "run_id"))
}

async fn replayed(scene: &Scene, id: &str, body: Value) -> anyhow::Result<Value> {
    scene
        .post(1, &format!("code/runs/{id}/replay"), ADA, body)
        .await
}

#[tokio::test]
async fn a_replay_answers_from_the_record_and_calls_nothing() -> anyhow::Result<()> {
    let fixture = Fixture::start("a").await?;
    let tables = instances_table("web", "http", &[fixture.url()]);
    let scene = Scene::start_with(&tables, "", |settings| settings).await?;
    let id = recorded(&scene, COUNT).await?;
    for _ in 0..2 {
        let answer = replayed(&scene, &id, json!({})).await?;
        assert_eq!(answer["replay"]["same"], true, "{answer}");
        assert_eq!(answer["replay"]["mode"], "recorded");
        assert_eq!(answer["answer"]["output"], "1 2\n");
        assert_eq!(answer["run"]["replayed_from_run_id"], id.as_str());
        assert_eq!(answer["run"]["tool_calls_total"], 2);
    }
    // The tool has been called twice, and counts on from there.
    let live = replayed(&scene, &id, json!({"mode": "live"})).await?;
    assert_eq!(live["answer"]["output"], "3 4\n", "{live}");
    assert_eq!(live["replay"]["same_output"], false);
    assert_eq!(scene.runs(2, ADA, "").await?.len(), 4, "a replay is a run");
    Ok(())
}

#[tokio::test]
async fn code_that_does_otherwise_diverges_where_it_does() -> anyhow::Result<()> {
    let fixture = Fixture::start("a").await?;
    let tables = instances_table("web", "http", &[fixture.url()]);
    let scene = Scene::start_with(&tables, "", |settings| settings).await?;
    let code = "import os\nfrom tools.web import increment\nprint(increment()['count'])\n\
                if os.path.exists('/results/again'):\n    increment()\n\
                else:\n    open('/results/again', 'w').close()";
    let id = recorded(&scene, code).await?;
    let answer = replayed(&scene, &id, json!({"mode": "recorded"})).await?;
    assert_eq!(answer["replay"]["same"], false, "{answer}");
    let divergence = &answer["replay"]["divergences"][0];
    assert_eq!(
        (
            &divergence["call"],
            &divergence["tool"],
            &divergence["what"]
        ),
        (&json!(2), &json!("increment"), &json!("unknown_call"))
    );
    let events = scene.events(0, ADA, "?kind=replay_diverged").await?;
    assert_eq!((events.len(), &events[0]["call"]), (1, &json!(2)));
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_replayed_is_refused_by_name() -> anyhow::Result<()> {
    let scene = Scene::start("").await?;
    let id = recorded(&scene, "print(1)").await?;
    let path = format!("code/runs/{id}/replay");
    let refused = scene
        .refused(Method::POST, &path, ADA, Some(&json!({"mode": "again"})))
        .await?;
    assert_eq!(refused, (400, "invalid_body".to_owned()));
    let unknown = "code/runs/01ARZ3NDEKTSV4RRFFQ69G5FAV/replay";
    let refused = scene.refused(Method::POST, unknown, AUDITOR, None).await?;
    assert_eq!(refused, (404, "run_not_found".to_owned()));
    let off = Scene::start_with("", "", |settings| {
        settings.env("MOORING_CODE_REPLAY_ENABLED", "false")
    })
    .await?;
    let id = recorded(&off, "print(1)").await?;
    let path = format!("code/runs/{id}/replay");
    let refused = off.refused(Method::POST, &path, ADA, None).await?;
    assert_eq!(refused, (403, "replay_disabled".to_owned()));
    Ok(())
}
