//! Access tokens of a real identity provider: which are accepted, what a refused client is told, and what happens to
//! sessions while tokens and keys change.

use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode};
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::identity_provider::IdentityProvider;
use mooring_tests::paths;
use mooring_tests::script::run_client_for;
use mooring_tests::session::{McpSession, Opening};
use mooring_tests::wait;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::rig::{increment, initialize_params, kept, refusal, sharing};

const RESOURCE: &str = "http://127.0.0.1:1/mcp";
/// How long a gateway may take to read keys again: longer than the interval between two attempts.
const KEYS_WITHIN: Duration = Duration::from_secs(40);

struct Arrangement {
    provider: IdentityProvider,
    fixture: Fixture,
    client: HttpClient,
}

impl Arrangement {
    async fn start() -> anyhow::Result<Self> {
        Ok(Self {
            provider: IdentityProvider::start().await?,
            fixture: Fixture::start("one").await?,
            client: HttpClient::default(),
        })
    }

    fn settings(&self) -> Settings {
        kept(&[self.fixture.url()]).more_toml(&self.provider.toml())
    }

    /// A session of the owner of this token.
    async fn session(&self, gateways: &[&Gateway], token: &str) -> anyhow::Result<McpSession> {
        let endpoints: Vec<String> = gateways.iter().map(|one| one.mcp_url("tools")).collect();
        let opening = Opening::default().header("authorization", &format!("Bearer {token}"))?;
        McpSession::open_with(&self.client, &endpoints, opening).await
    }

    /// `initialize` with these Authorization headers.
    async fn initialize(&self, url: &str, authorizations: &[&str]) -> anyhow::Result<Reply> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize_params()});
        let mut request = Request::post(url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        for value in authorizations {
            request = request.header("authorization", *value);
        }
        self.client
            .send(request.body(Bytes::from(body.to_string()))?)
            .await
    }

    async fn initialize_with(&self, gateway: &Gateway, token: &str) -> anyhow::Result<Reply> {
        self.initialize(&gateway.mcp_url("tools"), &[&format!("Bearer {token}")])
            .await
    }

    /// Calls a tool in the session with another token: the status and the code of the error.
    async fn call_with(
        &self,
        session: &mut McpSession,
        token: &str,
    ) -> anyhow::Result<(StatusCode, i64)> {
        let mut request = session.http_request(Method::POST, increment("1").into())?;
        let value = HeaderValue::from_str(&format!("Bearer {token}"))?;
        request.headers_mut().insert("authorization", value);
        refusal(self.client.send(request).await?).await
    }
}

/// The parameters of a challenge.
fn challenge(reply: &Reply) -> anyhow::Result<String> {
    Ok(reply
        .header("www-authenticate")
        .context("a challenge")?
        .to_owned())
}

