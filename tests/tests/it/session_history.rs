//! The history of a session: what has happened to it, read back with `mooring sessions show --history`, from live gateways
//! over Redis and over a file, while instances and gateways are killed. And `mooring sessions why`: what a call waits for.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::code::{CodeVolume, Coder};
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::journal::{Event, Journal};
use mooring_tests::paths;
use mooring_tests::redis::Redis;
use mooring_tests::session::{McpSession, read_exchange, result_of};
use mooring_tests::wait;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::reaping::calls;

const SOON: Duration = Duration::from_secs(60);

/// Gateways over one store, and a server with two instances.
struct Scene {
    gateways: Vec<Gateway>,
    redis: Option<Redis>,
    instances: [Fixture; 2],
    journal: Journal,
    client: HttpClient,
    /// The embedded file, and the settings for the commands.
    directory: TempDir,
    _keys: FleetKeys,
}

impl Scene {
    async fn over_redis(gateways: usize, more: &str) -> anyhow::Result<Self> {
        let redis = Redis::start().await?;
        let store = format!("[store]\nurl = {:?}\n", redis.url());
        Self::start(gateways, Some(redis), &store, more).await
    }

    async fn over_a_file(more: &str) -> anyhow::Result<Self> {
        Self::start(1, None, "", more).await
    }

    async fn start(
        gateways: usize,
        redis: Option<Redis>,
        store: &str,
        more: &str,
    ) -> anyhow::Result<Self> {
        let (journal, keys, directory) = (Journal::new()?, FleetKeys::new()?, TempDir::new()?);
        let path = journal.path().display().to_string();
        let one = Fixture::start_with("one", &["--journal", &path]).await?;
        let two = Fixture::start_with("two", &["--journal", &path]).await?;
        let child = stdio_command("child", None, &[])?;
        let toml = format!(
            "{store}[affinity]\nenabled = true\n{more}\
             [worker]\nbeat_interval_ms = 100\nbeat_ttl_ms = 2000\nstop_patience_ms = 300\n{}\n\
             [[servers]]\nid = \"tools\"\nkind = \"http\"\ninstances = [{:?}, {:?}]\n\
             [[servers]]\nid = \"child\"\nkind = \"stdio\"\ncommand = {child:?}\n",
            keys.toml(),
            one.url(),
            two.url(),
        );
        std::fs::write(directory.path().join("mooring.toml"), &toml)?;
        let settings = Settings::toml(toml).state_home(directory.path());
        Ok(Self {
            gateways: Gateway::fleet(gateways, &settings).await?,
            redis,
            instances: [one, two],
            journal,
            client: HttpClient::new(SOON),
            directory,
            _keys: keys,
        })
    }

    fn endpoint(&self, server: &str, gateway: usize) -> String {
        self.gateways[gateway].mcp_url(server)
    }

    async fn session(&self, server: &str, gateway: usize) -> anyhow::Result<McpSession> {
        McpSession::open(&self.client, &[self.endpoint(server, gateway)]).await
    }

    fn at(&self, session: &McpSession, gateway: usize) -> McpSession {
        session.fork(&self.client, &[self.endpoint("tools", gateway)])
    }

    /// Makes a call, which may have to wait.
    fn begin(
        &self,
        session: &McpSession,
        gateway: usize,
        (id, tool, arguments): (u64, &str, Value),
    ) -> JoinHandle<anyhow::Result<(Reply, Value)>> {
        let mut session = self.at(session, gateway);
        let params = json!({"name": tool, "arguments": arguments});
        let request = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        tokio::spawn(async move { Ok((session.post(&request).await?, request)) })
    }

    /// Has a call run until [`Scene::release`].
    async fn hold(
        &self,
        session: &McpSession,
        gateway: usize,
    ) -> anyhow::Result<JoinHandle<anyhow::Result<(Reply, Value)>>> {
        let begun = self.journal.of(Event::Begin)?.len();
        let release = self.journal.path().with_extension("release");
        let arguments = json!({"token": "held", "until": release});
        let held = self.begin(session, gateway, (900, "slow", arguments));
        self.journal.wait_for(Event::Begin, begun + 1, SOON).await?;
        Ok(held)
    }

