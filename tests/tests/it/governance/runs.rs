//! Runs as they are recorded, and who sees them.

use http::Method;
use mooring_tests::code::USER;
use mooring_tests::gateway::Settings;
use serde_json::{Value, json};

use super::{ADA, ADMIN, AUDITOR, BOB, Scene, text};

#[tokio::test]
async fn every_run_is_recorded_with_how_it_ended() -> anyhow::Result<()> {
    let scene = Scene::start("").await?;
    let mut ada = scene.coder(ADA).await?;
    let mut ids = Vec::new();
    for (code, status) in [
        ("print('hello')", "completed"),
        ("raise SystemExit(3)", "failed"),
        ("while True: pass", "timed_out"),
        ("import os\nos.system('x')", "blocked"),
    ] {
        let arguments = json!({"code": code, "language": "python", "timeout_ms": 2_000});
        let (answer, _) = ada.call("shell_exec", arguments).await?;
        ids.push((text(&answer, "run_id"), status, code));
    }
    ids.reverse();
    for gateway in 0..3 {
        let runs = scene.runs(gateway, ADA, "").await?;
        let listed: Vec<(String, String)> = runs
            .iter()
            .map(|run| (text(run, "id"), text(run, "status")))
            .collect();
        let expected: Vec<(String, String)> = ids
            .iter()
            .map(|(id, status, _)| (id.clone(), (*status).to_owned()))
            .collect();
        assert_eq!(listed, expected);
        for omitted in ["code_body", "output", "error"] {
            assert!(runs[0].get(omitted).is_none(), "{omitted}");
        }
    }
    for (id, status, code) in &ids {
        let run = scene.get(1, &format!("code/runs/{id}"), ADA).await?;
        assert_eq!(text(&run, "code_body"), *code);
        assert_eq!(run["user_email"], ADA.user);
        assert_eq!(run["status"], *status);
        assert!(run["finished_at"].is_string());
        match *status {
            "completed" => {
                assert_eq!(run["output"], "hello\n");
                assert_eq!(run["metrics"]["exit_code"], 0);
                assert_eq!(run["metrics"]["isolation"]["tier"], "strict");
                assert!(run["metrics"]["cpu_time_ms"].as_f64() > Some(0.0));
                assert!(run["metrics"]["memory_peak_bytes"].as_u64() > Some(0));
            }
            "failed" => assert_eq!(run["metrics"]["exit_code"], 3),
            "timed_out" => {
                assert_eq!(
                    run["metrics"]["limits_hit"],
                    json!(["max_execution_time_ms"])
                );
            }
            _ => assert_eq!(run["security_events"][0]["kind"], "policy_block"),
        }
    }
    let blocked = scene.runs(2, ADA, "?status=blocked").await?;
    assert_eq!(blocked.len(), 1);
    let page = scene.runs(2, ADA, "?limit=2").await?;
    assert_eq!(page.len(), 2);
    let rest = scene
        .runs(2, ADA, &format!("?before={}", text(&page[1], "id")))
        .await?;
    assert_eq!(rest.len(), 2);
    Ok(())
}

#[tokio::test]
async fn nobody_sees_the_runs_of_others_without_the_right() -> anyhow::Result<()> {
    let scene = Scene::start("").await?;
    scene.coder(ADA).await?.python("print('mine')").await?;
    scene.coder(BOB).await?.python("print('his')").await?;
    let of_ada = scene.runs(1, ADA, "").await?;
    assert_eq!(of_ada.len(), 1);
    let id = text(&of_ada[0], "id");
    assert_eq!(scene.runs(1, BOB, "").await?.len(), 1);
    for path in [
        format!("code/runs/{id}"),
        "code/runs/01ARZ3NDEKTSV4RRFFQ69G5FAV".to_owned(),
        "code/runs/x".to_owned(),
    ] {
        let refused = scene.refused(Method::GET, &path, BOB, None).await?;
        assert_eq!(refused, (404, "run_not_found".to_owned()), "{path}");
    }
    let refused = scene
        .refused(Method::POST, &format!("code/runs/{id}/replay"), BOB, None)
        .await?;
    assert_eq!(refused, (404, "run_not_found".to_owned()));
    let others = format!("code/runs?user={}", ADA.user);
    let refused = scene.refused(Method::GET, &others, BOB, None).await?;
    assert_eq!(refused, (403, "forbidden".to_owned()));
    for who in [AUDITOR, ADMIN] {
        assert_eq!(scene.runs(2, who, "").await?.len(), 2);
        assert_eq!(
            scene
                .runs(2, who, &format!("?user={}", ADA.user))
                .await?
                .len(),
            1
        );
        assert_eq!(
            scene.get(0, &format!("code/runs/{id}"), who).await?["output"],
            "mine\n"
        );
    }
    let sessions = scene.get(1, "code/sessions", ADA).await?;
    assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(1));
    assert_eq!(sessions["sessions"][0]["user_email"], ADA.user);
    assert_eq!(sessions["sessions"][0]["language"], "python");
    let sessions = scene.get(1, "code/sessions", AUDITOR).await?;
    assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(2));
    Ok(())
}

