//! TLS to Redis and to upstreams, with real handshakes: a peer that proves its name by a known authority is spoken to, and
//! no other.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use mooring_tests::certificates::{Authority, Certificate};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::settings_toml;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::nginx::Nginx;
use mooring_tests::port::free_port;
use mooring_tests::redis::{Module, Redis};
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::Value;

/// For all that takes a second on an idle machine.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
const OWN_NAMES: &str = "DNS:localhost,IP:127.0.0.1";
const OTHER_NAMES: &str = "DNS:elsewhere.example";

/// Two authorities: one that the gateways know, and one that they do not.
struct Authorities {
    known: Authority,
    unknown: Authority,
}

impl Authorities {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            known: Authority::new()?,
            unknown: Authority::new()?,
        })
    }

    /// Certificates of a server, each with what is wrong with it, if anything is.
    fn certificates(&self) -> anyhow::Result<[(Option<&'static str>, Certificate); 3]> {
        Ok([
            (None, self.known.certify("right", OWN_NAMES)?),
            (
                Some("an unknown authority"),
                self.unknown.certify("unknown", OWN_NAMES)?,
            ),
            (
                Some("another host's name"),
                self.known.certify("other", OTHER_NAMES)?,
            ),
        ])
    }

    /// Settings of a gateway that knows one of the two.
    fn known_to(&self, toml: String) -> Settings {
        Settings::toml(toml).env("SSL_CERT_FILE", &self.known.root().display().to_string())
    }
}

#[tokio::test]
async fn redis_is_spoken_to_over_tls_only_where_it_proves_its_name() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let authorities = Authorities::new()?;
    for (wrong, certificate) in authorities.certificates()? {
        let port = free_port()?.to_string();
        let file = |path: &Path| path.display().to_string();
        let redis = Redis::start_with(
            Module::Loaded,
            &[
                ("--tls-port", port.as_str()),
                ("--tls-cert-file", &file(&certificate.certificate)),
                ("--tls-key-file", &file(&certificate.key)),
                ("--tls-ca-cert-file", &file(&authorities.known.root())),
                ("--tls-auth-clients", "no"),
            ]
            .map(|(name, value)| [name, value])
            .concat(),
        )
        .await?;
        let toml = settings_toml(&format!("rediss://localhost:{port}"), &[fixture.url()]);
        let settings = authorities
            .known_to(toml)
            .env("MOORING_STORE_ON_UNAVAILABLE", "fail");
        match wrong {
            None => {
                let gateway = Gateway::start("tls", settings).await?;
                let endpoint = [gateway.mcp_url("tools")];
                let mut session = McpSession::open(&HttpClient::default(), &endpoint).await?;
                assert_eq!(session.increment().await?, 1);
                let kept = redis.cli(&["KEYS", "mcpgw:session_affinity:*"])?;
                assert_eq!(kept.lines().count(), 1, "{kept}");
            }
            Some(what) => {
                let (status, said) = Gateway::refused(settings).await?;
                assert_eq!(status.code(), Some(69), "{what}: {said}");
                // TLS is not hidden behind a word such as "I/O error".
                assert!(said.contains("certificate"), "{what}: {said}");
            }
        }
    }
    Ok(())
}

/// A Redis with the module that asks for a certificate of this authority, and the port where it does.
async fn redis_for_known_clients(authority: &Authority) -> anyhow::Result<(Redis, u16)> {
    let certificate = authority.certify("redis", OWN_NAMES)?;
    let port = free_port()?;
    let file = |path: &Path| path.display().to_string();
    let arguments = [
        ("--tls-port", port.to_string()),
        ("--tls-cert-file", file(&certificate.certificate)),
        ("--tls-key-file", file(&certificate.key)),
        ("--tls-ca-cert-file", file(&authority.root())),
        ("--tls-auth-clients", "yes".to_owned()),
    ];
    let arguments: Vec<&str> = arguments
        .iter()
        .flat_map(|(name, value)| [*name, value])
        .collect();
    Ok((Redis::start_with(Module::Loaded, &arguments).await?, port))
}

/// Settings with the files of TLS, and nothing from the system.
fn with_tls_files(
    port: u16,
    ca: &Path,
    client: Option<&Certificate>,
    fixture: &Fixture,
) -> Settings {
    let toml = settings_toml(&format!("rediss://localhost:{port}"), &[fixture.url()]);
    let file = |path: &Path| path.display().to_string();
    let settings = Settings::toml(toml)
        .env("SSL_CERT_FILE", "/dev/null")
        .env("MOORING_STORE_ON_UNAVAILABLE", "fail")
        .env("MOORING_STORE_TLS_CA_FILE", &file(ca));
    match client {
        None => settings,
        Some(client) => settings
            .env("MOORING_STORE_TLS_CERT_FILE", &file(&client.certificate))
            .env("MOORING_STORE_TLS_KEY_FILE", &file(&client.key)),
    }
}

