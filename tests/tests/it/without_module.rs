//! A fleet over a Redis without the module: what clients see is the same. Affinity, turns, processes that gateways own, code
//! and groups; gateways that are killed; and docs/managed-redis.md as it is printed.

use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::code::{CodeVolume, Coder};
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::journal::{Event, Journal};
use mooring_tests::pages::Page;
use mooring_tests::redis::{Module, Redis};
use mooring_tests::session::McpSession;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// How long a call may take on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Three gateways, a server behind HTTP, one that a gateway starts for each session, and a group of both.
struct Scene {
    gateways: Vec<Gateway>,
    redis: Redis,
    fixture: Fixture,
    journal: Journal,
    client: HttpClient,
    _keys: FleetKeys,
}

impl Scene {
    async fn start() -> anyhow::Result<Self> {
        let redis = Redis::start_with(Module::Absent, &[]).await?;
        let (journal, keys) = (Journal::new()?, FleetKeys::new()?);
        let path = journal.path().display().to_string();
        let fixture = Fixture::start_with("one", &["--journal", &path]).await?;
        let (url, store) = (fixture.url(), redis.url());
        let command = stdio_command("child", Some(&journal), &[])?;
        let toml = format!(
            "[store]\nurl = {store:?}\nmodule = \"none\"\n\n[affinity]\nenabled = true\ninitializes_per_minute = 0\n\n\
             [worker]\nbeat_interval_ms = 100\nbeat_ttl_ms = 2000\n{}\n\
             [[servers]]\nid = \"tools\"\nkind = \"http\"\ninstances = [{url:?}]\n\n\
             [[servers]]\nid = \"child\"\nkind = \"stdio\"\ncommand = {command:?}\n\n\
             [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"tools\", \"child\"]\n",
            keys.toml()
        );
        Ok(Self {
            gateways: Gateway::fleet(3, &Settings::toml(toml)).await?,
            redis,
            fixture,
            journal,
            client: HttpClient::new(SOON),
            _keys: keys,
        })
    }

    /// A session whose requests go to all gateways in turn.
    async fn session(&self, server: &str) -> anyhow::Result<McpSession> {
        McpSession::open(&self.client, &self.endpoints(server)).await
    }

    fn endpoints(&self, server: &str) -> Vec<String> {
        let gateways = self.gateways.iter();
        gateways.map(|gateway| gateway.mcp_url(server)).collect()
    }
}

async fn count(session: &mut McpSession, tool: &str) -> anyhow::Result<Value> {
    Ok(session.call(tool, json!({})).await?["structuredContent"]["count"].clone())
}

#[tokio::test]
async fn a_session_goes_on_at_every_gateway_and_is_ended_once() -> anyhow::Result<()> {
    let scene = Scene::start().await?;
    let ready = scene
        .client
        .get(&scene.gateways[0].url("/readyz"))
        .await?
        .json()
        .await?;
    assert_eq!(ready["parts"]["store"]["way"], "script", "{ready}");
    for server in ["tools", "child"] {
        let mut session = scene.session(server).await?;
        for expected in 1..=9 {
            assert_eq!(session.increment().await?, expected, "{server}");
        }
        assert_eq!(session.delete().await?.status, 204);
    }
    let stats = scene.fixture.stats().await?;
    assert_eq!((stats.initializes, stats.deletes), (1, 1));
    Ok(())
}

#[tokio::test]
async fn every_member_of_a_group_keeps_its_state() -> anyhow::Result<()> {
    let scene = Scene::start().await?;
    let mut session = scene.session("all").await?;
    for round in 1..=3 {
        for tool in ["tools__increment", "child__increment"] {
            assert_eq!(count(&mut session, tool).await?, round, "{tool}");
        }
    }
    Ok(())
}

