//! The life of a skill across three gateways: made, approved, used, superseded, revoked.

use bytes::Bytes;
use http::{Method, Request};
use mooring_tests::code::{SERVER, USER};
use mooring_tests::wait;
use serde_json::json;

use super::{ADA, BOB, EVE, Scene, text};

const REQUIRED: &str = "skills_require_approval = true";

#[tokio::test]
async fn a_skill_is_used_when_it_is_approved_and_not_after_it_is_revoked() -> anyhow::Result<()> {
    let scene = Scene::start(REQUIRED).await?;
    let mut ada = scene.coder(ADA).await?;
    let pending = scene
        .create(ADA, "greeting", "def greet():\n    return 'one'\n")
        .await?;
    assert_eq!(pending["status"], "pending");
    let path = |decision: &str, approval: &str| format!("skills/approvals/{approval}/{decision}");
    let greet = "from skills.greeting import greet\nprint(greet())";
    for _ in 0..3 {
        assert!(
            !ada.names("/skills")
                .await?
                .contains(&"greeting.py".to_owned())
        );
        let arguments = json!({"code": greet, "language": "python"});
        let (answer, is_error) = ada.call("shell_exec", arguments).await?;
        assert!(is_error, "it is not mounted: {answer}");
    }

    scene
        .post(
            1,
            &path("approve", &text(&pending, "approval_id")),
            EVE,
            json!({}),
        )
        .await?;
    for _ in 0..3 {
        assert!(
            ada.names("/skills")
                .await?
                .contains(&"greeting.py".to_owned())
        );
        assert_eq!(ada.python(greet).await?, "one");
    }

    let newer = scene
        .create(ADA, "greeting", "def greet():\n    return 'two'\n")
        .await?;
    assert_eq!(newer["version"], 2);
    assert_eq!(ada.python(greet).await?, "one", "the newer one waits");
    scene
        .post(
            2,
            &path("approve", &text(&newer, "approval_id")),
            EVE,
            json!({}),
        )
        .await?;
    for _ in 0..3 {
        assert_eq!(ada.python(greet).await?, "two");
    }

    let revoke = |skill: &serde_json::Value| format!("skills/{}/revoke", text(skill, "id"));
    scene.post(0, &revoke(&newer), EVE, json!({})).await?;
    for _ in 0..3 {
        assert_eq!(
            ada.python(greet).await?,
            "one",
            "the one before was not revoked"
        );
    }
    scene.post(1, &revoke(&pending), EVE, json!({})).await?;
    for _ in 0..3 {
        let arguments = json!({"code": greet, "language": "python"});
        let (answer, is_error) = ada.call("shell_exec", arguments).await?;
        assert!(is_error, "it is revoked: {answer}");
        assert!(
            !ada.names("/skills")
                .await?
                .contains(&"greeting.py".to_owned())
        );
    }
    Ok(())
}

