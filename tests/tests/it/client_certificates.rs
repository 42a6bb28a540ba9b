//! Callers known by their client certificates: whose sessions they reach, and what ends a certificate's use.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use mooring_tests::certificates::{Authority, Certificate};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::paths;
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::json;
use tempfile::TempDir;

use crate::rig::kept;

const OWN_NAMES: &str = "DNS:localhost,IP:127.0.0.1";
const DAY: Duration = Duration::from_secs(86_400);
/// The gateway looks at its files every 5 s.
const RELOADED_WITHIN: Duration = Duration::from_secs(30);

/// A gateway whose callers have certificates of `clients`.
struct Arrangement {
    gateway: Gateway,
    servers: Authority,
    clients: Authority,
    /// What the gateway reads as the authorities of clients.
    trusted: PathBuf,
    /// What it reads as their revocations.
    revoked: PathBuf,
    _directory: TempDir,
    _fixture: Fixture,
}

impl Arrangement {
    async fn start(user: &str) -> anyhow::Result<Self> {
        let (servers, clients) = (Authority::new()?, Authority::new()?);
        let fixture = Fixture::start("one").await?;
        let directory = TempDir::with_prefix("mooring-trust-")?;
        let trusted = directory.path().join("trusted.pem");
        let revoked = directory.path().join("revoked.pem");
        std::fs::copy(clients.root(), &trusted)?;
        clients.write_revocations(&revoked)?;
        let own = servers.certify("own", OWN_NAMES)?;
        let prober = clients.certify_client("prober", "/CN=prober", "DNS:prober", DAY)?;
        let settings = settings(&fixture, user)
            .tls(
                &[&own],
                &HttpClient::over_tls(&servers.root(), Some(&prober))?,
            )
            .env("MOORING_LISTEN_TLS_CLIENT_CA_FILE", &text(&trusted))
            .env("MOORING_LISTEN_TLS_CLIENT_CRL_FILE", &text(&revoked));
        Ok(Self {
            gateway: Gateway::start("certificates", settings).await?,
            servers,
            clients,
            trusted,
            revoked,
            _directory: directory,
            _fixture: fixture,
        })
    }

    fn client(&self, own: &Certificate) -> anyhow::Result<HttpClient> {
        HttpClient::over_tls(&self.servers.root(), Some(own))
    }

    fn endpoint(&self) -> [String; 1] {
        [self.gateway.mcp_url("tools")]
    }

    async fn open(&self, own: &Certificate) -> anyhow::Result<McpSession> {
        McpSession::open(&self.client(own)?, &self.endpoint()).await
    }

    /// The status of a ping in the session by the owner of this certificate.
    async fn ping(&self, session: &McpSession, own: &Certificate) -> anyhow::Result<u16> {
        status(&mut session.fork(&self.client(own)?, &self.endpoint())).await
    }
}

