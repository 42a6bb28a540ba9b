//! TLS of the listener for clients, with real handshakes: names, client certificates, and files that change.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use mooring_tests::certificates::{Authority, Certificate};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::McpSession;
use mooring_tests::wait;

use crate::rig::kept;

const OWN_NAMES: &str = "DNS:localhost,IP:127.0.0.1";
/// The gateway looks at its files every 5 s.
const RELOADED_WITHIN: Duration = Duration::from_secs(30);
/// The gateway sees the end of a handshake after the client does.
const COUNTED_WITHIN: Duration = Duration::from_secs(60);

/// What `openssl s_client` says of a handshake in which it asks for this name.
fn handshake(gateway: &Gateway, name: &str, more: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("openssl")
        .args([
            "s_client",
            "-connect",
            &format!("127.0.0.1:{}", gateway.port()),
        ])
        .args(["-servername", name])
        .args(more)
        .stdin(Stdio::null())
        .output()
        .context("run openssl")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The name of the certificate that the gateway shows to a client that asks for `name`.
fn shown_to(gateway: &Gateway, name: &str) -> anyhow::Result<String> {
    let said = handshake(gateway, name, &[])?;
    let subject = said
        .lines()
        .find_map(|line| line.strip_prefix("subject=CN"));
    let subject = subject.with_context(|| format!("a subject in: {said}"))?;
    Ok(subject.trim_start_matches([' ', '=']).to_owned())
}

async fn gateway(
    fixture: &Fixture,
    certificates: &[&Certificate],
    client: &HttpClient,
) -> anyhow::Result<Gateway> {
    let settings = kept(&[fixture.url()]).tls(certificates, client);
    Gateway::start("tls", settings).await
}

#[tokio::test]
async fn clients_speak_tls_and_nothing_else_is_heard() -> anyhow::Result<()> {
    let (authority, fixture) = (Authority::new()?, Fixture::start("one").await?);
    let certificate = authority.certify("own", OWN_NAMES)?;
    let client = HttpClient::over_tls(&authority.root(), None)?;
    let gateway = gateway(&fixture, &[&certificate], &client).await?;
    let endpoint = [gateway.mcp_url("tools")];
    let mut session = McpSession::open(&client, &endpoint).await?;
    assert_eq!(session.increment().await?, 1);
    let plain = endpoint[0].replacen("https", "http", 1);
    let refused = HttpClient::default().get(&plain).await;
    assert!(refused.is_err(), "HTTP in the clear has no answer");
    let stranger = HttpClient::default().get(&endpoint[0]).await;
    assert!(
        stranger.is_err(),
        "a client that does not know the authority goes away"
    );
    wait::until_true("both refusals to be counted", COUNTED_WITHIN, async || {
        let labels = ["reason=\"tls\""];
        let refused = gateway.metric("mooring_client_connections_refused_total", &labels);
        Ok(refused.await? >= 2.0)
    })
    .await?;
    for (offered, chosen) in [("h2,http/1.1", "h2"), ("http/1.1", "http/1.1")] {
        let said = handshake(&gateway, "localhost", &["-alpn", offered])?;
        assert!(said.contains(&format!("ALPN protocol: {chosen}")), "{said}");
    }
    let old = handshake(&gateway, "localhost", &["-tls1_1"])?;
    assert!(
        old.contains("Cipher is (NONE)"),
        "TLS 1.1 is refused: {old}"
    );
    assert_eq!(session.increment().await?, 2);
    Ok(())
}

#[tokio::test]
async fn a_client_gets_the_certificate_of_the_name_it_asks_for() -> anyhow::Result<()> {
    let (authority, fixture) = (Authority::new()?, Fixture::start("one").await?);
    let own = authority.certify("own", OWN_NAMES)?;
    let other = authority.certify("other", "DNS:*.tools.example,DNS:tools.example")?;
    let client = HttpClient::over_tls(&authority.root(), None)?;
    let gateway = gateway(&fixture, &[&own, &other], &client).await?;
    for (name, expected) in [
        ("localhost", "own"),
        ("tools.example", "other"),
        ("a.tools.example", "other"),
        ("a.b.tools.example", "own"),
        ("elsewhere.example", "own"),
    ] {
        assert_eq!(shown_to(&gateway, name)?, expected, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn changed_files_are_used_and_bad_ones_are_not() -> anyhow::Result<()> {
    let (authority, fixture) = (Authority::new()?, Fixture::start("one").await?);
    let used = authority.certify("used", OWN_NAMES)?;
    let client = HttpClient::over_tls(&authority.root(), None)?;
    let mut gateway = gateway(&fixture, &[&used], &client).await?;
    let mut session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    assert_eq!(session.increment().await?, 1);
    assert_eq!(shown_to(&gateway, "localhost")?, "used");

    let renewed = authority.certify("renewed", OWN_NAMES)?;
    let replace = |from: &Path, to: &Path| fs::rename(from, to);
    replace(&renewed.key, &used.key)?;
    replace(&renewed.certificate, &used.certificate)?;
    let is_shown = async || Ok(shown_to(&gateway, "localhost")? == "renewed");
    wait::until_true("the renewed certificate", RELOADED_WITHIN, is_shown).await?;
    assert_eq!(session.increment().await?, 2, "open connections go on");

    let open = authority.certify("open", OWN_NAMES)?;
    let permit = |file: &Path, mode| fs::set_permissions(file, Permissions::from_mode(mode));
    permit(&open.key, 0o644)?;
    replace(&open.key, &used.key)?;
    replace(&open.certificate, &used.certificate)?;
    let is_logged = async || {
        let log = gateway.process().log_text();
        Ok(log.contains("cannot be used; those before stay in use"))
    };
    wait::until_true("the refusal of a key for all", RELOADED_WITHIN, is_logged).await?;
    assert_eq!(shown_to(&gateway, "localhost")?, "renewed");
    assert_eq!(session.increment().await?, 3);
    permit(&used.key, 0o600)?;
    let is_shown = async || Ok(shown_to(&gateway, "localhost")? == "open");
    wait::until_true("the repaired file", RELOADED_WITHIN, is_shown).await?;
    Ok(())
}

#[tokio::test]
async fn clients_prove_who_they_are_where_authorities_are_named() -> anyhow::Result<()> {
    let (authority, clients) = (Authority::new()?, Authority::new()?);
    let fixture = Fixture::start("one").await?;
    let own = authority.certify("own", OWN_NAMES)?;
    let known = clients.certify("known", "DNS:client.example")?;
    let unknown = authority.certify("unknown", "DNS:client.example")?;
    let client = HttpClient::over_tls(&authority.root(), Some(&known))?;
    let settings = kept(&[fixture.url()]).tls(&[&own], &client).env(
        "MOORING_LISTEN_TLS_CLIENT_CA_FILE",
        &clients.root().display().to_string(),
    );
    let gateway = Gateway::start("tls", settings).await?;
    let mut session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    assert_eq!(session.increment().await?, 1);
    for (what, own) in [("none", None), ("one of another authority", Some(&unknown))] {
        let client = HttpClient::over_tls(&authority.root(), own)?;
        let refused = client.get(&gateway.url("/healthz")).await;
        assert!(refused.is_err(), "a client with {what} is refused");
    }
    Ok(())
}

#[tokio::test]
async fn files_that_cannot_be_used_keep_the_gateway_from_starting() -> anyhow::Result<()> {
    let authority = Authority::new()?;
    let (own, other) = (
        authority.certify("own", OWN_NAMES)?,
        authority.certify("other", OWN_NAMES)?,
    );
    let client = HttpClient::over_tls(&authority.root(), None)?;
    let mixed = Certificate {
        certificate: own.certificate.clone(),
        key: other.key.clone(),
    };
    let missing = Certificate {
        certificate: own.certificate.with_extension("none"),
        key: own.key.clone(),
    };
    let swapped = Certificate {
        certificate: own.key.clone(),
        key: own.key.clone(),
    };
    for (certificate, expected) in [
        (mixed, "does not fit the certificate"),
        (missing, "cannot read certificates"),
        (swapped, "has no certificate"),
    ] {
        let settings = Settings::toml("").tls(&[&certificate], &client);
        let (status, said) = Gateway::refused(settings).await?;
        assert_eq!(status.code(), Some(69), "{said}");
        assert!(said.contains(expected), "{said}");
    }
    Ok(())
}
