//! A gateway is killed while a reply of an HTTP server is open: its client resumes at another gateway, and is told what is
//! known, whether or not the server gives event ids.

use std::time::Duration;

use anyhow::Context;
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::fleet::Fleet;
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::script::run_client_for;
use mooring_tests::servers::Server;
use mooring_tests::session::{McpSession, Opening, read_exchange};
use mooring_tests::sse::Event;
use mooring_tests::wait;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::recovery::{OUTCOME_UNKNOWN, call, count_of, mark_of};
use crate::scripted::Scripted;

/// How long a client of Python may need to start, on a busy machine.
const BEGUN_WITHIN: Duration = Duration::from_secs(120);

/// How long the first event of a stream may take.
const EVENT_WITHIN: Duration = Duration::from_secs(20);

/// What `failover.py` and `failover.mjs` report.
#[derive(Debug, Deserialize)]
struct Report {
    counts: Vec<u64>,
    ended: String,
}

/// The client's gateway of three is killed during a call at fastmcp, whose events have no ids.
async fn check_sdk(script: &str, sdk: &[&str]) -> anyhow::Result<()> {
    let server = Server::python_counting("one").await?;
    let keys = FleetKeys::new()?;
    let more = format!("\n[worker]\n{}\n", keys.toml());
    let mut fleet = Fleet::start_with(3, &[server.url()], &more).await?;
    let directory = TempDir::new()?;
    let begun = directory.path().join("begun");
    let (endpoints, file) = (fleet.endpoints(), begun.display().to_string());
    let mut words = vec!["--begun", &file];
    for endpoint in &endpoints {
        words.extend(["--url", endpoint]);
    }
    words.extend(sdk);
    let killing = async {
        wait::until_true("the call to run", BEGUN_WITHIN, async || Ok(begun.exists())).await?;
        fleet.gateways[0].process().kill_now()
    };
    let (report, killed) = tokio::join!(run_client_for::<Report>(script, &words), killing);
    killed?;
    let report = report?;
    assert!(report.ended.contains("may have run"), "{report:?}");
    assert_eq!(report.counts, [1, 2], "{report:?}");
    Ok(())
}

#[tokio::test]
async fn the_python_sdk_is_told_that_its_call_may_have_run() -> anyhow::Result<()> {
    check_sdk("failover.py", &[]).await
}

#[tokio::test]
async fn the_typescript_sdk_v2_is_told_that_its_call_may_have_run() -> anyhow::Result<()> {
    check_sdk("failover.mjs", &["--sdk", "v2"]).await
}

#[tokio::test]
async fn the_typescript_sdk_v1_is_told_that_its_call_may_have_run() -> anyhow::Result<()> {
    check_sdk("failover.mjs", &["--sdk", "v1"]).await
}

/// Two gateways with fleet keys in front of a scripted server, which is also the member of a group.
struct Scene {
    fleet: Fleet,
    upstream: Scripted,
    client: HttpClient,
    _keys: FleetKeys,
}

const EVENTS_BEGIN: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

impl Scene {
    async fn start() -> anyhow::Result<Self> {
        let (upstream, keys) = (Scripted::start().await?, FleetKeys::new()?);
        let more = format!(
            "\n[[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"tools\"]\n\n[worker]\n{}\n",
            keys.toml()
        );
        Ok(Self {
            fleet: Fleet::start_with(2, &[upstream.url()], &more).await?,
            upstream,
            client: HttpClient::default(),
            _keys: keys,
        })
    }

    async fn open(&self, server: &str, revision: &str) -> anyhow::Result<McpSession> {
        let gateways = self.fleet.gateways.iter();
        let endpoints: Vec<String> = gateways.map(|gateway| gateway.mcp_url(server)).collect();
        let opening = Opening {
            protocol_version: revision.to_owned(),
            ..Opening::default()
        };
        McpSession::open_with(&self.client, &endpoints, opening).await
    }
}

fn slow_call(tool: &str) -> Value {
    json!({"name": tool, "arguments": {}})
}

/// The first event. Comments, which keep a silent stream open, are none.
async fn first_event(reply: &mut Reply) -> anyhow::Result<Event> {
    let event = timeout(EVENT_WITHIN, reply.next_event()).await;
    event
        .context("a priming event in time")??
        .context("an event")
}

/// The id of the priming event, with which the stream is resumed: by its own session alone.
#[tokio::test]
async fn a_silent_stream_is_resumed_by_its_own_session_alone() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    for (server, tool) in [("tools", "slow"), ("all", "tools__slow")] {
        let mut session = scene.open(server, "2025-11-25").await?;
        let mut other = scene.open(server, "2025-11-25").await?;
        let request = session.request_body("tools/call", slow_call(tool));
        let (posted, asked) = tokio::join!(session.post(&request), async {
            let mut asked = scene.upstream.next().await?;
            asked.raw(EVENTS_BEGIN).await?;
            anyhow::Ok(asked)
        });
        let (mut reply, _asked) = (posted?, asked?);
        let first = first_event(&mut reply).await?;
        assert_eq!(first.data, "", "{first:?}");
        let id = first.id.expect("an id to resume from");

        let resumed = read_exchange(session.listen(Some(&id)).await?, &request).await?;
        let error = &resumed.response["error"];
        assert_eq!(error["code"], OUTCOME_UNKNOWN, "{resumed:?}");

        let foreign = other.listen(Some(&id)).await?;
        assert_eq!(foreign.status, 400, "another session's");
        let forged = session.listen(Some(&format!("{id}0"))).await?;
        assert_eq!(forged.status, 400, "forged");
    }
    Ok(())
}

