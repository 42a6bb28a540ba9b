//! An upstream server that admits requests by the gateway's signed tokens alone: it learns whom each one is for.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use mooring_tests::client::HttpClient;
use mooring_tests::code::{CodeVolume, whole_answer};
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::servers::Server;
use mooring_tests::session::{McpSession, Opening};
use mooring_tests::wait;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The deletion is made after the reply to the client.
const DELETED_WITHIN: Duration = Duration::from_secs(60);

/// Two instances of a server that verifies, behind two gateways.
struct Arrangement {
    instances: Vec<Server>,
    gateways: Vec<Gateway>,
    journal: PathBuf,
    _redis: Redis,
    _volume: CodeVolume,
    _keys: FleetKeys,
    _directory: TempDir,
}

impl Arrangement {
    async fn start(affinity: &str) -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("mooring-verified-")?;
        let keys_url = directory.path().join("keys");
        let journal = directory.path().join("journal");
        std::fs::write(&journal, "")?;
        let instances = vec![
            Server::verifying(&keys_url, &journal).await?,
            Server::verifying(&keys_url, &journal).await?,
        ];
        let urls: Vec<String> = instances.iter().map(Server::url).collect();
        let (redis, volume, keys) = (Redis::start().await?, CodeVolume::new()?, FleetKeys::new()?);
        let settings = Settings::toml(format!(
            "[store]\nurl = {:?}\n\
             [[servers]]\nid = \"tools\"\ninstances = {urls:?}\naffinity = {affinity:?}\nforward_identity = true\n\
             [[servers]]\nid = \"sandbox\"\nkind = \"code\"\nallow = [{{}}]\n\
             [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"tools\", \"sandbox\"]\n",
            redis.url()
        ))
        .users_by_header()
        .env("MOORING_WORKER_FLEET_KEYS_FILE", &keys.path().display().to_string())
        .env("MOORING_CODE_BASE_DIR", &volume.path().display().to_string());
        let gateways = Gateway::fleet(2, &settings).await?;
        let gateway = gateways.first().context("a gateway")?;
        std::fs::write(&keys_url, gateway.url("/.well-known/jwks.json"))?;
        Ok(Self {
            instances,
            gateways,
            journal,
            _redis: redis,
            _volume: volume,
            _keys: keys,
            _directory: directory,
        })
    }

    async fn open(&self, server: &str, user: &str, team: &str) -> anyhow::Result<McpSession> {
        let opening = Opening::default()
            .header("x-mooring-user", user)?
            .header("x-mooring-teams", team)?
            // A client's own token, which is not the gateway's to give away.
            .header("authorization", "Bearer of-the-client")?;
        let endpoints: Vec<String> = self.gateways.iter().map(|g| g.mcp_url(server)).collect();
        McpSession::open_with(&HttpClient::default(), &endpoints, opening).await
    }

    /// The journal's lines but for the gateways' own requests and what came before the keys were known.
    fn requests_of(&self, user: &str) -> anyhow::Result<Vec<String>> {
        let text = std::fs::read_to_string(&self.journal)?;
        let of_user = text.lines().filter_map(|line| line.strip_suffix(user));
        Ok(of_user.map(|line| line.trim_end().to_owned()).collect())
    }
}

async fn whoami(session: &mut McpSession, tool: &str) -> anyhow::Result<Value> {
    let result = session.call(tool, json!({})).await?;
    Ok(result["structuredContent"].clone())
}

#[tokio::test]
async fn an_upstream_learns_from_every_request_whom_it_is_for() -> anyhow::Result<()> {
    let mut arrangement = Arrangement::start("on").await?;
    let gateway = arrangement.gateways.first().context("a gateway")?;
    let keys = gateway.url("/.well-known/jwks.json");
    let keys = HttpClient::default().get(&keys).await?;
    assert_eq!(keys.header("cache-control"), Some("max-age=300"));
    let mut ada = arrangement.open("tools", "ada@example.org", "red").await?;
    let first = whoami(&mut ada, "whoami").await?;
    assert_eq!(first["sub"], "ada@example.org");
    assert_eq!(
        (&first["aud"], &first["teams"]),
        (&json!("tools"), &json!(["red"]))
    );
    let other_gateway = whoami(&mut ada, "whoami").await?;
    assert_eq!(other_gateway, first, "every gateway says the same");
    let mut bob = arrangement.open("tools", "bob", "blue").await?;
    let of_bob = whoami(&mut bob, "whoami").await?;
    assert_eq!(
        (&of_bob["sub"], &of_bob["teams"]),
        (&json!("bob"), &json!(["blue"]))
    );
    assert_ne!(of_bob["sid"], first["sid"]);

    let mut grouped = arrangement.open("all", "ada@example.org", "red").await?;
    let in_group = whoami(&mut grouped, "tools__whoami").await?;
    assert_eq!(
        (&in_group["sub"], &in_group["teams"]),
        (&first["sub"], &first["teams"])
    );
    let mut coder = arrangement
        .open("sandbox", "ada@example.org", "red")
        .await?;
    let code = "import json, tools\nprint(json.dumps(tools.call('tools', 'whoami', {})))";
    let arguments = json!({"code": code, "language": "python"});
    let ran = whole_answer(&coder.call("shell_exec", arguments).await?)?;
    let by_code: Value = serde_json::from_str(ran["output"].as_str().context("an output")?)
        .with_context(|| ran.to_string())?;
    assert_eq!(
        (&by_code["sub"], &by_code["teams"]),
        (&first["sub"], &first["teams"])
    );

    for instance in &mut arrangement.instances.iter_mut().take(1) {
        instance.process().kill_now()?;
    }
    for session in [&mut ada, &mut bob] {
        let after = whoami(session, "whoami").await?;
        let before = if after["sub"] == "bob" {
            &of_bob
        } else {
            &first
        };
        assert_eq!(&after, before, "also after a rebind");
    }
    assert_eq!(ada.delete().await?.status, 204);
    wait::until_true("the deletion upstream", DELETED_WITHIN, async || {
        let requests = arrangement.requests_of("ada@example.org")?;
        Ok(requests.iter().any(|request| request == "DELETE 200"))
    })
    .await?;
    for user in ["ada@example.org", "bob"] {
        let requests = arrangement.requests_of(user)?;
        assert!(
            !requests.is_empty() && !requests.iter().any(|r| r.ends_with("401")),
            "{requests:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn callers_without_a_session_are_named_too() -> anyhow::Result<()> {
    let arrangement = Arrangement::start("off").await?;
    for (user, team) in [("ada", "red"), ("bob", "blue")] {
        let mut session = arrangement.open("tools", user, team).await?;
        for _ in 0..4 {
            let found = whoami(&mut session, "whoami").await?;
            assert_eq!(
                (&found["sub"], &found["teams"]),
                (&json!(user), &json!([team]))
            );
        }
        assert!(
            !arrangement
                .requests_of(user)?
                .iter()
                .any(|request| request.ends_with("401"))
        );
    }
    Ok(())
}
