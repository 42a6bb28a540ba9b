//! docs/authentication.md: each mode with its settings, and the commands for keys.

use std::time::Duration;

use anyhow::{Context, ensure};
use mooring_tests::certificates::Authority;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::identity_provider::{AUDIENCE, IdentityProvider};
use mooring_tests::pages::Page;
use mooring_tests::paths;
use mooring_tests::printed::{commands, form_of};
use mooring_tests::reader::Reader;
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::{Value, json};

use super::{NOT_RUN, session_at};

/// The file is looked at every two seconds.
const SEEN_WITHIN: Duration = Duration::from_secs(30);

#[tokio::test]
async fn the_examples_of_authentication_work() -> anyhow::Result<()> {
    let mut page = Page::read("docs/authentication.md")?;
    let fixture = Fixture::start("one").await?;
    page.fill("https://tracker.example/mcp", fixture.url())?;
    access_tokens(&mut page).await?;
    api_keys(&mut page).await?;
    client_certificates(&mut page).await?;
    page.finish(&NOT_RUN)
}

async fn access_tokens(page: &mut Page) -> anyhow::Result<()> {
    let provider = IdentityProvider::start().await?;
    page.fill("https://login.example/realms/staff", provider.issuer())?;
    page.fill("https://gateway.example/servers/tracker/mcp", AUDIENCE)?;
    page.fill("teams = [\"staff\"]", "teams = [\"dev\"]")?;
    let settings = Settings::toml(page.take("toml", "mode = \"jwt\"")?);
    let gateway = Gateway::start("tokens", settings).await?;
    let token = provider
        .token("ada", "http://127.0.0.1:1/mcp", "read")
        .await?;
    let bearer = format!("Bearer {token}");
    let mut session =
        session_at(&gateway.mcp_url("tracker"), &[("authorization", &bearer)]).await?;
    assert_eq!(session.increment().await?, 1);
    let metadata = page.inline("/.well-known/oauth-protected-resource")? + "/servers/tracker/mcp";
    let metadata = HttpClient::default()
        .get(&gateway.url(&metadata))
        .await?
        .json()
        .await?;
    assert_eq!(
        metadata["resource"],
        "https://gateway.example/servers/tracker/mcp"
    );
    assert_eq!(
        metadata["authorization_servers"],
        json!([provider.issuer()])
    );
    Ok(())
}

async fn api_keys(page: &mut Page) -> anyhow::Result<()> {
    let mut reader = Reader::new()?;
    reader.install("claude", &paths::tool("claude")?)?;
    reader.set("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    reader.set("HTTPS_PROXY", "http://127.0.0.1:9");
    page.fill("/etc/mooring/keys.json", reader.path_text("keys.json"))?;
    let toml = page.take("toml", "mode = \"api-key\"")?;
    reader.write(".config/mooring/mooring.toml", &toml)?;
    let block = page.take("sh", "mooring keys create")?;
    let [create, list, revoke] = &commands(&block)[..] else {
        anyhow::bail!("{block}")
    };
    let key = reader.run(create).await?.trim().to_owned();
    ensure!(key.starts_with("mk_"), "{key}");
    let listed = reader.run(list).await?;
    ensure!(
        listed.contains("ada") && listed.contains("build server"),
        "{listed}"
    );

    let gateway = Gateway::start("keys", Settings::toml(toml)).await?;
    page.fill(
        "https://gateway.example/servers/tracker/mcp",
        gateway.mcp_url("tracker"),
    )?;
    reader.set("KEY", &*key);
    reader.run(&page.take("sh", "claude mcp add")?).await?;
    let configured = std::fs::read_to_string(reader.path(".claude.json"))?;
    let configured: Value = serde_json::from_str(&configured)?;
    let projects = configured["projects"].as_object().into_iter().flatten();
    let mut servers = projects.map(|(_, project)| &project["mcpServers"]["tracker"]);
    let server = servers
        .find(|server| server.is_object())
        .context("a server of Claude Code")?;
    let (url, header) = (&server["url"], &server["headers"]["X-API-Key"]);
    let (url, header) = (
        url.as_str().context("a URL")?,
        header.as_str().context("a key")?,
    );
    let mut session = session_at(url, &[("x-api-key", header)]).await?;
    session.increment().await?;
    let bearer = format!("Bearer {key}");
    session_at(url, &[("authorization", &bearer)]).await?;

    let id = key.split('_').nth(1).context("the id of the key")?;
    let printed = revoke.rsplit(' ').next().context("an id")?;
    assert_eq!(form_of(printed), form_of(id), "{key}");
    reader.run(&revoke.replace(printed, id)).await?;
    wait::until_true("the key to be refused", SEEN_WITHIN, async || {
        Ok(session_at(url, &[("x-api-key", header)]).await.is_err())
    })
    .await
}

async fn client_certificates(page: &mut Page) -> anyhow::Result<()> {
    let (reader, servers, clients) = (Reader::new()?, Authority::new()?, Authority::new()?);
    let own = servers.certify("gateway", "DNS:localhost,IP:127.0.0.1")?;
    let of_client = clients.certify_client(
        "build",
        "/O=dev/CN=build",
        "URI:spiffe://example/build",
        Duration::from_secs(86_400),
    )?;
    clients.write_revocations(&reader.path("revoked.pem"))?;
    page.fill(
        "/etc/mooring/gateway.pem",
        own.certificate.display().to_string(),
    )?;
    page.fill("/etc/mooring/gateway.key", own.key.display().to_string())?;
    page.fill(
        "/etc/mooring/clients.pem",
        clients.root().display().to_string(),
    )?;
    page.fill("/etc/mooring/revoked.pem", reader.path_text("revoked.pem"))?;
    let client = HttpClient::over_tls(&servers.root(), Some(&of_client))?;
    let settings = Settings::toml(page.take("toml", "mode = \"mtls\"")?).asked_over_tls(&client);
    let gateway = Gateway::start("certificates", settings).await?;
    let mut session = McpSession::open(&client, &[gateway.mcp_url("tracker")]).await?;
    session.increment().await?;
    let stranger = HttpClient::over_tls(&servers.root(), None)?;
    ensure!(stranger.get(&gateway.url("/healthz")).await.is_err());
    Ok(())
}
