//! Whoever loses state upstream is told in the result of a tool, whichever request comes between: clients send requests of
//! their own, whose replies no user sees.

use anyhow::Context;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::legacy::LegacySession;
use mooring_tests::process_tree::started_with;
use mooring_tests::redis::Redis;
use mooring_tests::session::{Exchange, McpSession};
use mooring_tests::wait;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::owned::rig::unique;
use crate::recovery::{OUTCOME_UNKNOWN, call, count_of, mark_of};

/// The requests between a loss and the next call.
const BETWEEN: [&str; 5] = [
    "tools/list",
    "ping",
    "resources/list",
    "prompts/list",
    "logging/setLevel",
];
/// The servers, and the members of the group.
const KINDS: [&str; 3] = ["http", "stdio", "sse"];

/// Three gateways in front of one server of each kind, and a group of them.
struct Scene {
    gateways: Vec<Gateway>,
    client: HttpClient,
    http: Fixture,
    sse: Fixture,
    /// The argument by which the child processes are found.
    child: String,
    _redis: Redis,
    _keys: FleetKeys,
}

impl Scene {
    async fn start() -> anyhow::Result<Self> {
        let (redis, keys) = (Redis::start().await?, FleetKeys::new()?);
        let (http, sse) = (Fixture::start("http").await?, Fixture::start("sse").await?);
        let child = unique("reported");
        let command = stdio_command(&child, None, &[])?;
        let toml = format!(
            "[store]\nurl = {:?}\n\n[affinity]\nenabled = true\n\n\
             [worker]\n{}beat_interval_ms = 100\nbeat_ttl_ms = 2000\n\n\
             [[servers]]\nid = \"http\"\nkind = \"http\"\ninstances = [{:?}]\n\n\
             [[servers]]\nid = \"stdio\"\nkind = \"stdio\"\ncommand = {command:?}\nstop_grace_ms = 500\n\n\
             [[servers]]\nid = \"sse\"\nkind = \"sse\"\ninstances = [{:?}]\n\n\
             [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = {KINDS:?}\n",
            redis.url(),
            keys.toml(),
            http.url(),
            sse.sse_url(),
        );
        let gateways = Gateway::fleet(3, &Settings::toml(toml)).await?;
        Ok(Self {
            gateways,
            client: HttpClient::default(),
            http,
            sse,
            child,
            _redis: redis,
            _keys: keys,
        })
    }

    async fn open(&self, server: &str) -> anyhow::Result<McpSession> {
        let endpoints: Vec<String> = (self.gateways.iter())
            .map(|gateway| gateway.mcp_url(server))
            .collect();
        McpSession::open(&self.client, &endpoints).await
    }

    /// Kills what keeps the state of every session at the server of this kind.
    async fn kill(&mut self, kind: &str) -> anyhow::Result<()> {
        match kind {
            "http" => self.http.restart().await,
            "sse" => self.sse.restart().await,
            _ => kill_children(&self.child).await,
        }
    }
}

pub(crate) async fn kill_children(child: &str) -> anyhow::Result<()> {
    for id in started_with(child)? {
        let id = Pid::from_raw(id.try_into()?).context("a process")?;
        kill_process(id, Signal::KILL)?;
    }
    wait::until_true("the processes to end", wait::STARTED_WITHIN, async || {
        Ok(started_with(child)?.is_empty())
    })
    .await
}

fn params_of(method: &str) -> Value {
    match method {
        "logging/setLevel" => json!({"level": "error"}),
        _ => json!({}),
    }
}

/// The first result of a tool is marked, and no later one.
#[track_caller]
fn assert_told_once(first: &Exchange, second: &Exchange, what: &str) {
    assert_eq!(count_of(first), Some(1), "{what}: {first:?}");
    assert!(mark_of(first).is_some(), "{what}: {first:?}");
    assert_eq!(count_of(second), Some(2), "{what}: {second:?}");
    assert_eq!(mark_of(second), None, "{what}: {second:?}");
}