    fn release(&self) -> anyhow::Result<()> {
        std::fs::write(self.journal.path().with_extension("release"), "").context("release it")
    }

    /// What `mooring sessions` prints with these words.
    async fn sessions(&self, words: &[&str]) -> anyhow::Result<String> {
        let config = self.directory.path().join("mooring.toml");
        let mut command = Command::new(paths::binary("mooring")?);
        command
            .arg("sessions")
            .args(words)
            .args(["--config".as_ref(), config.as_os_str()])
            .env_clear()
            .env("HOME", self.directory.path())
            .env("XDG_STATE_HOME", self.directory.path());
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{words:?}: {errors}");
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The digest of the only session.
    async fn digest(&self) -> anyhow::Result<String> {
        let listed: Value = serde_json::from_str(&self.sessions(&["list", "--json"]).await?)?;
        let digest = listed["sessions"][0]["session"].as_str();
        digest.map(str::to_owned).context("a session")
    }

    async fn history(&self, digest: &str) -> anyhow::Result<Vec<Value>> {
        let shown = self
            .sessions(&["show", digest, "--history", "--json"])
            .await?;
        let shown: Value = serde_json::from_str(&shown)?;
        Ok(shown["history"].as_array().context("a history")?.clone())
    }

    /// The history, once it has so many entries of this kind.
    async fn until_noted(
        &self,
        digest: &str,
        kind: &str,
        count: usize,
    ) -> anyhow::Result<Vec<Value>> {
        wait::until(&format!("{count} entries {kind}"), SOON, async || {
            let entries = self.history(digest).await?;
            let is_there = entries.iter().filter(|entry| entry["kind"] == kind).count() >= count;
            Ok(is_there.then_some(entries))
        })
        .await
    }
}

fn kinds(entries: &[Value]) -> Vec<&str> {
    entries
        .iter()
        .filter_map(|entry| entry["kind"].as_str())
        .collect()
}

/// Everything that a session lives through is read back in its order, and nothing that was said.
#[tokio::test]
async fn a_life_over_redis_is_read_back_in_its_order() -> anyhow::Result<()> {
    let mut scene = Scene::over_redis(2, "").await?;
    let mut session = scene.session("tools", 0).await?;
    let digest = scene.digest().await?;
    session.increment().await?;

    // A wait for a turn, at the other gateway.
    let held = scene.hold(&session, 0).await?;
    let waiting = scene.begin(&session, 1, (7, "slow", json!({"ms": 1, "token": "waits"})));
    wait::until_true("the call to have waited", SOON, async || {
        let why: Value = serde_json::from_str(&scene.sessions(&["why", &digest, "--json"]).await?)?;
        let waited_ms = why["turns"][0]["next"][0]["waited_ms"].as_u64();
        // Long enough to be noted.
        Ok(waited_ms >= Some(1_200))
    })
    .await?;
    let why = scene.sessions(&["why", &digest]).await?;
    assert!(why.contains("tools: a call at gateway-1:"), "{why}");
    assert!(
        why.contains("1 wait for the turn: 1. at gateway-2:"),
        "{why}"
    );
    assert!(!why.contains(session.id().unwrap_or_default()), "{why}");
    scene.release()?;
    for call in [held, waiting] {
        let (reply, request) = call.await??;
        result_of(read_exchange(reply, &request).await?.response)?;
    }
    scene.until_noted(&digest, "waited", 1).await?;

    // A question, and its answer at the other gateway.
    let secret = json!({"message": "which?", "secret": "xyzzy"});
    let (mut asking, request) = scene.begin(&session, 0, (8, "ask", secret)).await??;
    let question = asking.next_message().await?.context("the question")?;
    let answer = json!({"jsonrpc": "2.0", "id": question["id"],
        "result": {"action": "accept", "content": {"answer": "plugh"}}});
    assert_eq!(scene.at(&session, 1).post(&answer).await?.status, 202);
    result_of(read_exchange(asking, &request).await?.response)?;
    scene.until_noted(&digest, "answered", 1).await?;

    // The instance dies.
    let home = session.call("whoami", json!({})).await?;
    let home = home["structuredContent"]["instance"]
        .as_str()
        .context("an instance")?
        .to_owned();
    let at_home = scene
        .instances
        .iter_mut()
        .find(|instance| instance.instance() == home);
    at_home.context("the instance")?.process().kill_now()?;
    session.increment().await?;
    scene.until_noted(&digest, "rebound", 1).await?;

    assert_eq!(session.delete().await?.status, 204);
    let entries = scene.until_noted(&digest, "ended", 1).await?;
    let expected = [
        "created", "bound", "waited", "asked", "answered", "rebound", "ended",
    ];
    assert_eq!(kinds(&entries), expected, "{entries:#?}");
    let facts = |kind: &str| {
        let entry = entries.iter().find(|entry| entry["kind"] == kind);
        entry
            .map(|entry| entry["facts"].clone())
            .unwrap_or_default()
    };
    assert_eq!(facts("created")["transport"], "HTTP");
    assert!(
        facts("created")["client"]
            .as_str()
            .is_some_and(|client| !client.is_empty())
    );
    let waited = facts("waited");
    assert!(waited["wait_ms"].as_u64() >= Some(1_000), "{waited}");
    assert!(
        waited["holder"]
            .as_str()
            .is_some_and(|holder| holder.starts_with("gateway-1:"))
    );
    assert_eq!(facts("asked")["method"], "elicitation/create");
    assert_eq!(facts("rebound")["state_lost"], true);
    assert_eq!(facts("ended")["cause"], "client");
    let text = scene.sessions(&["show", &digest, "--history"]).await?;
    assert!(text.contains("ago  ended by its client"), "{text}");
    for secret in ["xyzzy", "plugh", "which?", session.id().unwrap_or_default()] {
        assert!(
            !text.contains(secret) && !format!("{entries:?}").contains(secret),
            "{secret}"
        );
    }
    Ok(())
}

/// What a killed gateway had noted more than a moment before is there, and the others go on.
#[tokio::test]
async fn a_killed_gateway_loses_at_most_what_it_has_just_noted() -> anyhow::Result<()> {
    let mut scene = Scene::over_redis(2, "").await?;
    let mut session = scene.session("child", 0).await?;
    let digest = scene.digest().await?;
    session.increment().await?;
    let before = scene.until_noted(&digest, "bound", 1).await?;
    assert_eq!(kinds(&before), ["created", "owner", "bound"]);
    scene.gateways[0].process().kill_now()?;
    let mut at_other = session.fork(&scene.client, &[scene.endpoint("child", 1)]);
    wait::until_true("the other gateway to take over", SOON, async || {
        Ok(at_other.increment().await.is_ok())
    })
    .await?;
    let after = scene.until_noted(&digest, "rebound", 1).await?;
    assert_eq!(after[..before.len()], before[..], "what was there stays");
    let rebound = after.iter().find(|entry| entry["kind"] == "rebound");
    let rebound = rebound.context("the entry")?;
    let sentence = rebound["sentence"].as_str().context("a sentence")?;
    assert!(
        sentence.contains("the worker that held the connection is dead"),
        "{sentence}"
    );
    let gateway = rebound["gateway"].as_str().context("a gateway")?;
    assert!(gateway.starts_with("gateway-2:"), "{gateway}");
    Ok(())
}

/// The same over a file, where the history outlives a killed gateway and the session.
#[tokio::test]
async fn a_life_over_a_file_is_read_back_after_a_kill() -> anyhow::Result<()> {
    let mut scene = Scene::over_a_file("").await?;
    let mut session = scene.session("tools", 0).await?;
    let digest = scene.digest().await?;
    session.increment().await?;
    scene.until_noted(&digest, "bound", 1).await?;
    scene.gateways[0].process().kill_now()?;
    assert_eq!(kinds(&scene.history(&digest).await?), ["created", "bound"]);
    scene.gateways[0].restart().await?;
    session.increment().await?;
    scene.sessions(&["end", &digest]).await?;
    let entries = scene.until_noted(&digest, "ended", 1).await?;
    assert_eq!(kinds(&entries)[..3], ["created", "bound", "ended"]);
    assert_eq!(entries[2]["facts"]["cause"], "operator");
    assert_eq!(entries[2]["gateway"], "operator");
    Ok(())
}

/// The key holds no more than it may, and a call in steady state writes nothing to it.
#[tokio::test]
async fn a_call_in_steady_state_writes_nothing() -> anyhow::Result<()> {
    let scene = Scene::over_redis(1, "history_entries_max = 2\n").await?;
    let redis = scene.redis.as_ref().context("redis")?;
    let mut session = scene.session("tools", 0).await?;
    let digest = scene.digest().await?;
    session.increment().await?;
    scene.until_noted(&digest, "bound", 1).await?;
    let key = format!("mcpgw:session_history:{digest}");
    assert_eq!(redis.cli(&["LLEN", &key])?, "2");

    let written = || -> anyhow::Result<[u64; 3]> {
        let [add, trim, expire] = ["rpush", "ltrim", "pexpire"].map(|name| calls(redis, name));
        Ok([add?, trim?, expire?])
    };
    let before = written()?;
    for _ in 0..50 {
        session.increment().await?;
    }
    // What they had noted would be written by the time that this is.
    assert_eq!(session.delete().await?.status, 204);
    let entries = scene.until_noted(&digest, "ended", 1).await?;
    assert_eq!(kinds(&entries), ["bound", "ended"], "the cap holds");
    assert_eq!(redis.cli(&["LLEN", &key])?, "2");
    let after = written()?;
    assert_eq!(
        after,
        before.map(|count| count + 1),
        "one write for the end"
    );
    let counted = scene.gateways[0]
        .metric("mooring_history_entries_total", &["outcome=\"written\""])
        .await?;
    assert!((counted - 3.0).abs() < f64::EPSILON, "{counted}");
    Ok(())
}

#[tokio::test]
async fn no_key_is_made_where_histories_are_off() -> anyhow::Result<()> {
    let scene = Scene::over_redis(1, "history_entries_max = 0\n").await?;
    let mut session = scene.session("tools", 0).await?;
    let digest = scene.digest().await?;
    session.increment().await?;
    assert_eq!(session.delete().await?.status, 204);
    let redis = scene.redis.as_ref().context("redis")?;
    // The tombstone is dropped after everything else.
    wait::until_true("the session to be forgotten", SOON, async || {
        let shown = scene.sessions(&["show", &digest]).await;
        Ok(shown.is_err())
    })
    .await?;
    assert_eq!(redis.cli(&["KEYS", "mcpgw:session_history:*"])?, "");
    Ok(())
}

/// Each run of code and how it ended, and a run that is repeated at once is counted and not written again.
#[tokio::test]
async fn runs_of_code_are_in_the_history_of_their_session() -> anyhow::Result<()> {
    let (redis, volume) = (Redis::start().await?, CodeVolume::new()?);
    let gateway = Gateway::start("code", volume.settings(&redis.url())).await?;
    let mut coder = Coder::open(&[&gateway], "ada@example.org").await?;
    let secret = "xyzzy";
    let code = format!("print('{secret}')");
    for _ in 0..3 {
        coder.done("shell_exec", json!({ "code": code })).await?;
    }
    let (_, is_error) = coder
        .call("shell_exec", json!({"code": "raise SystemExit(3)"}))
        .await?;
    assert!(is_error);
    let entries = wait::until("both kinds of run", SOON, async || {
        let key = redis.cli(&["KEYS", "mcpgw:session_history:*"])?;
        let entries = redis.cli(&["LRANGE", key.trim(), "0", "-1"])?;
        let has_both = entries.contains("\"completed\"") && entries.contains("\"failed\"");
        Ok(has_both.then_some(entries))
    })
    .await?;
    let runs: Vec<Value> = entries
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    // The first of the equal ones at once, and the others with their number later.
    assert!(
        runs.len() <= 3 && runs.iter().all(|run| run["kind"] == "ran"),
        "{entries}"
    );
    assert!(
        runs.iter()
            .all(|run| run["run"].as_str().map(str::len) == Some(26)),
        "{entries}"
    );
    assert!(
        !entries.contains(secret) && !entries.contains("ada@"),
        "{entries}"
    );
    Ok(())
}
