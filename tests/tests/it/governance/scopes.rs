//! Whose skills are whose: no name, source or file of one scope reaches another.

use http::Method;
use mooring_tests::code::{Coder, SERVER, USER};
use mooring_tests::session::{McpSession, Opening};
use serde_json::{Value, json};

use super::{ADA, ADMIN, BOB, EVE, Scene, Who};

/// The files that somebody has at `/skills`. Teams come with every request.
async fn mounted(scene: &Scene, who: Who) -> anyhow::Result<Vec<String>> {
    let opening = Opening::default()
        .header(USER, who.user)?
        .header("x-mooring-teams", who.teams)?;
    let endpoints: Vec<String> = scene
        .fleet
        .gateways
        .iter()
        .map(|g| g.mcp_url(SERVER))
        .collect();
    let mut session = McpSession::open_with(&scene.client, &endpoints, opening).await?;
    let result = session
        .call("fs_browse", json!({"path": "/skills"}))
        .await?;
    let entries = result["structuredContent"]["entries"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let names = entries.iter().filter_map(|entry| entry["name"].as_str());
    let mut names: Vec<String> = names
        .filter(|name| name.ends_with("_skill.py"))
        .map(str::to_owned)
        .collect();
    names.sort();
    Ok(names)
}

async fn listed(scene: &Scene, who: Who) -> anyhow::Result<Vec<String>> {
    let answer = scene.get(1, "skills", who).await?;
    let skills = answer["skills"].as_array().cloned().unwrap_or_default();
    let mut names: Vec<String> = skills
        .iter()
        .filter_map(|skill| skill["name"].as_str().map(str::to_owned))
        .collect();
    names.sort();
    Ok(names)
}

#[tokio::test]
async fn skills_are_seen_by_those_of_their_scope_only() -> anyhow::Result<()> {
    let scene = Scene::start("").await?;
    for (name, scope) in [
        ("all_skill", "server"),
        ("red_skill", "team:red"),
        ("own_skill", "user:ada@example.org"),
    ] {
        let body = json!({"name": name, "source_code": "x = 1\n", "scope": scope});
        scene.post(0, "skills", ADA, body).await?;
    }
    assert_eq!(
        mounted(&scene, ADA).await?,
        ["all_skill.py", "own_skill.py", "red_skill.py"]
    );
    assert_eq!(
        mounted(&scene, EVE).await?,
        ["all_skill.py", "red_skill.py"]
    );
    assert_eq!(mounted(&scene, BOB).await?, ["all_skill.py"]);
    assert_eq!(listed(&scene, BOB).await?, ["all_skill"]);
    assert_eq!(listed(&scene, EVE).await?, ["all_skill", "red_skill"]);
    assert_eq!(
        listed(&scene, ADMIN).await?,
        ["all_skill", "own_skill", "red_skill"]
    );
    // What one may not see is not there.
    for name in ["red_skill", "own_skill", "no_skill"] {
        let refused = scene
            .refused(Method::GET, &format!("skills/{name}"), BOB, None)
            .await?;
        assert_eq!(refused, (404, "skill_not_found".to_owned()), "{name}");
    }
    let all = scene.get(0, "skills?name=own_skill", ADMIN).await?;
    let id = all["skills"][0]["id"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let refused = scene
        .refused(
            Method::POST,
            &format!("skills/{id}/revoke"),
            EVE,
            Some(&json!({})),
        )
        .await?;
    assert_eq!(refused, (404, "skill_not_found".to_owned()));
    // Nor may one make a skill for those whom one is not among.
    for scope in ["team:blue", "user:bob@example.org"] {
        let body: Value = json!({"name": "x", "source_code": "x = 1\n", "scope": scope});
        let refused = scene
            .refused(Method::POST, "skills", ADA, Some(&body))
            .await?;
        assert_eq!(refused, (403, "forbidden".to_owned()), "{scope}");
    }
    Ok(())
}

#[tokio::test]
async fn a_server_may_have_the_skills_of_a_team() -> anyhow::Result<()> {
    let scene = Scene::start("skills_scope = \"team:red\"").await?;
    let made = scene.create(ADA, "red_skill", "x = 1\n").await?;
    assert_eq!(made["scope"], "team:red");
    assert_eq!(mounted(&scene, EVE).await?, ["red_skill.py"]);
    assert_eq!(mounted(&scene, BOB).await?, [""; 0]);
    let body = json!({"name": "x", "source_code": "x = 1\n", "scope": "server"});
    let refused = scene
        .refused(Method::POST, "skills", ADA, Some(&body))
        .await?;
    assert_eq!(refused, (403, "forbidden".to_owned()));
    // A client that names no team is in none.
    let gateway = &scene.fleet.gateways[0];
    let mut without = Coder::open(&[gateway], ADA.user).await?;
    assert!(
        !without
            .names("/skills")
            .await?
            .contains(&"red_skill.py".to_owned())
    );
    Ok(())
}