#[tokio::test]
async fn a_loss_is_told_in_the_result_of_a_tool_whichever_request_comes_first() -> anyhow::Result<()>
{
    let mut scene = Scene::start().await?;
    for kind in KINDS {
        let places = [
            (kind, "increment".to_owned()),
            ("all", format!("{kind}__increment")),
        ];
        let mut sessions = Vec::new();
        for (server, tool) in &places {
            for method in BETWEEN {
                let mut session = scene.open(server).await?;
                let first = call(&mut session, tool).await?;
                assert_eq!(count_of(&first), Some(1), "{first:?}");
                sessions.push((session, tool, method));
            }
        }
        scene.kill(kind).await?;
        for (session, tool, method) in &mut sessions {
            // It may itself meet the loss and fail.
            session.request(method, params_of(method)).await?;
            let (first, second) = (call(session, tool).await?, call(session, tool).await?);
            assert_told_once(&first, &second, &format!("{tool} after {method}"));
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_client_of_http_with_sse_is_told_in_the_result_of_a_tool() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    for kind in KINDS {
        let url = scene.gateways[0].url(&format!("/servers/{kind}/sse"));
        let mut session = LegacySession::open_at(&scene.client, &url).await?;
        assert_eq!(session.increment().await?, 1, "{kind}");
        scene.kill(kind).await?;
        session.request("tools/list", json!({})).await?;
        let params = json!({"name": "increment", "arguments": {}});
        let first = session.request("tools/call", params.clone()).await?;
        let second = session.request("tools/call", params).await?;
        assert_told_once(&first, &second, kind);
    }
    Ok(())
}

/// A call that was under way when the state was lost: its error says so, and does not count as a result.
#[tokio::test]
async fn an_error_of_unknown_outcome_says_that_state_is_lost_and_the_next_result_is_marked()
-> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    for kind in KINDS {
        let mut session = scene.open(kind).await?;
        assert_eq!(session.increment().await?, 1, "{kind}");
        let request = session.request_body(
            "tools/call",
            json!({"name": "slow", "arguments": {"ms": 30_000}}),
        );
        let reply = session.post(&request).await?;
        scene.kill(kind).await?;
        let failed = mooring_tests::session::read_exchange(reply, &request).await?;
        let error = &failed.response["error"];
        assert_eq!(error["code"], OUTCOME_UNKNOWN, "{kind}: {failed:?}");
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains("may have run"), "{kind}: {message}");
        assert!(
            message.contains("what the server remembered of this session is gone"),
            "{kind}: {message}"
        );
        let first = call(&mut session, "increment").await?;
        let second = call(&mut session, "increment").await?;
        assert_told_once(&first, &second, kind);
    }
    Ok(())
}

/// Every gateway is stopped in turn, and between two calls the client lists tools, as SDKs do by themselves.
#[tokio::test]
async fn a_rolling_stop_tells_each_session_of_a_process_that_its_state_is_lost()
-> anyhow::Result<()> {
    const SESSIONS: usize = 4;
    let mut scene = Scene::start().await?;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let mut session = scene.open("stdio").await?;
        assert_eq!(session.increment().await?, 1);
        sessions.push((session, 1));
    }
    let mut losses = 0;
    for at in 0..scene.gateways.len() {
        let status = scene.gateways[at].process().terminate().await?;
        assert!(status.success(), "{status}");
        scene.gateways[at].restart().await?;
        for (session, count) in &mut sessions {
            session.request("tools/list", json!({})).await?;
            let next = call(session, "increment").await?;
            let is_lost = mark_of(&next).is_some();
            let expected = if is_lost { 1 } else { *count + 1 };
            assert_eq!(count_of(&next), Some(expected), "{next:?}");
            *count = expected;
            losses += usize::from(is_lost);
        }
    }
    assert!(
        losses >= SESSIONS,
        "each process had one owner, which was stopped: {losses}"
    );
    Ok(())
}