#[tokio::test]
async fn who_decides_about_a_skill_is_in_the_audit_line_with_the_id_of_the_request()
-> anyhow::Result<()> {
    let mut scene = Scene::start(REQUIRED).await?;
    let approved = scene.create(ADA, "greeting", "x = 1\n").await?;
    let rejected = scene.create(ADA, "helper", "x = 1\n").await?;
    let of = |approval: &serde_json::Value, word: &str| {
        format!("approvals/{}/{word}", text(approval, "approval_id"))
    };
    for (path, act, status, outcome) in [
        (of(&approved, "approve"), "skills.approve", 200, "done"),
        (of(&approved, "approve"), "skills.approve", 409, "refused"),
        (of(&rejected, "reject"), "skills.reject", 200, "done"),
        (
            format!("{}/revoke", text(&approved, "id")),
            "skills.revoke",
            200,
            "done",
        ),
    ] {
        let url = scene.fleet.gateways[1].url(&format!("/servers/{SERVER}/skills/{path}"));
        let request = Request::post(url)
            .header(USER, EVE.user)
            .header("x-mooring-teams", EVE.teams)
            .header("x-mooring-roles", EVE.roles)
            .header("content-type", "application/json")
            .body(Bytes::from_static(b"{}"))?;
        let reply = scene.client.send(request).await?;
        assert_eq!(reply.status, status, "{act}");
        let id = reply.header("x-request-id").unwrap_or_default();
        assert_eq!(id.len(), 32, "{act}");
        let mark = format!("request_id={id}");
        let gateway = &mut scene.fleet.gateways[1];
        let log = wait::until_logged(&mark, 1, || gateway.process().log_text()).await?;
        let line = log.lines().find(|line| line.contains(&mark));
        let line = line.unwrap_or_default();
        for part in [
            format!("operator={}", EVE.user),
            format!("act={act}"),
            format!("outcome={outcome}"),
        ] {
            assert!(line.contains(&part), "{part}: {line}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_rejected_skill_never_runs_and_says_why() -> anyhow::Result<()> {
    let scene = Scene::start(REQUIRED).await?;
    let skill = scene.create(ADA, "helper", "x = 1\n").await?;
    let approval = text(&skill, "approval_id");
    let path = format!("skills/approvals/{approval}/reject");
    let rejected = scene
        .post(1, &path, EVE, json!({"reason": "no tests"}))
        .await?;
    assert_eq!(rejected["status"], "rejected");
    let shown = scene.get(2, "skills/helper", ADA).await?;
    assert_eq!(shown["rejection_reason"], "no tests");
    assert_eq!(shown["rejected_by"], EVE.user);
    assert_eq!(shown["source_code"], "x = 1\n");
    let again = scene
        .refused(
            Method::POST,
            &format!("skills/approvals/{approval}/approve"),
            EVE,
            Some(&json!({})),
        )
        .await?;
    assert_eq!(again, (409, "skill_status".to_owned()));
    assert!(
        !scene
            .coder(ADA)
            .await?
            .names("/skills")
            .await?
            .contains(&"helper.py".to_owned())
    );
    Ok(())
}

#[tokio::test]
async fn approvals_wait_for_those_who_may_decide() -> anyhow::Result<()> {
    let scene = Scene::start(REQUIRED).await?;
    let skill = scene.create(ADA, "helper", "x = 1\n").await?;
    let approval = text(&skill, "approval_id");
    let listed = scene.get(1, "skills/approvals?status=pending", EVE).await?;
    assert_eq!(listed["approvals"][0]["id"], approval.as_str());
    assert_eq!(listed["approvals"][0]["requested_by"], ADA.user);
    let own = scene.get(1, "skills/approvals", ADA).await?;
    assert_eq!(own["approvals"].as_array().map(Vec::len), Some(1));
    let none = scene.get(1, "skills/approvals", BOB).await?;
    assert_eq!(none["approvals"], json!([]));
    for (who, decision) in [(ADA, "approve"), (ADA, "reject"), (BOB, "approve")] {
        let path = format!("skills/approvals/{approval}/{decision}");
        let refused = scene
            .refused(Method::POST, &path, who, Some(&json!({})))
            .await?;
        assert_eq!(refused, (403, "forbidden".to_owned()));
    }
    let unknown = "skills/approvals/01ARZ3NDEKTSV4RRFFQ69G5FAV/approve";
    let refused = scene
        .refused(Method::POST, unknown, EVE, Some(&json!({})))
        .await?;
    assert_eq!(refused, (404, "approval_not_found".to_owned()));
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_a_skill_is_refused_by_name() -> anyhow::Result<()> {
    let scene = Scene::start("").await?;
    let good = json!({"name": "helper", "source_code": "x = 1\n"});
    let with = |field: &str, value: serde_json::Value| {
        let mut body = good.clone();
        body[field] = value;
        body
    };
    for (body, status, code) in [
        (with("name", json!("../up")), 422, "skill_invalid"),
        (with("name", json!("class")), 422, "skill_invalid"),
        (with("source_code", json!("")), 422, "skill_invalid"),
        (
            with("source_code", json!("#".repeat(1024 * 1024 + 1))),
            422,
            "skill_invalid",
        ),
        (
            with("description", json!("x".repeat(10_001))),
            422,
            "skill_invalid",
        ),
        (with("language", json!("rust")), 422, "skill_invalid"),
        (with("scope", json!("galaxy")), 422, "skill_invalid"),
        (
            with("source_code", json!("import os\nos.system('x')")),
            422,
            "skill_blocked",
        ),
        (with("colour", json!("red")), 400, "invalid_body"),
        (json!({"name": "helper"}), 400, "invalid_body"),
    ] {
        let refused = scene
            .refused(Method::POST, "skills", ADA, Some(&body))
            .await?;
        assert_eq!(refused, (status, code.to_owned()), "{body:.200}");
    }
    let refused = scene
        .refused(Method::POST, "skills", BOB, Some(&good))
        .await?;
    assert_eq!(refused, (403, "forbidden".to_owned()));
    assert_eq!(scene.get(1, "skills", ADA).await?["skills"], json!([]));
    let events = scene.events(2, ADA, "?kind=policy_block").await?;
    assert_eq!(events.len(), 1);
    assert!(text(&events[0], "message").contains("os.system"));
    // Nobody has to approve here.
    let made = scene.create(ADA, "helper", "x = 1\n").await?;
    assert_eq!(
        (&made["status"], &made["is_active"]),
        (&json!("approved"), &json!(true))
    );
    assert_eq!(
        scene
            .coder(BOB)
            .await?
            .python("import skills.helper as h\nprint(h.x)")
            .await?,
        "1"
    );
    Ok(())
}
