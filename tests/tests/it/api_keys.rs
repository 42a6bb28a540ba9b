//! API keys: made and revoked by `mooring keys` while gateways run, and whose sessions they reach.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::paths;
use mooring_tests::redis::Redis;
use mooring_tests::session::{McpSession, Opening};
use mooring_tests::wait;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The file is looked at every two seconds.
const SEEN_WITHIN: Duration = Duration::from_secs(20);

/// Standard output of `mooring keys` with these arguments.
fn keys(file: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(paths::binary("mooring")?);
    command.arg("keys").args(arguments).arg("--file").arg(file);
    let output = command.env_clear().output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {error}");
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

/// Two gateways with one file of keys.
struct Arrangement {
    gateways: Vec<Gateway>,
    endpoints: Vec<String>,
    client: HttpClient,
    _redis: Redis,
    _fixture: Fixture,
}

impl Arrangement {
    async fn start(file: &Path) -> anyhow::Result<Self> {
        let (redis, fixture) = (Redis::start().await?, Fixture::start("one").await?);
        let settings = Settings::toml(format!(
            "[store]\nurl = {:?}\n[auth]\nmode = \"api-key\"\napi_keys_file = {:?}\n\
             grants = [{{ teams = [\"dev\"], rights = [\"servers.use\"] }}]\n\
             [[servers]]\nid = \"tools\"\ninstances = [{:?}]\n",
            redis.url(),
            file.display().to_string(),
            fixture.url(),
        ));
        let gateways = Gateway::fleet(2, &settings).await?;
        let endpoints = gateways.iter().map(|gateway| gateway.mcp_url("tools"));
        Ok(Self {
            endpoints: endpoints.collect(),
            gateways,
            client: HttpClient::default(),
            _redis: redis,
            _fixture: fixture,
        })
    }

    async fn open(&self, header: &str, value: &str) -> anyhow::Result<McpSession> {
        let opening = Opening::default().header(header, value)?;
        McpSession::open_with(&self.client, &self.endpoints, opening).await
    }

    /// Waits until both gateways answer a ping of this session with this status.
    async fn answers(&self, session: &mut McpSession, status: u16) -> anyhow::Result<()> {
        wait::until_true(&format!("the status {status}"), SEEN_WITHIN, async || {
            let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
            let mut statuses = Vec::new();
            for _ in &self.endpoints {
                statuses.push(session.post(&ping).await?.status);
            }
            Ok(statuses.iter().all(|found| *found == status))
        })
        .await
    }
}

#[tokio::test]
async fn keys_are_made_and_revoked_while_gateways_run() -> anyhow::Result<()> {
    let home = TempDir::new()?;
    let file = home.path().join("keys.json");
    let ada = keys(
        &file,
        &[
            "create", "--user", "ada", "--team", "dev", "--note", "laptop",
        ],
    )?;
    let mut set = Arrangement::start(&file).await?;
    let mut session = set.open("x-api-key", &ada).await?;
    assert_eq!(
        (session.increment().await?, session.increment().await?),
        (1, 2)
    );

    // Another key of the same user, in the other header, keeps the session; those of others do not reach it.
    let second = keys(&file, &["create", "--user", "ada", "--team", "dev"])?;
    let bob = keys(&file, &["create", "--user", "bob", "--team", "dev"])?;
    let guest = keys(&file, &["create", "--user", "eve", "--days", "1"])?;
    let id = session.id().context("a session id")?.to_owned();
    let as_holder = |header: &'static str, value: String| {
        let mut session = session.fork(&set.client, &set.endpoints);
        session.remove_header("x-api-key");
        session.set_header(header, &value)?;
        anyhow::Ok(session)
    };
    let mut renewed = as_holder("authorization", format!("Bearer {second}"))?;
    set.answers(&mut renewed, 200).await?;
    assert_eq!(renewed.increment().await?, 3);
    let mut foreign = as_holder("x-api-key", bob.clone())?;
    set.answers(&mut foreign, 404).await?;
    let mut without_rights = as_holder("x-api-key", guest.clone())?;
    set.answers(&mut without_rights, 404).await?;

    let listed: Value = serde_json::from_str(&keys(&file, &["list", "--json"])?)?;
    let listed = listed["keys"].as_array().context("keys")?;
    let users: Vec<&Value> = listed.iter().map(|key| &key["user"]).collect();
    assert_eq!(users, ["ada", "ada", "bob", "eve"]);
    keys(
        &file,
        &["revoke", listed[0]["id"].as_str().context("an id")?],
    )?;
    set.answers(&mut session, 401).await?;
    assert_eq!(
        renewed.increment().await?,
        4,
        "the other key is not concerned"
    );
    let table = keys(&file, &["list"])?;
    assert!(
        table.contains("revoked") && table.contains("valid for 90 days"),
        "{table}"
    );

    // A refused caller learns how to send a key, and no more.
    let reply = session
        .post(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
        .await?;
    let challenge = reply.header("www-authenticate").context("a challenge")?;
    assert_eq!(
        challenge,
        r#"Bearer error="invalid_token", error_description="the API key was revoked""#
    );

    let mut shown = table;
    for gateway in &mut set.gateways {
        shown += &gateway.metrics().await?;
        shown += &gateway.process().log_text();
        let ready = set
            .client
            .get(&gateway.url("/readyz"))
            .await?
            .json()
            .await?;
        assert_eq!(ready["parts"]["api_keys"]["keys"], 4, "{ready}");
    }
    for key in [&ada, &second, &bob, &guest] {
        // The secret itself may have `_`, and even the prefix.
        let (_, secret) = key
            .strip_prefix("mk_")
            .and_then(|key| key.split_once('_'))
            .context("a prefix and an id")?;
        assert!(!shown.contains(secret));
    }
    assert!(!shown.contains(&id), "the session id is a secret, too");
    Ok(())
}