/// Calls of one session from all gateways at once, at the server behind HTTP and at the one that a gateway owns.
#[tokio::test]
async fn calls_of_one_session_run_one_at_a_time() -> anyhow::Result<()> {
    const CALLS: u64 = 12;
    let scene = Scene::start().await?;
    for server in ["tools", "child"] {
        let session = scene.session(server).await?;
        let mut calls = JoinSet::new();
        for number in 0..CALLS {
            let endpoints = scene.endpoints(server);
            let endpoint = endpoints[usize::try_from(number)? % endpoints.len()].clone();
            let mut session = session.fork(&scene.client, &[endpoint]);
            calls.spawn(async move {
                let arguments = json!({"token": number.to_string(), "ms": 5});
                session.call("slow", arguments).await
            });
        }
        while let Some(called) = calls.join_next().await {
            called??;
        }
    }
    assert_eq!(scene.journal.overlap_max()?, 1);
    let ended = scene.journal.of(Event::End)?.len();
    assert_eq!(u64::try_from(ended)?, 2 * CALLS);
    Ok(())
}

#[tokio::test]
async fn two_of_three_gateways_are_killed_and_sessions_go_on() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    let mut session = scene.session("tools").await?;
    for expected in 1..=3 {
        assert_eq!(session.increment().await?, expected);
    }
    for gateway in scene.gateways.iter_mut().take(2) {
        gateway.process().kill_now()?;
    }
    let left = scene.gateways[2].mcp_url("tools");
    let mut session = session.fork(&scene.client, std::slice::from_ref(&left));
    for expected in 4..=6 {
        assert_eq!(session.increment().await?, expected);
    }
    let mut new = McpSession::open(&scene.client, &[left]).await?;
    assert_eq!(new.increment().await?, 1);
    assert_eq!(scene.fixture.stats().await?.initializes, 2, "none was lost");
    drop(scene.redis);
    Ok(())
}

#[tokio::test]
async fn code_of_one_gateway_is_read_at_another() -> anyhow::Result<()> {
    let redis = Redis::start_with(Module::Absent, &[]).await?;
    let volume = CodeVolume::new()?;
    let settings = volume
        .settings(&redis.url())
        .env("MOORING_STORE_MODULE", "none");
    let gateways = Gateway::fleet(2, &settings).await?;
    let mut here = Coder::open(&[&gateways[0]], "ada@example.org").await?;
    here.write("/scratch/note", "from here\n").await?;
    let mut there = Coder::open(&[&gateways[1]], "ada@example.org").await?;
    assert_eq!(there.read("/scratch/note").await?, "from here\n");
    assert_eq!(volume.sessions()?.len(), 1);
    Ok(())
}

/// The user and the settings of docs/managed-redis.md, as they are printed.
#[tokio::test]
async fn a_gateway_is_set_up_by_the_page() -> anyhow::Result<()> {
    let mut page = Page::read("docs/managed-redis.md")?;
    let redis = Redis::start_with(Module::Absent, &[]).await?;
    let user = page.take("text", "ACL SETUSER")?;
    let words: Vec<&str> = user.split_whitespace().collect();
    redis.cli(&words)?;
    let url = format!("redis://gateway:a-long-secret@127.0.0.1:{}", redis.port());
    page.fill("rediss://gateway:a-long-secret@redis.example", url)?;
    let fixture = Fixture::start("one").await?;
    let store = page.take("toml", "[store]")?;
    let toml = format!(
        "{store}\n[affinity]\nenabled = true\n\n[[servers]]\nid = \"tools\"\ninstances = [{:?}]\n",
        fixture.url()
    );
    let gateways = Gateway::fleet(2, &Settings::toml(toml)).await?;
    let client = HttpClient::new(SOON);
    let endpoints: Vec<String> = gateways
        .iter()
        .map(|gateway| gateway.mcp_url("tools"))
        .collect();
    let mut session = McpSession::open(&client, &endpoints).await?;
    for expected in 1..=4 {
        assert_eq!(session.increment().await?, expected);
    }
    Ok(())
}
