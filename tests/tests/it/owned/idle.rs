//! Processes of servers whose clients neither use them nor end their sessions: they are stopped early, the one that was idle
//! for longest first where there is no place for another, and always visibly.

use std::collections::BTreeSet;
use std::time::Duration;

use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::fixture::stdio_command;
use mooring_tests::gate::Gate;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::process_tree::started_with;
use mooring_tests::session::{McpSession, read_exchange};
use mooring_tests::wait;
use serde_json::json;

use super::rig::{GONE_WITHIN, assert_begun_anew, goes_on, unique};
use crate::keyed::stdio_table;
use crate::recovery::{call, count_of, mark_of};

/// A moment in which a stream that has ended would say so.
const MOMENT: Duration = Duration::from_millis(300);

/// One gateway in front of the fixture on stdio, over an embedded store.
struct Scene {
    gateway: Gateway,
    client: HttpClient,
    instance: String,
}

impl Scene {
    /// `lines` are further lines of the server.
    async fn start(lines: &str) -> anyhow::Result<Self> {
        let instance = unique("idle");
        let table = stdio_table("tools", &stdio_command(&instance, None, &[])?);
        let toml = format!("{table}stop_grace_ms = 500\n{lines}\n");
        Ok(Self {
            gateway: Gateway::start("idle", Settings::toml(toml)).await?,
            client: HttpClient::default(),
            instance,
        })
    }

    /// A client that listens as long as it is there, and never says that it goes.
    async fn open(&self) -> anyhow::Result<(McpSession, Reply)> {
        let endpoint = [self.gateway.mcp_url("tools")];
        let mut session = McpSession::open(&self.client, &endpoint).await?;
        let stream = session.listen(None).await?;
        assert_eq!(stream.status, 200);
        Ok((session, stream))
    }

    fn children(&self) -> anyhow::Result<BTreeSet<u32>> {
        started_with(&self.instance)
    }
}

#[tokio::test]
async fn clients_that_never_delete_their_sessions_leave_no_process_behind() -> anyhow::Result<()> {
    let scene = Scene::start("idle_timeout_seconds = 1").await?;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let (mut session, stream) = scene.open().await?;
        assert_eq!(count_of(&call(&mut session, "increment").await?), Some(1));
        clients.push((session, stream));
    }
    wait::until_true("the end of every process", GONE_WITHIN, async || {
        Ok(scene.children()?.is_empty())
    })
    .await?;
    // Nobody is cut off, and what only asks whether the session lives starts nothing.
    for (session, stream) in &mut clients {
        let silence = tokio::time::timeout(MOMENT, stream.next_message()).await;
        assert!(silence.is_err(), "the stream is open: {silence:?}");
        let pong = session.request("ping", json!({})).await?;
        assert_eq!(pong.response["result"], json!({}), "{pong:?}");
        assert_eq!(mark_of(&pong), None);
    }
    assert_eq!(scene.children()?, BTreeSet::new());
    for (session, _) in &mut clients {
        assert_begun_anew(&call(session, "increment").await?);
    }
    Ok(())
}

#[tokio::test]
async fn a_process_with_a_call_in_flight_outlives_its_idle_time() -> anyhow::Result<()> {
    let scene = Scene::start("idle_timeout_seconds = 1").await?;
    let (mut session, _stream) = scene.open().await?;
    let gate = Gate::new()?;
    let params = json!({"name": "slow", "arguments": {"until": gate.path(), "token": "long"}});
    let call = session.request_body("tools/call", params);
    let reply = session.post(&call).await?;
    let calling = scene.children()?;
    // Processes that are used after the call began, and idle: each lasts for an idle time.
    for _ in 0..2 {
        let (mut idle, _idle_stream) = scene.open().await?;
        goes_on(&mut idle, 1, 1).await?;
        wait::until_true("the end of the idle process", GONE_WITHIN, async || {
            Ok(scene.children()?.is_subset(&calling))
        })
        .await?;
    }
    gate.open()?;
    let exchange = read_exchange(reply, &call).await?;
    assert_eq!(
        exchange.response["result"]["structuredContent"]["token"],
        "long"
    );
    assert_eq!(mark_of(&exchange), None, "{exchange:?}");
    assert_eq!(scene.children()?, calling, "no other process");
    Ok(())
}

#[tokio::test]
async fn three_clients_share_two_processes_and_the_one_idle_for_longest_yields()
-> anyhow::Result<()> {
    let scene = Scene::start("children_max = 2").await?;
    let (mut first, _first_stream) = scene.open().await?;
    goes_on(&mut first, 1, 1).await?;
    let (mut second, _second_stream) = scene.open().await?;
    goes_on(&mut second, 1, 1).await?;
    // There is no place for a third, so the first yields, and the second keeps its own.
    let (mut third, _third_stream) = scene.open().await?;
    goes_on(&mut third, 1, 1).await?;
    goes_on(&mut second, 2, 1).await?;
    assert_eq!(scene.children()?.len(), 2);
    // The third was used before the second.
    assert_begun_anew(&call(&mut first, "increment").await?);
    goes_on(&mut second, 3, 1).await?;
    assert_begun_anew(&call(&mut third, "increment").await?);
    // Whoever calls in turn is answered, however often.
    for _ in 0..2 {
        for session in [&mut first, &mut second, &mut third] {
            let exchange = call(session, "increment").await?;
            assert!(count_of(&exchange).is_some(), "{exchange:?}");
            assert!(scene.children()?.len() <= 2);
        }
    }
    Ok(())
}
