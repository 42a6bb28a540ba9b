//! docs/serving.md and docs/credentials.md: their settings files with servers, certificates and credentials that there are.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use mooring_tests::certificates::Authority;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::identity_provider::{AUDIENCE, IdentityProvider};
use mooring_tests::pages::Page;
use mooring_tests::port::free_port;
use mooring_tests::reader::Reader;
use mooring_tests::redis::Redis;
use mooring_tests::servers::Server;
use mooring_tests::session::{McpSession, Opening};
use serde_json::{Value, json};

use super::{NOT_RUN, instances, session_at, start_python};

/// What the upstream server's tokens are for.
const RESOURCE: &str = "https://tools.example/";
/// The resource of the callers' tokens, which is the gateway.
const GATEWAY: &str = "http://127.0.0.1:1/mcp";

#[tokio::test]
async fn the_examples_of_serving_work() -> anyhow::Result<()> {
    let mut page = Page::read("docs/serving.md")?;
    sessions_in_redis(&mut page).await?;
    encrypted(&mut page).await?;
    page.finish(&NOT_RUN)
}

#[tokio::test]
async fn the_examples_of_credentials_work() -> anyhow::Result<()> {
    let mut page = Page::read("docs/credentials.md")?;
    let issuer = Issuer::start(&mut page).await?;
    client_credentials(&mut page, &issuer).await?;
    token_exchange(&mut page, &issuer).await?;
    vault(&mut page, &issuer).await?;
    forwarded_identity(&mut page).await?;
    page.finish(&NOT_RUN)
}

async fn sessions_in_redis(page: &mut Page) -> anyhow::Result<()> {
    let (redis, _fixtures) = (Redis::start().await?, instances(page).await?);
    page.fill("redis://127.0.0.1:6379", redis.url())?;
    let settings = Settings::toml(page.take("toml", "address = \"127.0.0.1:4444\"")?);
    let gateways = Gateway::fleet(2, &settings).await?;
    // The only server is the default one.
    let endpoints = [gateways[0].url("/mcp"), gateways[1].mcp_url("tools")];
    let mut session = McpSession::open(&HttpClient::default(), &endpoints).await?;
    for count in 1..=4 {
        assert_eq!(session.increment().await?, count);
    }
    ensure!(redis.cli(&["SESSION.STATS"])?.contains("sessions_active"));
    let served = [
        "/healthz",
        "/readyz",
        "/metrics",
        "/top",
        "/whoami",
        "/.well-known/jwks.json",
    ];
    for path in served {
        let reply = HttpClient::default()
            .get(&gateways[0].url(&page.inline(path)?))
            .await?;
        ensure!(reply.status == 200, "{path}: {}", reply.status);
    }
    Ok(())
}

async fn encrypted(page: &mut Page) -> anyhow::Result<()> {
    let (reader, authority) = (Reader::new()?, Authority::new()?);
    let fixture = Fixture::start("tracker").await?;
    let own = authority.certify("gateway", "DNS:localhost,IP:127.0.0.1")?;
    page.fill(
        "/etc/mooring/gateway.pem",
        own.certificate.display().to_string(),
    )?;
    page.fill("/etc/mooring/gateway.key", own.key.display().to_string())?;
    page.fill("\"gateway.example\"", "\"127.0.0.1\"")?;
    page.fill("/etc/mooring/keys.json", reader.path_text("keys.json"))?;
    page.fill("https://tracker.example/mcp", fixture.url())?;
    let key = reader
        .run("mooring keys create --file keys.json --user ada --team dev")
        .await?;
    let client = HttpClient::over_tls(&authority.root(), None)?;
    let settings = Settings::toml(page.take("toml", "mode = \"api-key\"")?);
    let gateway = Gateway::start("encrypted", settings.asked_over_tls(&client)).await?;
    let opening = Opening::default().header("x-api-key", key.trim())?;
    let mut session =
        McpSession::open_with(&client, &[gateway.mcp_url("tracker")], opening).await?;
    assert_eq!(session.increment().await?, 1);
    Ok(())
}

/// An authorization server, and an upstream server that admits its tokens only.
struct Issuer {
    provider: IdentityProvider,
    reader: Reader,
    instance: Server,
}

impl Issuer {
    async fn start(page: &mut Page) -> anyhow::Result<Self> {
        let (provider, reader) = (IdentityProvider::start().await?, Reader::new()?);
        let issuer = provider.issuer();
        let keys = reader.write("keys", &format!("{issuer}/jwks"))?;
        let journal = reader.write("journal", "")?;
        let arguments = [
            "--issuer",
            &issuer,
            "--algorithm",
            "RS256",
            "--audience",
            RESOURCE,
        ];
        let instance = Server::verifying_tokens_of(&keys, &journal, &arguments).await?;
        let secret: PathBuf = reader.write("secret", "secret\n")?;
        page.fill(
            "https://login.example/oauth/token",
            format!("{issuer}/token"),
        )?;
        page.fill("https://login.example/realms/staff", &*issuer)?;
        page.fill("https://login.example", &*issuer)?;
        page.fill("client_id = \"mooring\"", "client_id = \"gateway\"")?;
        page.fill("/run/secrets/mooring", secret.display().to_string())?;
        page.fill("\"tools.call\"", "\"read\"")?;
        page.fill(
            "resource = \"https://tools.example/mcp\"",
            format!("resource = {RESOURCE:?}"),
        )?;
        page.fill("https://tools.example/mcp", instance.url())?;
        page.fill("https://tracker.example/mcp", instance.url())?;
        Ok(Self {
            provider,
            reader,
            instance,
        })
    }
}

