//! The OpenAPI document against real answers about runs, skills and events.

use http::Method;
use mooring_tests::code::SERVER;
use serde_json::json;

use super::{ADA, ADMIN, EVE, Scene, text};
use crate::openapi::Document;

#[tokio::test]
async fn answers_about_code_have_the_form_that_the_document_says() -> anyhow::Result<()> {
    let scene = Scene::start("skills_require_approval = true").await?;
    let openapi = scene.fleet.gateways[0].url("/openapi.json");
    let document = Document::of(scene.client.get(&openapi).await?.json().await?);
    let mut coder = scene.coder(ADA).await?;
    for code in ["import os\nos.system('x')", "print(1)"] {
        let arguments = json!({"code": code, "language": "python"});
        coder.call("shell_exec", arguments).await?;
    }
    let source = "def one():\n    return 1\n";
    let skill = scene.create(ADA, "one", source).await?;
    document.check("post", "/servers/{id}/skills", "201", &skill)?;
    let runs = scene.get(0, "code/runs", ADMIN).await?;
    let run = text(&runs["runs"][0], "id");
    document.check("get", "/servers/{id}/code/runs", "200", &runs)?;
    for (path, asked) in [
        ("/servers/{id}/code/runs/{run}", format!("code/runs/{run}")),
        ("/servers/{id}/code/sessions", "code/sessions".to_owned()),
        (
            "/servers/{id}/code/security-events",
            "code/security-events".to_owned(),
        ),
        ("/servers/{id}/skills", "skills".to_owned()),
        ("/servers/{id}/skills/{skill}", "skills/one".to_owned()),
        (
            "/servers/{id}/skills/approvals",
            "skills/approvals".to_owned(),
        ),
    ] {
        let answer = scene.get(0, &asked, ADMIN).await?;
        document.check("get", path, "200", &answer)?;
    }
    let approval = format!("skills/approvals/{}/approve", text(&skill, "approval_id"));
    let approved = scene.post(0, &approval, EVE, json!({})).await?;
    document.check(
        "post",
        "/servers/{id}/skills/approvals/{approval}/approve",
        "200",
        &approved,
    )?;
    let replay = format!("code/runs/{run}/replay");
    let replayed = scene
        .post(0, &replay, ADA, json!({"mode": "recorded"}))
        .await?;
    document.check(
        "post",
        "/servers/{id}/code/runs/{run}/replay",
        "200",
        &replayed,
    )?;
    let revoke = format!("skills/{}/revoke", text(&skill, "id"));
    let revoked = scene.post(0, &revoke, EVE, json!({})).await?;
    document.check(
        "post",
        "/servers/{id}/skills/{skill}/revoke",
        "200",
        &revoked,
    )?;
    let refused = scene
        .ask(0, Method::GET, "code/runs/none", ADA, None)
        .await?;
    document.check(
        "get",
        "/servers/{id}/code/runs/{run}",
        "default",
        &refused.1,
    )?;
    assert_eq!(SERVER, text(&runs["runs"][0], "server_id"));
    Ok(())
}
