//! Security events: they are there at once, for those who may see them, and outlive what they are about.

use serde_json::json;

use super::{ADA, AUDITOR, BOB, Scene, text};

#[tokio::test]
async fn events_are_listed_newest_first_and_filtered() -> anyhow::Result<()> {
    let scene = Scene::start("").await?;
    let mut ada = scene.coder(ADA).await?;
    let mut bob = scene.coder(BOB).await?;
    let blocked = json!({"code": "import os\nos.system('x')", "language": "python"});
    let (answer, _) = ada.call("shell_exec", blocked.clone()).await?;
    let run = text(&answer, "run_id");
    bob.call("shell_exec", blocked).await?;
    let slow = json!({"code": "while True: pass", "language": "python", "timeout_ms": 1_000});
    ada.call("shell_exec", slow).await?;

    let own = scene.events(1, ADA, "").await?;
    let kinds: Vec<String> = own.iter().map(|event| text(event, "kind")).collect();
    assert_eq!(kinds, ["limit_hit", "policy_block"]);
    assert_eq!(own[1]["run_id"], run.as_str());
    assert_eq!(own[1]["run_status"], "blocked");
    assert_eq!(own[1]["user_email"], ADA.user);
    assert_eq!(scene.events(2, AUDITOR, "").await?.len(), 3);
    assert_eq!(
        scene.events(2, AUDITOR, "?kind=policy_block").await?.len(),
        2
    );
    let of_bob = format!("?user={}&kind=policy_block", BOB.user);
    assert_eq!(scene.events(0, AUDITOR, &of_bob).await?.len(), 1);
    assert_eq!(scene.events(0, AUDITOR, "?limit=1").await?.len(), 1);
    assert_eq!(
        scene
            .events(0, AUDITOR, "?since=32503680000000")
            .await?
            .len(),
        0
    );
    Ok(())
}

#[tokio::test]
async fn who_runs_too_much_is_an_event() -> anyhow::Result<()> {
    let scene = Scene::start("sandbox_policy = { max_runs_per_minute = 1 }").await?;
    let mut ada = scene.coder(ADA).await?;
    ada.python("print(1)").await?;
    let again = json!({"code": "print(2)", "language": "python"});
    let (answer, is_error) = ada.call("shell_exec", again).await?;
    assert!(is_error, "{answer}");
    let events = scene.events(2, ADA, "?kind=rate_limited").await?;
    assert_eq!(events.len(), 1);
    assert_eq!(
        scene.runs(1, ADA, "").await?.len(),
        1,
        "what did not run is no run"
    );
    Ok(())
}
