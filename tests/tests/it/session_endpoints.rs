//! A session belongs to the server at whose path it was opened: at another one its id is unknown.

use anyhow::ensure;
use http::{Method, StatusCode};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::McpSession;
use serde_json::json;

use crate::rig::refusal;

/// The session is unknown, as one that has ended.
const SESSION_NOT_FOUND: i64 = -32001;

#[tokio::test]
async fn a_session_id_is_unknown_at_the_path_of_another_server() -> anyhow::Result<()> {
    let (one, other) = (Fixture::start("one").await?, Fixture::start("other").await?);
    let toml = format!(
        "[default]\nserver = \"one\"\n\
         [[servers]]\nid = \"one\"\ninstances = [{:?}]\naffinity = \"on\"\n\
         [[servers]]\nid = \"other\"\ninstances = [{:?}]\naffinity = \"on\"\n\
         [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"one\", \"other\"]\n",
        one.url(),
        other.url()
    );
    let gateway = Gateway::start("endpoints", Settings::toml(toml)).await?;
    let client = HttpClient::default();
    let paths = ["one", "other", "all"].map(|server| gateway.mcp_url(server));
    for own in &paths {
        let mut session = McpSession::open(&client, std::slice::from_ref(own)).await?;
        for foreign in paths.iter().filter(|path| *path != own) {
            let mut stray = session.fork(&client, std::slice::from_ref(foreign));
            let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
            let refused = refusal(stray.post(&ping).await?).await?;
            assert_eq!(
                refused,
                (StatusCode::NOT_FOUND, SESSION_NOT_FOUND),
                "{foreign}"
            );
            for reply in [stray.listen(None).await?, stray.delete().await?] {
                assert_eq!(reply.status, StatusCode::NOT_FOUND, "{foreign}");
            }
        }
        // It was neither ended nor bound anywhere else.
        session.request("ping", json!({})).await?;
    }
    assert_eq!(
        other.stats().await?.initializes,
        2,
        "its own, and the group's"
    );
    // The path without a server is that of the default one.
    let mut session = McpSession::open(&client, &[gateway.url("/mcp")]).await?;
    let mut same = session.fork(&client, &paths[..1]);
    ensure!(session.increment().await? == 1 && same.increment().await? == 2);
    let request = session.http_request(Method::DELETE, bytes::Bytes::new())?;
    assert_eq!(client.send(request).await?.status, StatusCode::NO_CONTENT);
    Ok(())
}
