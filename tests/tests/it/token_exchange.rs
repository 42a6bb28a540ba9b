//! A server that is called with a token for each caller, which the gateway gets in exchange for the caller's own.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{Request, StatusCode};
use mooring_tests::client::HttpClient;
use mooring_tests::code::{CodeVolume, whole_answer};
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::identity_provider::IdentityProvider;
use mooring_tests::legacy::LegacySession;
use mooring_tests::redis::Redis;
use mooring_tests::servers::Server;
use mooring_tests::session::{McpSession, Opening};
use mooring_tests::wait;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::rig::initialize_params;

/// The resource of the callers' tokens, which is the gateway.
const GATEWAY: &str = "http://127.0.0.1:1/mcp";
const RESOURCE: &str = "https://tools.example/";
/// The provider's tokens for it are valid for four seconds.
const BRIEF: &str = "https://brief.example/";
/// The provider exchanges no token for it.
const REFUSED: &str = "https://refused.example/";
/// How long a gateway may take to delete an upstream session, or a token of four seconds to be replaced.
const DONE_WITHIN: Duration = Duration::from_secs(60);

struct Arrangement {
    provider: IdentityProvider,
    gateways: Vec<Gateway>,
    client: HttpClient,
    journal: PathBuf,
    /// The ids of the tokens that the server admits no more.
    revoked: PathBuf,
    _instance: Server,
    _redis: Redis,
    _volume: CodeVolume,
    _keys: FleetKeys,
    _directory: TempDir,
}

impl Arrangement {
    async fn start() -> anyhow::Result<Self> {
        use std::os::unix::fs::PermissionsExt as _;
        let provider = IdentityProvider::start().await?;
        let issuer = provider.issuer();
        let directory = TempDir::with_prefix("mooring-exchange-")?;
        let file = |name: &str| directory.path().join(name);
        let (keys, journal, revoked, secret) = (
            file("keys"),
            file("journal"),
            file("revoked"),
            file("secret"),
        );
        std::fs::write(&keys, format!("{issuer}/jwks"))?;
        std::fs::write(&journal, "")?;
        std::fs::write(&revoked, "")?;
        std::fs::write(&secret, "secret\n")?;
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600))?;
        let revoked_file = revoked.display().to_string();
        let arguments = [
            "--issuer",
            &issuer,
            "--algorithm",
            "RS256",
            "--revoked",
            &revoked_file,
            "--audience",
            RESOURCE,
            BRIEF,
            REFUSED,
        ];
        let instance = Server::verifying_tokens_of(&keys, &journal, &arguments).await?;
        let (redis, volume, fleet_keys) =
            (Redis::start().await?, CodeVolume::new()?, FleetKeys::new()?);
        let mut servers = String::new();
        for (id, resource, affinity) in [
            ("tools", RESOURCE, "on"),
            ("pooled", RESOURCE, "off"),
            ("brief", BRIEF, "on"),
            ("refused", REFUSED, "on"),
        ] {
            servers.push_str(&format!(
                "[[servers]]\nid = {id:?}\ninstances = [{:?}]\naffinity = {affinity:?}\n\
                 oauth = {{ grant = \"token-exchange\", token_url = \"{issuer}/token\", client_id = \"gateway\", \
                 client_secret_file = {:?}, scopes = [\"read\"], resource = {resource:?} }}\n",
                instance.url(),
                secret.display().to_string(),
            ));
        }
        let settings = Settings::toml(format!(
            "{}[store]\nurl = {:?}\n{servers}\
             [[servers]]\nid = \"sandbox\"\nkind = \"code\"\nallow = [{{}}]\n\
             [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"tools\", \"sandbox\"]\n",
            provider.toml(),
            redis.url()
        ))
        .env(
            "MOORING_WORKER_FLEET_KEYS_FILE",
            &fleet_keys.path().display().to_string(),
        )
        .env(
            "MOORING_CODE_BASE_DIR",
            &volume.path().display().to_string(),
        );
        Ok(Self {
            gateways: Gateway::fleet(2, &settings).await?,
            provider,
            client: HttpClient::default(),
            journal,
            revoked,
            _instance: instance,
            _redis: redis,
            _volume: volume,
            _keys: fleet_keys,
            _directory: directory,
        })
    }

    fn endpoint(&self, gateway: usize, server: &str) -> anyhow::Result<String> {
        Ok(self
            .gateways
            .get(gateway)
            .context("a gateway")?
            .mcp_url(server))
    }

    /// A session of the owner of this token, at the first gateway.
    async fn open(&self, server: &str, token: &str) -> anyhow::Result<McpSession> {
        let opening = Opening::default().header("authorization", &format!("Bearer {token}"))?;
        McpSession::open_with(&self.client, &[self.endpoint(0, server)?], opening).await
    }

    /// The same session at the other gateway.
    fn at_other_gateway(&self, session: &McpSession) -> anyhow::Result<McpSession> {
        Ok(session.fork(&self.client, &[self.endpoint(1, "tools")?]))
    }

    fn journal(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(&self.journal)?)
    }
}