/// Whom the upstream server takes the request for.
async fn subject(session: &mut McpSession) -> anyhow::Result<String> {
    let result = session.call("whoami", json!({})).await?;
    let subject = result["structuredContent"]["sub"].as_str();
    Ok(subject.with_context(|| result.to_string())?.to_owned())
}

async fn client_credentials(page: &mut Page, issuer: &Issuer) -> anyhow::Result<()> {
    ensure!(issuer.instance.url().starts_with("http://127.0.0.1:"));
    let block = page.take("toml", "[servers.oauth]\ntoken_url")?;
    let gateway = Gateway::start("credentials", Settings::toml(block)).await?;
    let mut session = session_at(&gateway.mcp_url("tools"), &[]).await?;
    assert_eq!(subject(&mut session).await?, "gateway");
    Ok(())
}

async fn token_exchange(page: &mut Page, issuer: &Issuer) -> anyhow::Result<()> {
    page.fill("https://gateway.example/mcp", AUDIENCE)?;
    // Rules are left to docs/access.md.
    let block = page.take("toml", "grant = \"token-exchange\"")? + "\n[[servers.allow]]\n";
    let gateway = Gateway::start("exchange", Settings::toml(block)).await?;
    let token = issuer.provider.token("ada", GATEWAY, "read").await?;
    let bearer = format!("Bearer {token}");
    let mut session = session_at(&gateway.mcp_url("tools"), &[("authorization", &bearer)]).await?;
    assert_eq!(subject(&mut session).await?, "ada");
    Ok(())
}

async fn vault(page: &mut Page, issuer: &Issuer) -> anyhow::Result<()> {
    let Issuer {
        provider, reader, ..
    } = issuer;
    let make_key = page.inline("openssl rand")?;
    let script = format!("(umask 077; {make_key} >vault-keys)");
    reader.run(&script).await?;
    page.fill("/etc/mooring/vault-keys", reader.path_text("vault-keys"))?;
    page.fill("\"https://gateway.example\"", format!("{AUDIENCE:?}"))?;
    page.fill("teams = [\"staff\"]", "teams = [\"dev\"]")?;
    let settings = Settings::toml(page.take("toml", "[vault]")?);
    let gateway = Gateway::start("vault", settings).await?;
    let own = provider.token("ada", GATEWAY, "read").await?;
    let stored = provider.token("bob", RESOURCE, "read").await?;
    page.fill("https://gateway.example/servers", gateway.url("/servers"))?;
    page.fill("Bearer ...", format!("Bearer {own}"))?;
    page.fill("tracker_pat_...", stored)?;
    let answer = reader.run(&page.take("console", "curl -X PUT")?).await?;
    let answer: Value = serde_json::from_str(&answer).context(answer)?;
    assert_eq!(answer["server"], "tracker", "{answer}");
    let bearer = format!("Bearer {own}");
    let mut session =
        session_at(&gateway.mcp_url("tracker"), &[("authorization", &bearer)]).await?;
    assert_eq!(subject(&mut session).await?, "bob");
    Ok(())
}

/// The server in Python, with a tool that says whose the token is.
async fn forwarded_identity(page: &mut Page) -> anyhow::Result<()> {
    const BEFORE: &str = "from fastmcp import FastMCP\n\
                          from fastmcp.server.auth.providers.jwt import JWTVerifier\n\
                          from fastmcp.server.dependencies import get_access_token\n";
    let (reader, port) = (Reader::new()?, free_port()?);
    let gateway = Gateway::start(
        "forwarding",
        Settings::toml(format!(
            "[[servers]]\nid = \"tools\"\naffinity = \"on\"\ninstances = [\"http://127.0.0.1:{port}/mcp\"]\nforward_identity = true\n"
        ))
        .users_by_header(),
    )
    .await?;
    page.fill(
        "https://gateway.example/.well-known/jwks.json",
        gateway.url("/.well-known/jwks.json"),
    )?;
    let after = format!(
        "@server.tool\ndef whoami() -> dict:\n    return get_access_token().claims\n\n\
         server.run(transport=\"http\", host=\"127.0.0.1\", port={port})\n"
    );
    let program = format!("{BEFORE}\n{}\n{after}", page.take("python", "JWTVerifier")?);
    reader.write("server.py", &program)?;
    let mut server = start_python(&reader, "server.py", &[])?;
    let url = format!("http://127.0.0.1:{port}/mcp");
    let client = HttpClient::default();
    server
        .ready(async || client.get(&url).await.map(drop))
        .await?;
    let mut session = session_at(&gateway.mcp_url("tools"), &[("x-mooring-user", "ada")]).await?;
    assert_eq!(subject(&mut session).await?, "ada");
    let refused = session_at(&url, &[]).await;
    ensure!(refused.is_err(), "without a token");
    Ok(())
}
