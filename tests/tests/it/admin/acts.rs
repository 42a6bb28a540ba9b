//! What operators do, and the audit lines of it.

use http::{Method, Request};
use mooring_tests::wait;
use serde_json::{Value, json};

use super::{LISTED_ORIGIN, Scene, digests, no_preview};

/// The audit line of the request with this id.
pub(super) async fn audit_line(scene: &Scene, gateway: usize, id: &str) -> anyhow::Result<String> {
    let mark = format!("request_id={id}");
    let log = wait::until_logged(&mark, 1, || scene.log(gateway)).await?;
    let line = log.lines().find(|line| line.contains(&mark));
    Ok(line.unwrap_or_default().to_owned())
}

#[tokio::test]
async fn an_act_without_the_right_does_nothing_and_one_with_it_leaves_an_audit_line()
-> anyhow::Result<()> {
    let scene = Scene::over_redis().await?;
    let mut session = scene.session(0, "ada").await?;
    let digest = digests(&scene.get(1, "/admin/sessions").await?).remove(0);
    let path = format!("/admin/sessions/{digest}/end");
    let body = no_preview();
    let reader = scene.ask(1, Method::POST, &path, "sessions.read", Some(&body));
    let (status, refusal, _) = reader.await?;
    assert_eq!(status, 403);
    let message = refusal["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("sessions.manage"), "{refusal}");
    session.increment().await?;

    let (ended, id) = scene.act(1, &path, no_preview()).await?;
    assert_eq!(ended["progress"]["changed"], 1, "{ended}");
    let line = audit_line(&scene, 1, &id).await?;
    for part in [
        "audit",
        "operator=olga",
        "act=sessions.end",
        &format!("subject={digest}"),
        "outcome=ended",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let secret = session.id().unwrap_or_default().to_owned();
    assert!(!scene.log(1).contains(&secret) && !secret.is_empty());
    wait::until_true("the client is told", wait::STARTED_WITHIN, async || {
        let arguments = json!({"name": "increment", "arguments": {}});
        let call = session.request_body("tools/call", arguments);
        Ok(session.post(&call).await?.status == 404)
    })
    .await
}

#[tokio::test]
async fn many_sessions_end_as_previewed_and_others_go_on() -> anyhow::Result<()> {
    for scene in [Scene::over_redis().await?, Scene::embedded().await?] {
        let mut kept = scene.session(0, "bob").await?;
        for _ in 0..3 {
            scene.session(0, "ada").await?;
        }
        let filter = json!({"text": "user:ada"});
        let preview = json!({"filter": filter, "preview": true});
        let (preview, _) = scene.act(0, "/admin/sessions/end", preview).await?;
        assert_eq!(preview["preview"]["sessions"], 3, "{preview}");
        let all = scene.get(0, "/admin/sessions").await?;
        assert_eq!(digests(&all).len(), 4, "a preview ends none");
        let (ended, id) = scene
            .act(0, "/admin/sessions/end", json!({"filter": filter}))
            .await?;
        assert_eq!(ended["progress"]["changed"], 3, "{ended}");
        assert_eq!(ended["progress"]["is_left"], false, "{ended}");
        let line = audit_line(&scene, 0, &id).await?;
        assert!(
            line.contains("user:ada") && line.contains("3 ended"),
            "{line}"
        );
        kept.increment().await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_one_gateway_is_told_to_park_or_drain_every_gateway_knows() -> anyhow::Result<()> {
    let scene = Scene::over_redis().await?;
    let instance = scene.instances[0].url();
    let body = json!({"instance": instance, "note": "slow"});
    let (parked, id) = scene.act(0, "/admin/servers/orders/park", body).await?;
    assert_eq!(parked["progress"]["changed"], 1, "{parked}");
    let line = audit_line(&scene, 0, &id).await?;
    assert!(line.contains("act=servers.park"), "{line}");
    let workers = scene.get(0, "/admin/workers").await?;
    let worker = workers["workers"][1]["worker"].as_str().unwrap_or_default();
    let drain = format!("/admin/workers/{worker}/drain");
    scene.act(0, &drain, json!({"note": "kernel"})).await?;
    let limit = wait::STARTED_WITHIN;
    wait::until_true("the other gateway knows", limit, async || {
        let server = scene.get(1, "/admin/servers/orders").await?;
        let workers = scene.get(1, "/admin/workers").await?;
        Ok(server["instance_list"][0]["parked"]["note"] == "slow"
            && workers["workers"][1]["drain"]["note"] == "kernel")
    })
    .await
}

#[tokio::test]
async fn an_act_is_accepted_from_a_page_of_the_gateway_and_from_no_other() -> anyhow::Result<()> {
    let scene = Scene::embedded().await?;
    let own = scene.gateways[0].url("");
    for (origin, status) in [
        (own.trim_end_matches('/'), 200),
        ("http://localhost:1", 403),
        (LISTED_ORIGIN, 403),
    ] {
        let request = Request::builder()
            .method(Method::POST)
            .uri(scene.gateways[0].url("/admin/servers/orders/park"))
            .header("x-mooring-user", "olga")
            .header("x-mooring-roles", "servers.manage")
            .header("content-type", "application/json")
            .header("origin", origin);
        let reply = scene.client.send(request.body("{}".into())?).await?;
        assert_eq!(reply.status, status, "{origin}");
    }
    Ok(())
}

#[tokio::test]
async fn a_session_moves_to_another_instance_and_its_client_is_told() -> anyhow::Result<()> {
    let scene = Scene::over_redis().await?;
    let mut session = scene.session(0, "ada").await?;
    let digest = digests(&scene.get(1, "/admin/sessions").await?).remove(0);
    let path = format!("/admin/sessions/{digest}/move");
    let (preview, _) = scene.act(1, &path, json!({"preview": true})).await?;
    let effect = preview["preview"]["effect"].as_str().unwrap_or_default();
    assert!(effect.contains("it leaves http"), "{preview}");
    let from = scene.get(0, &format!("/admin/sessions/{digest}")).await?;
    let (moved, id) = scene.act(1, &path, json!({"server": "orders"})).await?;
    assert_eq!(moved["progress"]["changed"], 1, "{moved}");
    let line = audit_line(&scene, 1, &id).await?;
    assert!(
        line.contains("act=sessions.move") && line.contains("moved from"),
        "{line}"
    );
    let to = scene.get(0, &format!("/admin/sessions/{digest}")).await?;
    let instance = |shown: &Value| shown["bindings"][0]["instance"].clone();
    assert_ne!(instance(&from), instance(&to), "{to}");
    let result = session.call("increment", json!({})).await?;
    assert!(result.to_string().contains("state_lost"), "{result}");
    let parked = json!({"to": "http://nowhere.invalid/"});
    let asked = scene
        .ask(1, Method::POST, &path, "admin", Some(&parked))
        .await?;
    assert_eq!(
        (asked.0.as_u16(), &asked.1["error"]["code"]),
        (404, &json!("instance_not_found"))
    );
    Ok(())
}