/// What the token says with which the server was called.
async fn claims(session: &mut McpSession, tool: &str) -> anyhow::Result<Value> {
    let result = session.call(tool, json!({})).await?;
    Ok(result["structuredContent"].clone())
}

#[tokio::test]
async fn the_server_gets_a_token_for_each_caller_and_never_the_callers_own() -> anyhow::Result<()> {
    let mut set = Arrangement::start().await?;
    let ada_token = set.provider.token("ada", GATEWAY, "read").await?;
    let bob_token = set.provider.token("bob", GATEWAY, "read").await?;
    let mut ada = set.open("tools", &ada_token).await?;
    let mut bob = set.open("tools", &bob_token).await?;
    for _ in 0..3 {
        for (session, user) in [(&mut ada, "ada"), (&mut bob, "bob")] {
            let found = claims(session, "whoami").await?;
            assert_eq!(
                (&found["sub"], &found["aud"]),
                (&json!(user), &json!(RESOURCE))
            );
        }
    }
    let mut grouped = set.open("all", &ada_token).await?;
    assert_eq!(claims(&mut grouped, "tools__whoami").await?["sub"], "ada");
    let mut coder = set.open("sandbox", &bob_token).await?;
    let code = "import tools\nprint(tools.call('tools', 'whoami', {})['sub'])";
    let arguments = json!({"code": code, "language": "python"});
    let ran = whole_answer(&coder.call("shell_exec", arguments).await?)?;
    assert_eq!(ran["output"], "bob\n", "{ran}");
    assert_eq!(set.provider.exchanges().await?, 2, "one for each user");

    // A message of HTTP+SSE is served where its stream is, with the token that opened it.
    let gateway = set.gateways.first().context("a gateway")?;
    let opening = Opening::default().header("authorization", &format!("Bearer {ada_token}"))?;
    let url = gateway.url("/servers/tools/sse");
    let mut streaming = LegacySession::open_with(&set.client, &url, &opening).await?;
    let message = streaming.request_body("tools/call", json!({"name": "whoami", "arguments": {}}));
    let other = set.gateways.get(1).context("a gateway")?;
    let endpoint = streaming.connection().endpoint().to_owned();
    let request = Request::post(endpoint.replace(&gateway.url("/"), &other.url("/")))
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {ada_token}"));
    let body = Bytes::from(message.to_string());
    assert_eq!(set.client.send(request.body(body)?).await?.status, 202);
    let response = streaming.response(&message["id"]).await?;
    assert_eq!(response["result"]["structuredContent"]["sub"], "ada");
    assert_eq!(set.provider.exchanges().await?, 2);
    drop(streaming);

    // Another gateway has to exchange the tokens for itself.
    set.gateways
        .first_mut()
        .context("a gateway")?
        .process()
        .kill_now()?;
    let (mut ada, mut bob) = (set.at_other_gateway(&ada)?, set.at_other_gateway(&bob)?);
    for (session, user) in [(&mut ada, "ada"), (&mut bob, "bob")] {
        assert_eq!(claims(session, "whoami").await?["sub"], user);
    }
    assert_eq!(set.provider.exchanges().await?, 4);
    let journal = set.journal()?;
    let refused = ["401 ada", "401 bob"].map(|line| journal.contains(line));
    assert_eq!(
        refused,
        [false, false],
        "no other token of theirs: {journal}"
    );

    // A token that the server refuses is replaced, once.
    let before = claims(&mut ada, "whoami").await?;
    std::fs::write(&set.revoked, before["jti"].as_str().context("an id")?)?;
    let after = claims(&mut ada, "whoami").await?;
    assert_eq!(after["sub"], "ada");
    assert_ne!(after["jti"], before["jti"]);
    assert_eq!(set.provider.exchanges().await?, 5);
    std::fs::write(&set.revoked, "all")?;
    for _ in 0..3 {
        let message = ada.request_body("tools/call", json!({"name": "whoami", "arguments": {}}));
        let status = ada.post(&message).await?.status;
        assert_eq!(status, StatusCode::BAD_GATEWAY, "the server refused it");
    }
    assert_eq!(set.provider.exchanges().await?, 5, "not for every refusal");
    std::fs::write(&set.revoked, "")?;

    // The caller is gone when a session is cleaned up, so that is done with the gateway's own token.
    assert_eq!(ada.delete().await?.status, 204);
    wait::until_true("the deletion upstream", DONE_WITHIN, async || {
        Ok(set.journal()?.contains("DELETE 200 gateway"))
    })
    .await?;
    for gateway in &mut set.gateways {
        let log = gateway.process().log_text();
        for token in [&ada_token, &bob_token] {
            ensure!(!log.contains(token.as_str()), "{log}");
        }
        ensure!(!log.contains("Bearer"), "{log}");
    }
    Ok(())
}

