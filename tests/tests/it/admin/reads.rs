//! What operators see.

use mooring_tests::session::McpSession;

use super::{Scene, digests};

/// Every id that only the client and the upstream server know.
fn secrets(sessions: &[McpSession]) -> Vec<String> {
    let ids = sessions.iter().filter_map(McpSession::id);
    ids.map(str::to_owned).collect()
}

async fn shows_sessions(scene: &Scene) -> anyhow::Result<()> {
    let last = scene.gateways.len() - 1;
    let sessions = [
        scene.session(0, "ada").await?,
        scene.session(last, "ada").await?,
        scene.session(0, "bob").await?,
    ];
    let all = scene.get(last, "/admin/sessions").await?;
    assert_eq!(digests(&all).len(), 3, "{all}");
    let of_ada = digests(&scene.get(0, "/admin/sessions?text=user:ada").await?);
    assert_eq!(of_ada.len(), 2);
    let first = scene.get(last, "/admin/sessions?user=ada&limit=1").await?;
    let cursor = first["next_cursor"].as_str().unwrap_or_default();
    let second = format!("/admin/sessions?user=ada&limit=1&cursor={cursor}");
    let second = scene.get(0, &second).await?;
    assert_eq!([digests(&first), digests(&second)].concat(), of_ada);

    let mut shown = vec![all];
    for digest in digests(&shown[0]) {
        let detail = scene
            .get(last, &format!("/admin/sessions/{digest}"))
            .await?;
        assert_eq!(detail["bindings"][0]["server"], "orders", "{detail}");
        let lines = detail["explanation"].as_array().map_or(0, Vec::len);
        assert!(lines >= 3, "{detail}");
        shown.push(detail);
    }
    for path in [
        "/admin/fleet",
        "/admin/servers/orders",
        "/admin/workers",
        "/admin/top",
    ] {
        shown.push(scene.get(0, path).await?);
    }
    for secret in secrets(&sessions) {
        let shown = shown.iter().map(ToString::to_string);
        assert!(shown.into_iter().all(|shown| !shown.contains(&secret)));
    }
    Ok(())
}

#[tokio::test]
async fn sessions_of_a_fleet_are_found_at_any_gateway_and_no_secret_is_shown() -> anyhow::Result<()>
{
    let scene = Scene::over_redis().await?;
    shows_sessions(&scene).await?;
    let workers = scene.get(1, "/admin/workers").await?;
    let workers = workers["workers"].as_array().map_or(0, Vec::len);
    assert_eq!(workers, 2);
    let fleet = scene.get(1, "/admin/fleet").await?;
    assert_eq!(fleet["sessions"]["mcp"], 3, "{fleet}");
    assert_eq!(fleet["servers"][0]["sessions"], 3, "{fleet}");
    Ok(())
}

#[tokio::test]
async fn sessions_of_an_embedded_store_are_shown_the_same() -> anyhow::Result<()> {
    shows_sessions(&Scene::embedded().await?).await
}
