//! What operators and their load balancers ask: answered under whatever name they come by, and without secrets.

use bytes::Bytes;
use http::{Request, StatusCode};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::Gateway;
use mooring_tests::session::McpSession;

use crate::rig::kept;

#[tokio::test]
async fn probes_are_answered_by_address_and_tell_no_secret() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let gateway = Gateway::start("probed", kept(&[fixture.url()])).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    session.increment().await?;
    let id = session.id().expect("a session id").to_owned();
    for (path, expected) in [
        ("/healthz", "\"ok\""),
        ("/readyz", "\"store\""),
        ("/metrics", "session_affinity_bindings_active 1"),
    ] {
        let request = Request::get(gateway.url(path))
            .header("host", "10.1.2.3:4444")
            .body(Bytes::new())?;
        let reply = client.send(request).await?;
        assert_eq!(reply.status, StatusCode::OK, "{path}");
        let text = reply.text().await?;
        assert!(text.contains(expected), "{path}: {text}");
        assert!(!text.contains(&id), "{path} tells a session id");
    }
    let request = Request::get(gateway.url("/elsewhere"))
        .header("host", "10.1.2.3:4444")
        .body(Bytes::new())?;
    let reply = client.send(request).await?;
    assert_eq!(reply.status, StatusCode::MISDIRECTED_REQUEST);
    Ok(())
}
