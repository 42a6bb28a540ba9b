//! Calls that are cancelled while they run, or whose client goes away, at servers that never answer them: the next call of
//! the session does not wait for that, whichever gateway has the call and whichever hears of the cancellation.

use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::fleet::Fleet;
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::script::run_client_for;
use mooring_tests::servers::Server;
use mooring_tests::session::{McpSession, read_exchange};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::scripted::Scripted;

/// How long the next call may take: the grace, and a busy machine.
const SOON: Duration = Duration::from_secs(45);
/// Within this a call that may run would have reached its server.
const A_WHILE: Duration = Duration::from_millis(500);

/// What `cancel.mjs` reports.
#[derive(Debug, Deserialize)]
struct Report {
    ends: Vec<String>,
    answers: Vec<String>,
}

/// The TypeScript SDK against the reference server, over three gateways in turn.
async fn check_sdk(sdk: &str) -> anyhow::Result<()> {
    let (one, two) = tokio::try_join!(Server::everything("one"), Server::everything("two"))?;
    let keys = FleetKeys::new()?;
    let other = two.url();
    let more = format!(
        "\n[[servers]]\nid = \"other\"\nkind = \"http\"\ninstances = [{other:?}]\n\n\
         [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"tools\", \"other\"]\n\n[worker]\n{}\n",
        keys.toml()
    );
    let fleet = Fleet::start_with(3, &[one.url()], &more).await?;
    let ways: [(&str, &[&str]); 3] = [
        ("/servers/tools/mcp", &[]),
        ("/servers/all/mcp", &["--prefix", "tools__"]),
        ("/servers/tools/sse", &["--sse"]),
    ];
    for (path, more) in ways {
        let urls: Vec<String> = fleet
            .gateways
            .iter()
            .map(|gateway| gateway.url(path))
            .collect();
        let mut words = vec!["--sdk", sdk];
        for url in &urls {
            words.extend(["--url", url]);
        }
        words.extend(more);
        let report: Report = run_client_for("cancel.mjs", &words).await?;
        assert_eq!(
            report.answers,
            ["Echo: 1a", "Echo: 1b", "Echo: 2a", "Echo: 2b"],
            "{path}: {report:?}"
        );
        assert!(
            !report.ends.iter().any(|end| end == "answered"),
            "{report:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_call_that_the_typescript_sdk_v1_cancels_holds_up_no_other() -> anyhow::Result<()> {
    check_sdk("v1").await
}

#[tokio::test]
async fn a_call_that_the_typescript_sdk_v2_cancels_holds_up_no_other() -> anyhow::Result<()> {
    check_sdk("v2").await
}

/// Three gateways in front of a server that answers what the test wants, and a session at each of them.
struct Scene {
    upstream: Scripted,
    session: McpSession,
    client: HttpClient,
    fleet: Fleet,
}

impl Scene {
    async fn start() -> anyhow::Result<Self> {
        let upstream = Scripted::start().await?;
        let fleet = Fleet::start(3, &[upstream.url()]).await?;
        let client = HttpClient::new(SOON);
        let session = McpSession::open(&client, &fleet.endpoints()[..1]).await?;
        Ok(Self {
            upstream,
            session,
            client,
            fleet,
        })
    }

    fn at(&self, gateway: usize) -> McpSession {
        let endpoint = self.fleet.endpoints()[gateway].clone();
        self.session.fork(&self.client, &[endpoint])
    }
}

fn call(id: u64) -> Value {
    let params = json!({"name": "any", "arguments": {}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

#[tokio::test]
async fn the_late_answer_of_a_cancelled_call_reaches_its_client_and_disturbs_no_turn()
-> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    let (mut first, mut canceler, mut second, mut third) =
        (scene.at(0), scene.at(1), scene.at(2), scene.at(0));
    let reading = tokio::spawn(async move {
        let reply = first.post(&call(1)).await?;
        read_exchange(reply, &call(1)).await
    });
    let mut cancelled = scene.upstream.next().await?;
    cancelled.begin_events().await?;

    let cancelling = tokio::spawn(async move {
        let params = json!({"requestId": 1});
        let message =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        canceler.post(&message).await
    });
    let told = scene.upstream.next().await?;
    assert_eq!(
        told.request.json()["params"]["requestId"].to_string(),
        cancelled.wire_id()
    );
    told.answer("202 Accepted", "text/plain", "").await?;
    assert_eq!(cancelling.await??.status, 202);

    // The server still says nothing about the first, and the second runs.
    let running = tokio::spawn(async move {
        let reply = second.post(&call(2)).await?;
        read_exchange(reply, &call(2)).await
    });
    let next = scene.upstream.next().await?;
    assert_eq!(next.request.method(), "tools/call");

    let waiting = tokio::spawn(async move {
        let reply = third.post(&call(3)).await?;
        read_exchange(reply, &call(3)).await
    });
    let id = cancelled.wire_id();
    cancelled
        .event(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"late":true}}}}"#
        ))
        .await?;
    cancelled.end().await?;
    assert_eq!(reading.await??.response["result"]["late"], true);
    let early = tokio::time::timeout(A_WHILE, scene.upstream.next()).await;
    assert!(early.is_err(), "the third call ran beside the second");
    next.result(&json!({})).await?;
    running.await??;
    scene.upstream.next().await?.result(&json!({})).await?;
    waiting.await??;
    Ok(())
}

/// Nobody can cancel it any more, and nobody reads its answer.
#[tokio::test]
async fn a_call_whose_client_disconnected_holds_up_no_other_for_ever() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    let (mut first, mut second) = (scene.at(0), scene.at(1));
    let posting = tokio::spawn(async move { first.post(&call(1)).await });
    let _silent = scene.upstream.next().await?;
    posting.abort();
    let running = tokio::spawn(async move {
        let reply = second.post(&call(2)).await?;
        read_exchange(reply, &call(2)).await
    });
    let next = scene.upstream.next_within(SOON).await?;
    next.result(&json!({})).await?;
    running.await??;
    Ok(())
}