#[tokio::test]
async fn redis_serves_a_gateway_whose_certificate_it_accepts_and_says_why_no_other()
-> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let authorities = Authorities::new()?;
    let (known, unknown) = (&authorities.known, &authorities.unknown);
    let (redis, port) = redis_for_known_clients(known).await?;
    let brief = Duration::from_secs(1);
    let expired = known.certify_client("expired", "/CN=expired", "DNS:gateway", brief)?;
    let foreign = unknown.certify("foreign", "DNS:gateway")?;
    let own = known.certify("gateway", "DNS:gateway")?;
    tokio::time::sleep(brief).await;
    let ca = known.root();
    for (ca, client, reason) in [
        (&ca, None, "set store.tls_cert_file and store.tls_key_file"),
        (&ca, Some(&expired), "CertificateExpired"),
        (&ca, Some(&foreign), "UnknownCA"),
        (&unknown.root(), Some(&own), "store.tls_ca_file names"),
        (&own.key, Some(&own), "has no certificate in PEM"),
    ] {
        let settings = with_tls_files(port, ca, client, &fixture);
        let (status, said) = Gateway::refused(settings).await?;
        assert_eq!(status.code(), Some(69), "{reason}: {said}");
        assert!(said.contains(reason), "{reason}: {said}");
    }
    let settings = with_tls_files(port, &ca, Some(&own), &fixture);
    let gateway = Gateway::start("tls", settings).await?;
    let mut session = McpSession::open(&HttpClient::default(), &[gateway.mcp_url("tools")]).await?;
    assert_eq!(session.increment().await?, 1);
    // The next connection uses what is in the files then.
    std::fs::copy(&foreign.certificate, &own.certificate)?;
    std::fs::copy(&foreign.key, &own.key)?;
    redis.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])?;
    let cause = until_degraded_cause(&gateway).await?;
    assert!(cause.contains("UnknownCA"), "{cause}");
    Ok(())
}

/// The cause that `/readyz` gives for the store, once there is one.
async fn until_degraded_cause(gateway: &Gateway) -> anyhow::Result<String> {
    wait::until("a cause of the store's state", SETTLED_WITHIN, async || {
        let client = HttpClient::default();
        let state = client.get(&gateway.url("/readyz")).await?.json().await?;
        let cause = state.pointer("/parts/store/cause").and_then(Value::as_str);
        Ok(cause.map(str::to_owned))
    })
    .await
}

/// nginx that speaks TLS on this port by this certificate, before the upstream.
async fn terminated(
    tls_port: u16,
    certificate: &Certificate,
    upstream_port: u16,
) -> anyhow::Result<Nginx> {
    Nginx::start_configured(|directory, port| {
        let mut text = String::new();
        let (directory, certificate, key) = (
            directory.display(),
            certificate.certificate.display(),
            certificate.key.display(),
        );
        writeln!(text, "daemon off; master_process off; pid {directory}/nginx.pid;")?;
        writeln!(text, "error_log stderr warn; events {{}} http {{ access_log off;")?;
        for name in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
            writeln!(text, "{name}_temp_path {directory}/{name};")?;
        }
        writeln!(text, "server {{ listen 127.0.0.1:{port}; location / {{ return 204; }} }}")?;
        writeln!(
            text,
            "server {{ listen 127.0.0.1:{tls_port} ssl; ssl_certificate {certificate}; ssl_certificate_key {key};"
        )?;
        writeln!(
            text,
            "location / {{ proxy_pass http://127.0.0.1:{upstream_port}; proxy_http_version 1.1; proxy_buffering off; }} }} }}"
        )?;
        Ok(text)
    })
    .await
}

#[tokio::test]
async fn an_upstream_is_spoken_to_over_tls_only_where_it_proves_its_name() -> anyhow::Result<()> {
    let authorities = Authorities::new()?;
    for (wrong, certificate) in authorities.certificates()? {
        let fixture = Fixture::start("one").await?;
        let tls_port = free_port()?;
        let _proxy = terminated(tls_port, &certificate, fixture.port()).await?;
        let instance = format!("https://localhost:{tls_port}/mcp");
        let settings = authorities.known_to(settings_toml("embedded", &[instance]));
        let gateway = Gateway::start("tls", settings).await?;
        let endpoint = [gateway.mcp_url("tools")];
        let opened = McpSession::open(&HttpClient::default(), &endpoint).await;
        match wrong {
            None => assert_eq!(opened?.increment().await?, 1),
            Some(what) => {
                assert!(opened.is_err(), "{what}");
                assert_eq!(fixture.stats().await?.initializes, 0, "{what}");
            }
        }
    }
    Ok(())
}