/// The client's last id is then the server's, behind the name of the request. A server that has nothing to replay leaves the
/// client with an error, not with a stream that it would resume for ever.
#[tokio::test]
async fn a_stream_with_ids_of_its_server_is_resumed_there_and_never_ends_without_an_answer()
-> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    let mut session = scene.open("tools", "2025-11-25").await?;
    let request = session.request_body("tools/call", slow_call("slow"));
    let (posted, asked) = tokio::join!(session.post(&request), async {
        let mut asked = scene.upstream.next().await?;
        asked
            .raw(format!("{EVENTS_BEGIN}id: its-own\ndata:\n\n"))
            .await?;
        anyhow::Ok(asked)
    });
    let (mut reply, asked) = (posted?, asked?);
    let first = reply.next_event().await?.expect("an event");
    let is_its_own = |event: &Event| event.id.as_ref().is_some_and(|id| id.ends_with(".its-own"));
    let last = match is_its_own(&first) {
        true => first,
        // The head came alone.
        false => reply.next_event().await?.expect("its event"),
    };
    assert!(is_its_own(&last), "{last:?}");
    let id = last.id.expect("its id");
    drop((reply, asked));

    let refused = ("405 Method Not Allowed", "text/plain");
    let silent = ("200 OK", "text/event-stream");
    for (status, kind) in [refused, silent] {
        let (resumed, ()) = tokio::join!(session.listen(Some(&id)), async {
            let asked = scene.upstream.next().await.expect("the GET");
            assert_eq!(asked.request.header("last-event-id"), Some("its-own"));
            asked.answer(status, kind, "").await.expect("to answer");
        });
        let resumed = read_exchange(resumed?, &request).await?;
        let code = &resumed.response["error"]["code"];
        assert_eq!(code, OUTCOME_UNKNOWN, "{status}: {resumed:?}");
    }
    Ok(())
}

/// Such a client takes an event without data for a broken message. The group's member speaks a later revision than its
/// client.
#[tokio::test]
async fn a_client_of_an_earlier_revision_gets_no_event_without_data() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    for revision in ["2025-03-26", "2025-06-18"] {
        let mut session = scene.open("all", revision).await?;
        assert_eq!(session.initialize_result["protocolVersion"], revision);
        let request = session.request_body("tools/call", slow_call("tools__slow"));
        let (posted, answered) = tokio::join!(session.post(&request), async {
            let mut asked = scene.upstream.next().await?;
            let id = asked.request.json()["id"].clone();
            let answer = json!({"jsonrpc": "2.0", "id": id, "result": {}});
            let events = format!("id: 1\ndata:\n\nid: 2\ndata: {answer}\n\n");
            asked.raw(format!("{EVENTS_BEGIN}{events}")).await
        });
        answered?;
        let first = posted?.next_event().await?.expect("the answer");
        assert!(first.data.contains("result"), "{revision}: {first:?}");
    }
    Ok(())
}

/// No state is lost with a gateway: the next call counts on, unmarked.
#[tokio::test]
async fn the_session_goes_on_after_its_gateway_was_killed() -> anyhow::Result<()> {
    let server = Server::python_counting("one").await?;
    let mut fleet = Fleet::start(3, &[server.url()]).await?;
    let mut session = McpSession::open(&HttpClient::default(), &fleet.endpoints()).await?;
    let directory = TempDir::new()?;
    let begun = directory.path().join("begun");
    assert_eq!(session.increment().await?, 1);
    let mut at_first = session.fork(&HttpClient::default(), &fleet.endpoints()[..1]);
    let arguments = json!({"begun": begun.display().to_string()});
    let request = at_first.request_body(
        "tools/call",
        json!({"name": "slow", "arguments": arguments}),
    );
    let mut reply = at_first.post(&request).await?;
    let first = first_event(&mut reply).await?;
    wait::until_true("the call to run", BEGUN_WITHIN, async || Ok(begun.exists())).await?;
    fleet.gateways[0].process().kill_now()?;
    let mut elsewhere = session.fork(&HttpClient::default(), &fleet.endpoints()[1..]);
    let resumed = elsewhere.listen(first.id.as_deref()).await?;
    let resumed = read_exchange(resumed, &request).await?;
    assert_eq!(resumed.response["error"]["code"], OUTCOME_UNKNOWN);
    let next = call(&mut elsewhere, "increment").await?;
    assert_eq!(
        (count_of(&next), mark_of(&next)),
        (Some(2), None),
        "{next:?}"
    );
    Ok(())
}
