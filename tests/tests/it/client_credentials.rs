//! Servers that admit the gateway by a token of an authorization server, which the gateway fetches for itself.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use mooring_tests::client::HttpClient;
use mooring_tests::code::{CodeVolume, whole_answer};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::identity_provider::IdentityProvider;
use mooring_tests::servers::Server;
use mooring_tests::session::{McpSession, Opening};
use mooring_tests::wait;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::doctor::mooring;

const RESOURCE: &str = "https://tools.example/";
/// The provider's tokens for it are valid for four seconds.
const BRIEF_RESOURCE: &str = "https://brief.example/";
/// How long a gateway may take to fetch a token after failures, or another one.
const FETCHED_WITHIN: Duration = Duration::from_secs(30);

struct Arrangement {
    provider: IdentityProvider,
    instance: Server,
    secret: PathBuf,
    journal: PathBuf,
    /// The ids of the tokens that the server admits no more.
    revoked: PathBuf,
    volume: CodeVolume,
    _directory: TempDir,
}

impl Arrangement {
    async fn start() -> anyhow::Result<Self> {
        let provider = IdentityProvider::start().await?;
        let directory = TempDir::with_prefix("mooring-credentials-")?;
        let file = |name: &str| directory.path().join(name);
        let (keys, journal, secret) = (file("keys"), file("journal"), file("secret"));
        let revoked = file("revoked");
        std::fs::write(&revoked, "")?;
        let revoked_file = revoked.display().to_string();
        std::fs::write(&keys, format!("{}/jwks", provider.issuer()))?;
        std::fs::write(&journal, "")?;
        let issuer = [
            "--issuer",
            &provider.issuer(),
            "--algorithm",
            "RS256",
            "--revoked",
            &revoked_file,
            "--audience",
        ];
        let arguments = [&issuer[..], &[RESOURCE, BRIEF_RESOURCE]].concat();
        Ok(Self {
            instance: Server::verifying_tokens_of(&keys, &journal, &arguments).await?,
            provider,
            secret,
            journal,
            revoked,
            volume: CodeVolume::new()?,
            _directory: directory,
        })
    }

    fn write_secret(&self, secret: &str) -> anyhow::Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(&self.secret, secret)?;
        let mode = std::fs::Permissions::from_mode(0o600);
        Ok(std::fs::set_permissions(&self.secret, mode)?)
    }

    fn settings(&self, resource: &str) -> Settings {
        Settings::toml(format!(
            "[[servers]]\nid = \"tools\"\ninstances = [{:?}]\naffinity = \"on\"\n\
             oauth = {{ token_url = \"{}/token\", client_id = \"ada\", client_secret_file = {:?}, \
             scopes = [\"read\"], resource = {resource:?} }}\n\
             [[servers]]\nid = \"sandbox\"\nkind = \"code\"\nallow = [{{}}]\n\
             [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"tools\", \"sandbox\"]\n",
            self.instance.url(),
            self.provider.issuer(),
            self.secret.display().to_string(),
        ))
        .users_by_header()
        .env(
            "MOORING_CODE_BASE_DIR",
            &self.volume.path().display().to_string(),
        )
    }
}

#[tokio::test]
async fn the_doctor_calls_a_server_with_its_token() -> anyhow::Result<()> {
    let set = Arrangement::start().await?;
    let toml = format!(
        "[[servers]]\nid = \"tools\"\ninstances = [{:?}]\n\
         oauth = {{ token_url = \"{}/token\", client_id = \"ada\", client_secret_file = {:?}, \
         scopes = [\"read\"], resource = {RESOURCE:?} }}\n",
        set.instance.url(),
        set.provider.issuer(),
        set.secret.display().to_string(),
    );
    for (secret, code, words) in [
        ("another", 69, "no token could be fetched"),
        ("secret", 0, "a token was fetched"),
    ] {
        set.write_secret(secret)?;
        let (ended, text) = mooring(&["doctor"], &toml).await?;
        ensure!(ended == Some(code) && text.contains(words), "{text}");
    }
    Ok(())
}

