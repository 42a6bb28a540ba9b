//! Whoever loses state upstream is told in the result of a tool, whichever request comes between: clients send requests of
//! their own, whose replies no user sees.

use std::process::Stdio;

use anyhow::Context;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::legacy::LegacySession;
use mooring_tests::paths;
use mooring_tests::process_tree::started_with;
use mooring_tests::redis::Redis;
use mooring_tests::session::{Exchange, McpSession};
use mooring_tests::wait;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

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
/// How the sentence begins that a model reads.
const LOST_STATE: &str = "The server lost its state before this call";
/// How long a Python client may take from one call to the next on a busy machine.
const CLIENT_WITHIN: std::time::Duration = std::time::Duration::from_secs(120);

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

/// The texts of a result.
fn texts_of(exchange: &Exchange) -> Vec<&str> {
    let content = exchange.response["result"]["content"].as_array();
    let texts = content.into_iter().flatten();
    texts
        .filter_map(|content| content["text"].as_str())
        .collect()
}

/// Behind what the tool said is the sentence for the model.
#[track_caller]
fn assert_sentence(texts: &[&str], said: &str) {
    let [first, sentence] = texts else {
        panic!("not two texts: {texts:?}");
    };
    assert_eq!(*first, said);
    assert!(sentence.starts_with(LOST_STATE), "{sentence}");
}

/// The first result of a tool is marked, and no later one. A model reads of it behind what the tool said.
#[track_caller]
fn assert_told_once(first: &Exchange, second: &Exchange, what: &str) {
    assert_eq!(count_of(first), Some(1), "{what}: {first:?}");
    assert!(mark_of(first).is_some(), "{what}: {first:?}");
    assert_sentence(&texts_of(first), "1");
    assert_eq!(texts_of(second), ["2"], "{what}: {second:?}");
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
        // The reply begins before the server has the call.
        let fixture = [&scene.http, &scene.sse]
            .into_iter()
            .find(|of| of.instance() == kind);
        if let Some(fixture) = fixture {
            wait::until_true("the call to run", CLIENT_WITHIN, async || {
                Ok(fixture.stats().await?.calls_of("slow") == 1)
            })
            .await?;
        }
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

/// What the official SDK gives its user, having held structured content against the output schema.
#[derive(Debug, Deserialize)]
struct SeenResult {
    texts: Vec<String>,
    structured: Value,
}

#[derive(Debug, Deserialize)]
struct SeenResults {
    results: Vec<SeenResult>,
}

#[tokio::test]
async fn the_model_behind_an_official_sdk_reads_that_state_is_lost() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    let url = scene.gateways[0].mcp_url("all");
    let mut client = Command::new(paths::tool("python")?)
        .arg(paths::test_file("clients/lost_state.py")?)
        .args(["--url", &url, "--tool", "stdio__increment"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut input = client.stdin.take().context("its input")?;
    let mut lines = BufReader::new(client.stdout.take().context("its output")?).lines();
    let mut next_line = async || tokio::time::timeout(CLIENT_WITHIN, lines.next_line()).await;
    assert_eq!(next_line().await??.as_deref(), Some("ready"));
    scene.kill("stdio").await?;
    input.write_all(b"\n").await?;
    let report = next_line().await??.context("its report")?;
    let SeenResults { results } = serde_json::from_str(&report)?;
    let texts: Vec<Vec<&str>> = (results.iter())
        .map(|result| result.texts.iter().map(String::as_str).collect())
        .collect();
    assert_eq!(texts[0], ["1"]);
    assert_sentence(&texts[1], "1");
    assert_eq!(texts[2], ["2"]);
    let counts = results.iter().map(|result| &result.structured["count"]);
    assert_eq!(counts.collect::<Vec<_>>(), [1, 1, 2]);
    Ok(())
}

#[tokio::test]
async fn a_server_may_leave_the_contents_of_its_results_alone() -> anyhow::Result<()> {
    let mut fixture = Fixture::start("quiet").await?;
    let settings = Settings::toml(format!(
        "[affinity]\nenabled = true\n\n[[servers]]\nid = \"quiet\"\nkind = \"http\"\ninstances = [{:?}]\n\
         lost_state_notice = \"meta\"\n",
        fixture.url()
    ));
    let gateway = Gateway::start("quiet", settings).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[gateway.mcp_url("quiet")]).await?;
    assert_eq!(session.increment().await?, 1);
    fixture.restart().await?;
    let told = call(&mut session, "increment").await?;
    assert!(mark_of(&told).is_some(), "{told:?}");
    assert_eq!(texts_of(&told), ["1"], "{told:?}");
    Ok(())
}
