//! What must not pass: the client's credentials and session id upstream, the upstream's session id downstream, and
//! none of them into the log.

use http::HeaderValue;
use mooring_tests::gateway::Settings;

use crate::rig::{increment, post_of};
use crate::scene::ScriptedScene;
use crate::scripted::{Scripted, UPSTREAM_SESSION_PREFIX};

#[tokio::test]
async fn nothing_of_the_client_goes_upstream_that_is_not_meant_for_it() -> anyhow::Result<()> {
    let upstream = Scripted::start().await?;
    let toml = format!(
        "[affinity]\nenabled = true\n[[servers]]\nid = \"tools\"\ninstances = [{:?}]\n[servers.headers]\nauthorization = \"Bearer of-the-server\"\nx-tenant = \"env:TENANT\"\n",
        upstream.url()
    );
    let settings = Settings::toml(toml).env("TENANT", "from-the-environment");
    let mut scene = ScriptedScene::start_with(upstream, settings).await?;
    let session_id = scene.session.id().expect("a session id").to_owned();
    let secret = "client-secret";
    let mut request = post_of(&mut scene.session, increment("1"))?;
    for name in [
        "authorization",
        "cookie",
        "proxy-authorization",
        "x-api-key",
        "x-mooring-user",
        "x-forwarded-for",
        "forwarded",
        "last-event-id2",
    ] {
        request
            .headers_mut()
            .insert(name, HeaderValue::from_static(secret));
    }
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for (name, value) in [
        ("traceparent", trace),
        ("tracestate", "a=b"),
        ("x-request-id", "request-1"),
        ("mcp-param-region", "eu"),
        ("accept-language", "de"),
    ] {
        request
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    let answered = async {
        let exchange = scene.upstream.next().await?;
        let seen = exchange.request.clone();
        exchange.result(&serde_json::json!({})).await?;
        Ok(seen)
    };
    let (reply, seen) = tokio::try_join!(scene.client.send(request), answered)?;
    assert_eq!(reply.status, 200);
    for (name, value) in [
        ("authorization", "Bearer of-the-server"),
        ("x-tenant", "from-the-environment"),
        ("traceparent", trace),
        ("tracestate", "a=b"),
        ("x-request-id", "request-1"),
        ("mcp-param-region", "eu"),
        ("accept-language", "de"),
        ("mcp-protocol-version", "2025-11-25"),
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(seen.header(name), Some(value), "{name}");
    }
    let digest = seen.header("x-mcp-session-id").expect("a digest");
    assert!(
        digest.len() == 16 && !session_id.contains(digest),
        "{digest}"
    );
    assert!(
        seen.header("mcp-session-id")
            .is_some_and(|id| id.starts_with(UPSTREAM_SESSION_PREFIX))
    );

    let mut down = format!("{:?}", reply.headers) + &reply.text().await?;
    let deleted = scene.session.delete().await?;
    down += &(format!("{:?}", deleted.headers) + &deleted.text().await?);
    assert!(!down.contains(UPSTREAM_SESSION_PREFIX), "{down}");
    let all = scene.upstream.seen();
    assert_eq!(
        scene.upstream.seen_methods(),
        [
            "initialize",
            "notifications/initialized",
            "tools/call",
            "DELETE"
        ]
    );
    for seen in &all {
        assert_eq!(
            seen.header("authorization"),
            Some("Bearer of-the-server"),
            "{seen:?}"
        );
        let text = format!("{seen:?}");
        assert!(
            !text.contains(secret) && !text.contains(&session_id),
            "{text}"
        );
    }
    let log = scene.gateway.process().log_text();
    for hidden in [
        session_id.as_str(),
        UPSTREAM_SESSION_PREFIX,
        secret,
        "of-the-server",
    ] {
        assert!(!log.contains(hidden), "the log holds {hidden}");
    }
    Ok(())
}