#[tokio::test]
async fn each_check_of_a_token_refuses() -> anyhow::Result<()> {
    let set = Arrangement::start().await?;
    let gateway = Gateway::start("tokens", set.settings()).await?;
    let valid = set.provider.token("ada", RESOURCE, "read").await?;
    ensure!(set.initialize_with(&gateway, &valid).await?.status == 200);
    ensure!(
        set.initialize_with(
            &gateway,
            &set.provider.sign(&json!({}), &json!({}), "key").await?
        )
        .await?
        .status
            == 200
    );

    let for_another = set
        .provider
        .token("ada", "https://other.example/mcp", "read")
        .await?;
    let mut refused = vec![(for_another, "another audience")];
    let key = "key";
    for (header, claims, with, description) in [
        (json!({}), json!({"exp": 1_700_000_000}), key, "has expired"),
        (json!({}), json!({"exp": null}), key, "no valid expiry time"),
        (
            json!({}),
            json!({"nbf": 4_102_444_000_u64}),
            key,
            "not valid yet",
        ),
        (
            json!({}),
            json!({"iss": "https://issuer.example"}),
            key,
            "another issuer",
        ),
        (
            json!({}),
            json!({"aud": ["https://other.example"]}),
            key,
            "another audience",
        ),
        (
            json!({}),
            json!({"cnf": {"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}}),
            key,
            "bound to a key",
        ),
        (json!({}), json!({"sub": null}), key, "no valid user"),
        (json!({"kid": "unknown"}), json!({}), key, "unknown key"),
        (
            json!({"alg": "RS512"}),
            json!({}),
            key,
            "signature is wrong",
        ),
        (
            json!({"alg": "none"}),
            json!({}),
            key,
            "algorithm is not allowed",
        ),
        (
            json!({"alg": "HS256"}),
            json!({}),
            "public",
            "algorithm is not allowed",
        ),
        (
            json!({"typ": "dpop+jwt"}),
            json!({}),
            key,
            "not an access token",
        ),
        (
            json!({}),
            json!({"pad": "x".repeat(8192)}),
            key,
            "longer than 8192 bytes",
        ),
    ] {
        refused.push((
            set.provider.sign(&header, &claims, with).await?,
            description,
        ));
    }
    let (head, signature) = valid.rsplit_once('.').context("a signature")?;
    refused.push((head.to_owned(), "not a signed JWT"));
    refused.push((format!("{head}."), "signature is wrong"));
    refused.push((
        format!("{head}.{}", signature.chars().rev().collect::<String>()),
        "",
    ));
    for (token, description) in &refused {
        let reply = set.initialize_with(&gateway, token).await?;
        let challenge = challenge(&reply)?;
        ensure!(
            challenge.contains(r#"error="invalid_token""#),
            "{challenge}"
        );
        ensure!(
            challenge.contains(description),
            "{description}: {challenge}"
        );
        let refusal = refusal(reply).await?;
        ensure!(
            refusal == (StatusCode::UNAUTHORIZED, -32005),
            "{description}: {refusal:?}"
        );
    }

    let url = gateway.mcp_url("tools");
    let bearer = format!("Bearer {valid}");
    let twice = set.initialize(&url, &[&bearer, &bearer]).await?;
    ensure!(challenge(&twice)?.contains(r#"error="invalid_request""#));
    ensure!(refusal(twice).await? == (StatusCode::BAD_REQUEST, -32005));
    let in_query = set
        .initialize(&format!("{url}?access_token={valid}"), &[&bearer])
        .await?;
    ensure!(in_query.status == 400);
    let nothing = set.initialize(&url, &[]).await?;
    ensure!(
        !challenge(&nothing)?.contains("error"),
        "{}",
        challenge(&nothing)?
    );
    ensure!(refusal(nothing).await? == (StatusCode::UNAUTHORIZED, -32005));
    let stats = set.fixture.stats().await?;
    ensure!(stats.initializes == 2, "only the two that were accepted");

    let metrics = gateway.metrics().await?;
    for reason in [
        "token_expired",
        "token_wrong_audience",
        "token_missing",
        "token_in_query",
    ] {
        let line = format!("mooring_authentication_refused_total{{reason=\"{reason}\"}} ");
        let count = metrics.lines().find_map(|found| found.strip_prefix(&line));
        ensure!(
            count.is_some_and(|count| count != "0"),
            "{reason}: {count:?}"
        );
    }
    let mut gateway = gateway;
    let log = gateway.process().log_text();
    ensure!(!log.contains(signature), "a token is in the log");
    Ok(())
}

/// Two gateways: a session belongs to its user, whichever token they send.
#[tokio::test]
async fn a_session_outlives_its_token() -> anyhow::Result<()> {
    let set = Arrangement::start().await?;
    let home = TempDir::new()?;
    let settings = set.settings();
    let (one, two) = tokio::try_join!(
        sharing("tokens-1", &settings, home.path()),
        sharing("tokens-2", &settings, home.path())
    )?;
    let first = set.provider.token("ada", RESOURCE, "read").await?;
    let mut session = set.session(&[&one, &two], &first).await?;
    ensure!(session.increment().await? == 1);
    ensure!(session.increment().await? == 2);

    // A new key, a new token, the same session, at each gateway.
    set.provider.rotate().await?;
    let renewed = set.provider.token("ada", RESOURCE, "read write").await?;
    ensure!(renewed != first);
    session.set_header("authorization", &format!("Bearer {renewed}"))?;
    for (gateway, count) in [(&one, 3), (&two, 4)] {
        wait::until_true("the new key", KEYS_WITHIN, async || {
            Ok(set.initialize_with(gateway, &renewed).await?.status == 200)
        })
        .await?;
        ensure!(session.increment().await? == count);
    }
    // The token of the key that is gone was known at both gateways.
    for _ in 0..2 {
        let refused = set.call_with(&mut session, &first).await?;
        ensure!(refused == (StatusCode::UNAUTHORIZED, -32005), "{refused:?}");
    }
    let other = set.provider.token("bob", RESOURCE, "read").await?;
    for _ in 0..2 {
        let refused = set.call_with(&mut session, &other).await?;
        ensure!(refused == (StatusCode::NOT_FOUND, -32001), "{refused:?}");
    }
    ensure!(session.increment().await? == 5);
    Ok(())
}

#[tokio::test]
async fn the_provider_may_be_away() -> anyhow::Result<()> {
    let mut set = Arrangement::start().await?;
    let mut gateway = Gateway::start("tokens", set.settings()).await?;
    let token = set.provider.token("ada", RESOURCE, "read").await?;
    let mut session = set.session(&[&gateway], &token).await?;
    let unseen = set.provider.token("ada", RESOURCE, "read").await?;
    set.provider.kill()?;
    ensure!(session.increment().await? == 1, "a known token");
    ensure!(
        set.initialize_with(&gateway, &unseen).await?.status == 200,
        "another of a known key"
    );

    // Without ever having read a key, the gateway cannot tell a good token from a bad one.
    let (url, readyz) = (gateway.mcp_url("tools"), gateway.url("/readyz"));
    let restarted = gateway.restart();
    let meanwhile =
        async {
            wait::until_true("the gateway without keys", KEYS_WITHIN, async || {
                let sent = set.initialize(&url, &[&format!("Bearer {token}")]).await;
                Ok(sent.is_ok_and(|reply| {
                    reply.status == 503 && reply.header("retry-after").is_some()
                }))
            })
            .await?;
            let ready = set.client.get(&readyz).await?;
            ensure!(ready.status == 503);
            let about = ready.json().await?;
            ensure!(
                about["parts"]["token_keys"]["status"] == "unavailable",
                "{about}"
            );
            set.provider.restart().await
        };
    tokio::try_join!(restarted, meanwhile)?;
    let token = set.provider.token("ada", RESOURCE, "read").await?;
    ensure!(set.initialize_with(&gateway, &token).await?.status == 200);
    Ok(())
}

#[tokio::test]
async fn keys_are_fetched_seldom() -> anyhow::Result<()> {
    let set = Arrangement::start().await?;
    let gateway = Gateway::start("tokens", set.settings()).await?;
    let before = set.provider.fetches().await?;
    for number in 0..20 {
        let header = json!({"kid": format!("unknown-{number}")});
        let token = set.provider.sign(&header, &json!({}), "key").await?;
        ensure!(set.initialize_with(&gateway, &token).await?.status == 401);
    }
    let fetches = set.provider.fetches().await? - before;
    ensure!(
        fetches <= 2,
        "{fetches} fetches for 20 tokens with unknown keys"
    );
    Ok(())
}

/// The SDK's client knows the URL of the server alone.
#[tokio::test]
async fn a_client_finds_the_provider() -> anyhow::Result<()> {
    let set = Arrangement::start().await?;
    let rule = "[[servers.allow]]\nscopes = [\"write\"]\nusers = [\"ada\"]\n";
    let toml = set.settings().more_toml(&format!(
        "[[servers]]\nid = \"scoped\"\nkind = \"http\"\ninstances = [{:?}]\n{rule}",
        set.fixture.url()
    ));
    let gateway = Gateway::start("tokens", toml).await?;
    let url = gateway.mcp_url("tools");
    let arguments = [
        "--url", &url, "--user", "ada", "--secret", "secret", "--tool", "whoami",
    ];
    let answer: Value = run_client_for("authorized.mjs", &arguments).await?;
    ensure!(answer["text"].is_string(), "{answer}");

    // The same by hand: challenge, metadata, token.
    for (path, resource_path) in [
        ("/servers/tools/mcp", "/servers/tools/mcp"),
        ("/servers/nowhere/mcp", "/servers/nowhere/mcp"),
        ("/servers/tools/skills", ""),
    ] {
        let reply = set.initialize(&gateway.url(path), &[]).await?;
        if path == "/servers/tools/skills" {
            ensure!(reply.status == 401, "{path}: {}", reply.status);
        }
        let challenge = challenge(&reply)?;
        let metadata = format!(
            "resource_metadata=\"{}\"",
            gateway.url(&format!(
                "/.well-known/oauth-protected-resource{resource_path}"
            ))
        );
        ensure!(challenge == format!("Bearer {metadata}"), "{challenge}");
        let (_, metadata) = metadata.split_once('"').context("a URL")?;
        let metadata = set.client.get(metadata.trim_end_matches('"')).await?;
        ensure!(metadata.status == 200);
        let metadata = metadata.json().await?;
        let base = gateway.url("");
        ensure!(
            metadata["resource"] == format!("{base}{resource_path}"),
            "{metadata}"
        );
        ensure!(
            metadata["authorization_servers"] == json!([set.provider.issuer()]),
            "{metadata}"
        );
        ensure!(
            metadata["scopes_supported"] == json!(["write"]),
            "{metadata}"
        );
    }
    let elsewhere = gateway.url("/.well-known/oauth-protected-resource/servers/tools/skills");
    ensure!(set.client.get(&elsewhere).await?.status == 404);

    let (scoped, reads) = (
        gateway.mcp_url("scoped"),
        set.provider.token("ada", RESOURCE, "read").await?,
    );
    let reply = set
        .initialize(&scoped, &[&format!("Bearer {reads}")])
        .await?;
    ensure!(reply.status == 403);
    let challenge = challenge(&reply)?;
    ensure!(
        challenge.contains(r#"error="insufficient_scope", scope="write""#),
        "{challenge}"
    );
    let writes = set.provider.token("ada", RESOURCE, "read write").await?;
    ensure!(
        set.initialize(&scoped, &[&format!("Bearer {writes}")])
            .await?
            .status
            == 200
    );
    Ok(())
}

#[tokio::test]
async fn the_operators_commands_send_a_token() -> anyhow::Result<()> {
    let set = Arrangement::start().await?;
    let gateway = Gateway::start("tokens", set.settings()).await?;
    let token = set.provider.token("ada", RESOURCE, "read").await?;
    let home = TempDir::new()?;
    let file = home.path().join("token");
    std::fs::write(&file, format!("{token}\n"))?;
    let run_at = |url: &str, more: &[&str], variable: Option<&str>| {
        let mut command = std::process::Command::new(paths::binary("mooring")?);
        command.args(["runs", "list", "--server", "tools", "--gateway", url]);
        command.args(more).env_clear().env("HOME", home.path());
        command.envs(variable.map(|token| ("MOORING_TOKEN", token)));
        let output = command.output()?;
        anyhow::Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let run = |more: &[&str], variable: Option<&str>| run_at(&gateway.url(""), more, variable);
    // Whoever is authenticated learns that this is no code server.
    let path = file.display().to_string();
    for (more, variable, code) in [
        (&[][..], None, "unauthenticated"),
        (&[], Some("x"), "unauthenticated"),
        (&[], Some(&*token), "server_not_found"),
        (&["--token-file", &path], Some("x"), "server_not_found"),
        (&[], Some(" "), "MOORING_TOKEN is empty"),
    ] {
        let said = run(more, variable)?;
        ensure!(said.contains(code), "{code}: {said}");
        ensure!(!said.contains(&token));
    }
    let said = run_at("http://192.0.2.1:4444", &[], Some(&token))?;
    ensure!(said.contains("without encryption"), "{said}");
    Ok(())
}