#[tokio::test]
async fn tokens_are_replaced_when_they_expire_and_refusals_say_why() -> anyhow::Result<()> {
    let set = Arrangement::start().await?;
    let token = set.provider.token("ada", GATEWAY, "read").await?;
    let mut session = set.open("brief", &token).await?;
    let first = claims(&mut session, "whoami").await?;
    wait::until_true("another token", DONE_WITHIN, async || {
        let found = claims(&mut session, "whoami").await?;
        assert_eq!(found["sub"], "ada");
        Ok(found["jti"] != first["jti"])
    })
    .await?;
    // A slow machine uses more of them.
    let exchanges = set.provider.exchanges().await?;
    assert!(exchanges >= 2, "{exchanges}");

    let mut pooled = set.open("pooled", &token).await?;
    for _ in 0..2 {
        assert_eq!(claims(&mut pooled, "whoami").await?["sub"], "ada");
    }
    assert_eq!(set.provider.exchanges().await?, exchanges + 1);

    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize_params()});
    let request = Request::post(set.endpoint(0, "refused")?)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("authorization", format!("Bearer {token}"));
    let reply = set
        .client
        .send(request.body(Bytes::from(body.to_string()))?)
        .await?;
    let (status, code) = (reply.status, reply.json().await?);
    assert_eq!(status, StatusCode::FORBIDDEN, "{code}");
    let text = code["error"]["message"].as_str().context("a message")?;
    ensure!(
        text.contains("refused to exchange the token of the caller: invalid_target"),
        "{text}"
    );
    assert_eq!(code["error"]["code"], -32006);
    let counted = set.gateways.first().context("a gateway")?;
    let refused = counted
        .metric(
            "mooring_upstream_tokens_exchanged_total",
            &["outcome=\"refused\""],
        )
        .await?;
    ensure!(refused > 0.0, "{refused}");
    Ok(())
}
