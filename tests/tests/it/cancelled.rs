//! Calls that are cancelled while they run, or whose client goes away, at servers that never answer them: the next call of
//! the session does not wait for that, whichever gateway has the call and whichever hears of the cancellation.

use std::time::Duration;

use anyhow::Context as _;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::stdio_command;
use mooring_tests::fleet::Fleet;
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::script::run_client_for;
use mooring_tests::servers::Server;
use mooring_tests::session::{McpSession, read_exchange};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::owned::rig::unique;
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

/// Clients may give the requests of several members one id, and a member that never got the request could have another
/// client's under it.
#[tokio::test]
async fn a_cancellation_in_a_group_reaches_only_the_member_that_has_the_call() -> anyhow::Result<()>
{
    let (mut one, two) = (Scripted::start().await?, Scripted::start().await?);
    let keys = FleetKeys::new()?;
    let child = unique("cancelled");
    let command = stdio_command(&child, None, &[])?;
    let more = format!(
        "\n[[servers]]\nid = \"two\"\nkind = \"http\"\ninstances = [{:?}]\n\n\
         [[servers]]\nid = \"child\"\nkind = \"stdio\"\ncommand = {command:?}\n\n\
         [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"tools\", \"two\", \"child\"]\n\n[worker]\n{}\n",
        two.url(),
        keys.toml()
    );
    let fleet = Fleet::start_with(2, &[one.url()], &more).await?;
    let urls: Vec<String> = (fleet.gateways.iter())
        .map(|gateway| gateway.mcp_url("all"))
        .collect();
    let client = HttpClient::new(SOON);
    let session = McpSession::open(&client, &urls[..1]).await?;
    let cancel = |id: u64| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    let call_of = |id: u64, tool: &str, arguments: Value| {
        let params = json!({"name": tool, "arguments": arguments});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    };
    // At the gateway that has the call, and at the other one.
    for (canceler, id) in [(0, 11), (1, 12)] {
        let mut caller = session.fork(&client, &urls[..1]);
        let calling = tokio::spawn(async move {
            let call = call_of(id, "tools__any", json!({}));
            let reply = caller.post(&call).await?;
            read_exchange(reply, &call).await
        });
        let mut cancelled = one.next().await?;
        cancelled.begin_events().await?;
        let mut canceler = session.fork(&client, &urls[canceler..=canceler]);
        let cancelling = tokio::spawn(async move { canceler.post(&cancel(id)).await });
        let told = one.next().await?;
        assert_eq!(told.request.method(), "notifications/cancelled");
        assert_eq!(
            told.request.json()["params"]["requestId"].to_string(),
            cancelled.wire_id()
        );
        told.answer("202 Accepted", "text/plain", "").await?;
        assert_eq!(cancelling.await??.status, 202);
        let wire_id = cancelled.wire_id();
        cancelled
            .event(&format!(
                r#"{{"jsonrpc":"2.0","id":{wire_id},"result":{{}}}}"#
            ))
            .await?;
        cancelled.end().await?;
        calling.await??;
    }
    // A call of a connection with an owner, cancelled at the gateway that does not have it.
    let mut caller = session.fork(&client, &urls[..1]);
    let call = call_of(13, "child__slow", json!({"ms": 600_000, "token": child}));
    let mut reply = caller.post(&call).await?;
    let mut canceler = session.fork(&client, &urls[1..]);
    assert_eq!(canceler.post(&cancel(13)).await?.status, 202);
    tokio::time::timeout(SOON, async {
        while reply.next_event().await?.is_some() {}
        anyhow::Ok(())
    })
    .await
    .context("the stream of the cancelled call ends")??;
    // Nobody has this one.
    assert_eq!(canceler.post(&cancel(99)).await?.status, 202);
    let cancelled = |server: &Scripted| {
        let methods = server.seen_methods();
        (methods.iter())
            .filter(|method| *method == "notifications/cancelled")
            .count()
    };
    assert_eq!((cancelled(&one), cancelled(&two)), (2, 0));
    Ok(())
}