async fn open(gateway: &Gateway, server: &str, user: &str) -> anyhow::Result<McpSession> {
    let opening = Opening::default()
        .header("x-mooring-user", user)?
        // A client's own token, which is not the gateway's to give away.
        .header("authorization", "Bearer of-the-client")?;
    McpSession::open_with(&HttpClient::default(), &[gateway.mcp_url(server)], opening).await
}

/// Whom the server takes the caller for.
async fn subject(session: &mut McpSession, tool: &str) -> anyhow::Result<Value> {
    let result = session.call(tool, json!({})).await?;
    Ok(result["structuredContent"]["sub"].clone())
}

#[tokio::test]
async fn one_token_is_fetched_for_all_callers_and_renewed() -> anyhow::Result<()> {
    let mut set = Arrangement::start().await?;
    // The authorization server is away, and the secret is wrong when it is back.
    set.provider.kill()?;
    set.write_secret("another")?;
    let mut gateway = Gateway::start("credentials", set.settings(RESOURCE)).await?;
    ensure!(
        open(&gateway, "tools", "bob").await.is_err(),
        "it has no token yet"
    );
    set.provider.restart().await?;
    wait::until_true("a refusal", FETCHED_WITHIN, async || {
        Ok(set.provider.tokens().await? > 0)
    })
    .await?;
    set.write_secret("secret\n")?;
    let mut sessions = Vec::new();
    wait::until_true("a token", FETCHED_WITHIN, async || {
        sessions.extend(open(&gateway, "tools", "bob").await);
        Ok(!sessions.is_empty())
    })
    .await?;

    let fetched = set.provider.tokens().await?;
    sessions.push(open(&gateway, "tools", "eve").await?);
    for session in &mut sessions {
        for _ in 0..3 {
            assert_eq!(subject(session, "whoami").await?, "ada", "the gateway's id");
        }
    }
    let mut grouped = open(&gateway, "all", "bob").await?;
    assert_eq!(subject(&mut grouped, "tools__whoami").await?, "ada");
    let mut coder = open(&gateway, "sandbox", "bob").await?;
    let code = "import tools\nprint(tools.call('tools', 'whoami', {})['sub'])";
    let arguments = json!({"code": code, "language": "python"});
    let ran = whole_answer(&coder.call("shell_exec", arguments).await?)?;
    assert_eq!(ran["output"], "ada\n", "{ran}");
    assert_eq!(
        set.provider.tokens().await?,
        fetched,
        "none of them caused a request for a token"
    );

    // One that the server refuses is replaced.
    let session = &mut sessions[0];
    let refused = session.call("whoami", json!({})).await?["structuredContent"]["jti"].clone();
    std::fs::write(&set.revoked, refused.as_str().unwrap_or_default())?;
    let replaced = session.call("whoami", json!({})).await?["structuredContent"]["jti"].clone();
    ensure!(replaced != refused, "{replaced}");
    assert_eq!(set.provider.tokens().await?, fetched + 1);

    let failed = gateway
        .metric(
            "mooring_upstream_tokens_fetched_total",
            &["outcome=\"failed\""],
        )
        .await?;
    assert!(failed >= 2.0, "{failed}");
    let log = wait::until_logged("invalid_client", 1, || gateway.process().log_text()).await?;
    assert!(!log.contains("Bearer"), "{log}");
    let journal = std::fs::read_to_string(&set.journal)?;
    ensure!(
        journal.contains("POST 200 ada") && !journal.contains("of-the-client"),
        "{journal}"
    );

    // Requests go on while tokens of four seconds are replaced.
    let brief = Gateway::start("brief", set.settings(BRIEF_RESOURCE)).await?;
    let mut session = open(&brief, "tools", "bob").await?;
    let before = set.provider.tokens().await?;
    wait::until_true("two more tokens", FETCHED_WITHIN, async || {
        assert_eq!(subject(&mut session, "whoami").await?, "ada");
        Ok(set.provider.tokens().await? >= before + 2)
    })
    .await?;
    Ok(())
}