#[tokio::test]
async fn requests_that_are_not_right_are_refused_by_name() -> anyhow::Result<()> {
    let scene = Scene::start("").await?;
    for (path, status, code) in [
        ("code/runs?limit=0", 400, "invalid_query"),
        ("code/runs?limit=501", 400, "invalid_query"),
        ("code/runs?status=sleeping", 400, "invalid_query"),
        ("code/runs?before=yesterday", 400, "invalid_query"),
        ("code/runs?colour=red", 400, "invalid_query"),
        ("code/security-events?kind=odd", 400, "invalid_query"),
        ("code/security-events?since=yesterday", 400, "invalid_query"),
        ("skills?status=odd", 400, "invalid_query"),
        ("skills/approvals?status=odd", 400, "invalid_query"),
    ] {
        let refused = scene.refused(Method::GET, path, ADA, None).await?;
        assert_eq!(refused, (status, code.to_owned()), "{path}");
    }
    let url = scene.fleet.gateways[0].url("/servers/none/code/runs");
    let request = http::Request::get(url).header(USER, ADA.user);
    let reply = scene
        .client
        .send(request.body(bytes::Bytes::new())?)
        .await?;
    assert_eq!(reply.status, 404);
    assert_eq!(reply.json().await?["error"]["code"], "server_not_found");
    let refused = scene
        .refused(Method::DELETE, "code/runs", ADA, None)
        .await?;
    assert_eq!(refused, (405, "method_not_allowed".to_owned()));
    Ok(())
}

#[tokio::test]
async fn old_records_go_when_there_are_too_many() -> anyhow::Result<()> {
    let scene = Scene::start_with("", "", |settings| {
        settings.env("MOORING_CODE_RUNS_KEPT_MAX", "3")
    })
    .await?;
    let mut ada = scene.coder(ADA).await?;
    for number in 0..6 {
        ada.python(&format!("print({number})")).await?;
    }
    let newest: Vec<String> = scene
        .runs(0, ADA, "?limit=3")
        .await?
        .iter()
        .map(|run| text(run, "id"))
        .collect();
    mooring_tests::wait::until_true(
        "old records to go",
        std::time::Duration::from_secs(150),
        async || Ok(scene.runs(1, ADA, "").await?.len() == 3),
    )
    .await?;
    let left: Vec<String> = scene
        .runs(2, ADA, "")
        .await?
        .iter()
        .map(|run| text(run, "id"))
        .collect();
    assert_eq!(left, newest);
    Ok(())
}

#[tokio::test]
async fn the_records_of_one_user_take_a_bounded_room_and_leave_those_of_others()
-> anyhow::Result<()> {
    let scene = Scene::start_with("", "", |settings| {
        settings
            .env("MOORING_CODE_RUNS_KEPT_MB_PER_USER", "1")
            .env("MOORING_CODE_MAX_PERSISTED_OUTPUT_CHARS", "1000000")
    })
    .await?;
    let (mut ada, mut bob) = (scene.coder(ADA).await?, scene.coder(BOB).await?);
    bob.python("print('first of all')").await?;
    for _ in 0..5 {
        ada.python("print('x' * 700_000)").await?;
    }
    let newest = scene.runs(0, ADA, "?limit=2").await?;
    mooring_tests::wait::until_true(
        "the oldest records to go",
        std::time::Duration::from_secs(90),
        async || Ok(scene.runs(1, ADA, "").await?.len() == 2),
    )
    .await?;
    let left = scene.runs(2, ADA, "").await?;
    assert_eq!(text(&left[0], "id"), text(&newest[0], "id"));
    assert_eq!(text(&left[1], "id"), text(&newest[1], "id"));
    assert_eq!(scene.runs(2, BOB, "").await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_volume_that_is_nearly_full_gets_no_bodies_of_records() -> anyhow::Result<()> {
    let nearly_full =
        |settings: Settings| settings.env("MOORING_CODE_RECORDS_MIN_FREE_MB", "16777216");
    let scene = Scene::start_with("", "", nearly_full).await?;
    let mut ada = scene.coder(ADA).await?;
    assert_eq!(ada.python("print('answered')").await?, "answered");
    let runs = scene.runs(1, ADA, "").await?;
    let path = format!("code/runs/{}", text(&runs[0], "id"));
    let whole = scene.get(2, &path, ADA).await?;
    assert_eq!(whole["status"], "completed", "{whole}");
    assert_eq!(whole["bodies_omitted"], true, "{whole}");
    assert_eq!(
        (&whole["output"], &whole["code_body"]),
        (&json!(""), &Value::Null)
    );
    let refused = scene
        .refused(
            Method::POST,
            &format!("{path}/replay"),
            ADA,
            Some(&json!({})),
        )
        .await?;
    assert_eq!(refused.1, "run_not_replayable");
    Ok(())
}
