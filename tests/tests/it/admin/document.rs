//! The OpenAPI document against real answers of the admin API.

use http::Method;
use serde_json::json;

use super::{Scene, digests, no_preview};
use crate::openapi::Document;

#[tokio::test]
async fn answers_of_the_admin_api_have_the_form_that_the_document_says() -> anyhow::Result<()> {
    let scene = Scene::over_redis().await?;
    for user in ["ada", "bob"] {
        scene.session(0, user).await?;
    }
    let document = Document::of(scene.get(0, "/openapi.json").await?);
    let list = scene.get(0, "/admin/sessions?limit=1").await?;
    document.check("get", "/admin/sessions", "200", &list)?;
    let digest = digests(&list).remove(0);
    for (path, asked) in [
        (
            "/admin/sessions/{session}",
            format!("/admin/sessions/{digest}"),
        ),
        ("/admin/workers", "/admin/workers".to_owned()),
        ("/admin/servers", "/admin/servers".to_owned()),
        (
            "/admin/servers/{server}",
            "/admin/servers/orders".to_owned(),
        ),
        ("/admin/fleet", "/admin/fleet".to_owned()),
        ("/admin/top", "/admin/top".to_owned()),
        (
            "/admin/users/{user}/rights",
            "/admin/users/ada/rights".to_owned(),
        ),
        ("/whoami", "/whoami".to_owned()),
        ("/credentials", "/credentials".to_owned()),
    ] {
        document.check("get", path, "200", &scene.get(0, &asked).await?)?;
    }
    for (path, asked, body) in [
        (
            "/admin/servers/{server}/park",
            "/admin/servers/orders/park",
            json!({"note": "x"}),
        ),
        (
            "/admin/servers/{server}/unpark",
            "/admin/servers/orders/unpark",
            no_preview(),
        ),
        (
            "/admin/sessions/end",
            "/admin/sessions/end",
            json!({"filter": {"user": "bob"}, "preview": true}),
        ),
        (
            "/admin/sessions/{session}/end",
            &format!("/admin/sessions/{digest}/end"),
            no_preview(),
        ),
    ] {
        document.check("post", path, "200", &scene.act(0, asked, body).await?.0)?;
    }
    let (_, refusal, _) = scene.ask(0, Method::GET, "/admin/fleet", "", None).await?;
    document.check("get", "/admin/fleet", "default", &refusal)?;
    Ok(())
}