fn settings(fixture: &Fixture, user: &str) -> Settings {
    kept(&[fixture.url()]).more_toml(&format!(
        "[auth]\nmode = \"mtls\"\ncertificate_user = {user:?}\n\
         grants = [{{ teams = [\"dev\"], roles = [\"build\"], rights = [\"servers.use\"] }}]\n"
    ))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

async fn status(session: &mut McpSession) -> anyhow::Result<u16> {
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    Ok(session.post(&ping).await?.status.as_u16())
}

/// Waits until the session's open connection is closed, and a new one refused.
async fn refused(session: &mut McpSession) -> anyhow::Result<()> {
    wait::until_true(
        "the certificate to be refused",
        RELOADED_WITHIN,
        async || Ok(status(session).await.is_err()),
    )
    .await
}

#[tokio::test]
async fn a_session_belongs_to_the_certificates_user() -> anyhow::Result<()> {
    let set = Arrangement::start("common-name").await?;
    let issue = |file, subject| set.clients.certify_client(file, subject, "DNS:any", DAY);
    let ada = issue("ada", "/O=dev/OU=build/CN=ada")?;
    let mut session = set.open(&ada).await?;
    assert_eq!(session.increment().await?, 1);
    let renewed = issue("renewed", "/O=dev/OU=build/CN=ada")?;
    let mut kept = session.fork(&set.client(&renewed)?, &set.endpoint());
    assert_eq!(kept.increment().await?, 2, "the user is the same");
    // A server that the caller may not use is as unknown as another user's session.
    for (subject, expected) in [
        ("/O=dev/OU=build/CN=bob", 404),
        ("/O=ops/OU=build/CN=ada", 404),
        ("/O=dev/CN=ada", 404),
        ("/O=dev/OU=build", 401),
        ("/O=dev/OU=build/CN=ada/CN=bob", 401),
        ("/O=dev/OU=build/CN=mooring", 401),
        ("/O=dev/OU=build/CN=*", 401),
    ] {
        let other = issue("other", subject)?;
        assert_eq!(set.ping(&session, &other).await?, expected, "{subject}");
    }
    let counted = |reason| {
        let labels = [format!("reason={reason:?}")];
        let gateway = &set.gateway;
        async move {
            let labels = labels.each_ref().map(String::as_str);
            let name = "mooring_authentication_refused_total";
            gateway.metric(name, &labels).await
        }
    };
    assert_eq!(counted("certificate_user_missing").await?, 1.0);
    assert_eq!(counted("certificate_several_users").await?, 1.0);
    assert_eq!(counted("certificate_user_invalid").await?, 2.0);
    Ok(())
}

#[tokio::test]
async fn the_user_may_be_an_alternative_name() -> anyhow::Result<()> {
    let set = Arrangement::start("uri").await?;
    let issue = |file, names| {
        let subject = "/O=dev/OU=build/CN=same";
        set.clients.certify_client(file, subject, names, DAY)
    };
    let ada = issue("ada", "URI:spiffe://corp.example/ada,DNS:any")?;
    let mut session = set.open(&ada).await?;
    assert_eq!(session.increment().await?, 1);
    for (names, expected) in [
        ("URI:spiffe://corp.example/ada,email:bob@corp.example", 200),
        ("URI:spiffe://corp.example/bob", 404),
        ("DNS:corp.example", 401),
        (
            "URI:spiffe://corp.example/ada,URI:spiffe://corp.example/bob",
            401,
        ),
    ] {
        let other = issue("other", names)?;
        assert_eq!(set.ping(&session, &other).await?, expected, "{names}");
    }
    Ok(())
}

#[tokio::test]
async fn an_expired_certificate_ends_its_open_connection() -> anyhow::Result<()> {
    let set = Arrangement::start("common-name").await?;
    let issue = |file, lifetime| {
        let subject = "/O=dev/OU=build/CN=ada";
        set.clients
            .certify_client(file, subject, "DNS:any", lifetime)
    };
    let brief = issue("brief", Duration::from_secs(10))?;
    let mut session = set.open(&brief).await?;
    assert_eq!(session.increment().await?, 1);
    refused(&mut session).await?;
    let renewed = issue("renewed", DAY)?;
    let mut session = session.fork(&set.client(&renewed)?, &set.endpoint());
    assert_eq!(session.increment().await?, 2);
    Ok(())
}

#[tokio::test]
async fn a_revoked_certificate_ends_its_open_connection() -> anyhow::Result<()> {
    let set = Arrangement::start("common-name").await?;
    let issue = |file, subject| set.clients.certify_client(file, subject, "DNS:any", DAY);
    let stolen = issue("stolen", "/O=dev/OU=build/CN=ada")?;
    let bob = issue("bob", "/O=dev/OU=build/CN=bob")?;
    let (mut session, mut other) = (set.open(&stolen).await?, set.open(&bob).await?);
    assert_eq!(session.increment().await?, 1);
    assert_eq!(other.increment().await?, 1);
    set.clients.revoke(&stolen)?;
    set.clients.write_revocations(&set.revoked)?;
    refused(&mut session).await?;
    assert_eq!(other.increment().await?, 2, "others connect again");
    Ok(())
}

#[tokio::test]
async fn another_authority_ends_open_connections_but_not_sessions() -> anyhow::Result<()> {
    let set = Arrangement::start("common-name").await?;
    let subject = "/O=dev/OU=build/CN=ada";
    let before = set.clients.certify_client("ada", subject, "DNS:any", DAY)?;
    let mut session = set.open(&before).await?;
    assert_eq!(session.increment().await?, 1);
    let authority = Authority::new()?;
    // It has the name of the one before, so that the list of that one would be taken for its own.
    authority.write_revocations(&set.revoked)?;
    let next = set.trusted.with_extension("next");
    std::fs::copy(authority.root(), &next)?;
    std::fs::rename(&next, &set.trusted)?;
    refused(&mut session).await?;
    let after = authority.certify_client("ada", subject, "DNS:any", DAY)?;
    let mut session = session.fork(&set.client(&after)?, &set.endpoint());
    let is_known = async || Ok(status(&mut session).await.is_ok());
    wait::until_true("the other authority to be read", RELOADED_WITHIN, is_known).await?;
    assert_eq!(session.increment().await?, 2);
    Ok(())
}

#[tokio::test]
async fn the_operators_commands_show_a_certificate() -> anyhow::Result<()> {
    let set = Arrangement::start("common-name").await?;
    let subject = "/O=dev/OU=build/CN=ada";
    let own = set.clients.certify_client("ada", subject, "DNS:any", DAY)?;
    let run = |more: &[&str]| {
        let url = set.gateway.url("");
        let mut command = Command::new(paths::binary("mooring")?);
        command.args(["runs", "list", "--server", "tools", "--gateway", &url]);
        command.args(more).env_clear();
        command.env("SSL_CERT_FILE", set.servers.root());
        let output = command.output().context("run mooring")?;
        anyhow::Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (certificate, key) = (text(&own.certificate), text(&own.key));
    // Whoever is authenticated learns that this is no code server.
    for (more, expected) in [
        (&[][..], "does not answer"),
        (
            &["--cert-file", &certificate, "--key-file", &key],
            "server_not_found",
        ),
        (&["--cert-file", &certificate], "--key-file"),
        (
            &["--cert-file", &key, "--key-file", &key],
            "no certificate in PEM",
        ),
    ] {
        let said = run(more)?;
        ensure!(said.contains(expected), "{expected}: {said}");
    }
    Ok(())
}

#[tokio::test]
async fn files_of_revocations_have_a_list() -> anyhow::Result<()> {
    let (authority, fixture) = (Authority::new()?, Fixture::start("one").await?);
    let own = authority.certify("own", OWN_NAMES)?;
    let client = HttpClient::over_tls(&authority.root(), None)?;
    let root = text(&authority.root());
    for (revoked, expected) in [
        (root.as_str(), "has no revocation list"),
        ("/nowhere", "cannot read revocation lists"),
    ] {
        let settings = settings(&fixture, "common-name")
            .tls(&[&own], &client)
            .env("MOORING_LISTEN_TLS_CLIENT_CA_FILE", &root)
            .env("MOORING_LISTEN_TLS_CLIENT_CRL_FILE", revoked);
        let (status, said) = Gateway::refused(settings).await?;
        assert_eq!(status.code(), Some(69), "{said}");
        assert!(said.contains(expected), "{said}");
    }
    Ok(())
}
