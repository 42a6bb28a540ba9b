//! Streams of connections that live in one worker: what a client missed is replayed by any worker, only what belongs to
//! the stream, and where it is not kept any more the client is told.

use std::time::Duration;

use anyhow::{Context, ensure};
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::fixture::{self, Fixture};
use mooring_tests::session::{McpSession, Opening, read_exchange, result_of};
use mooring_tests::wait;
use serde_json::{Value, json};

use crate::everything_streams::text_of;
use crate::keyed::{Everything, KINDS, KeyedFleet, instances_table, stdio_table};
use crate::questions_fleet::answer_to;

/// How long an answer may take to reach the server, and what comes of it the client.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// The fixture behind three gateways, as a process for each session and over HTTP+SSE, with calls side by side.
struct Scene {
    fleet: KeyedFleet,
    client: HttpClient,
    _instance: Fixture,
}

impl Scene {
    async fn start(more_toml: &str) -> anyhow::Result<Self> {
        let instance = Fixture::start("a").await?;
        let stdio = stdio_table("stdio", &fixture::stdio_command("b", None, &[])?);
        let sse = instances_table("sse", "sse", &[instance.sse_url()]);
        let parallel = "concurrency = \"parallel\"\n";
        let tables = [more_toml, &stdio, parallel, &sse, parallel].concat();
        Ok(Self {
            fleet: KeyedFleet::start(3, &tables).await?,
            client: HttpClient::default(),
            _instance: instance,
        })
    }

    /// A session whose connection lives in the first gateway.
    async fn open(&self, server: &str) -> anyhow::Result<McpSession> {
        McpSession::open(&self.client, &self.fleet.endpoints(server, 0)[..1]).await
    }

    /// The same session through the gateway at `number` alone.
    fn at(&self, session: &McpSession, server: &str, number: usize) -> McpSession {
        session.fork(&self.client, &self.fleet.endpoints(server, number)[..1])
    }
}

/// A call of `progress` and what has been read of its stream.
struct Running {
    call: Value,
    stream: Reply,
    last_event_id: String,
}

impl Running {
    /// Begins a call and reads up to its step `read`.
    async fn begin(
        session: &mut McpSession,
        token: &str,
        (steps, step_ms): (u64, u64),
        read: u64,
    ) -> anyhow::Result<Self> {
        let params = json!({
            "name": "progress",
            "arguments": {"n": steps, "step_ms": step_ms},
            "_meta": {"progressToken": token},
        });
        let call = session.request_body("tools/call", params);
        let mut stream = session.post(&call).await?;
        let mut last_event_id = None;
        loop {
            let event = stream.next_event().await?.context("the stream goes on")?;
            last_event_id = event.id.or(last_event_id);
            if event.data.is_empty() {
                continue;
            }
            let message: Value = serde_json::from_str(&event.data)?;
            assert_eq!(message["params"]["progressToken"], token, "{message}");
            if step_of(&message) == Some(read) {
                break;
            }
        }
        let last_event_id = last_event_id.context("an event id")?;
        ensure!(last_event_id.starts_with("m:"), "{last_event_id}");
        Ok(Self {
            call,
            stream,
            last_event_id,
        })
    }

    /// Breaks the stream.
    fn broken(self) -> Broken {
        Broken {
            call: self.call,
            last_event_id: self.last_event_id,
        }
    }

    /// Reads the stream up to the response, and leaves it as one that might be resumed.
    async fn read_on(self) -> anyhow::Result<Broken> {
        result_of(read_exchange(self.stream, &self.call).await?.response)?;
        Ok(Broken {
            call: self.call,
            last_event_id: self.last_event_id,
        })
    }
}

/// A call whose stream is to be resumed after this event.
struct Broken {
    call: Value,
    last_event_id: String,
}

impl Broken {
    /// What the resumed stream holds: the token and number of each step, and the response.
    async fn resumed(&self, session: &mut McpSession) -> anyhow::Result<(Vec<Step>, Value)> {
        let stream = session.listen(Some(&self.last_event_id)).await?;
        ensure!(stream.status == 200, "resume: {}", stream.status);
        let exchange = read_exchange(stream, &self.call).await?;
        let steps = exchange.before.iter().map(|message| {
            let token = message["params"]["progressToken"].as_str();
            Some((token?.to_owned(), step_of(message)?))
        });
        Ok((steps.collect(), exchange.response))
    }
}

/// The token and the number of a step; none for any other message.
type Step = Option<(String, u64)>;

/// The number of a step, which the server writes as a fraction.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a small count"
)]
fn step_of(message: &Value) -> Option<u64> {
    Some(message["params"]["progress"].as_f64()? as u64)
}

fn steps(token: &str, numbers: std::ops::RangeInclusive<u64>) -> Vec<Step> {
    numbers
        .map(|number| Some((token.to_owned(), number)))
        .collect()
}

/// Two calls run side by side, and something is told that belongs to neither. Both streams break; each is resumed in the
/// middle of its call through another worker, and once more after its end through a third.
#[tokio::test]
async fn a_broken_stream_goes_on_through_any_worker_with_its_own_events_alone() -> anyhow::Result<()>
{
    let scene = Scene::start("").await?;
    for server in ["stdio", "sse"] {
        let session = scene.open(server).await?;
        for broken_at in 0..3 {
            let mut first = scene.at(&session, server, broken_at);
            let one = Running::begin(&mut first, "one", (6, 100), 2).await?;
            let two = Running::begin(&mut first, "two", (6, 100), 1).await?;
            let kind = json!({"kind": "tools"});
            first.call("notify_list_changed", kind).await?;
            for (broken, token, from) in [(one.broken(), "one", 3), (two.broken(), "two", 2)] {
                for number in [broken_at + 1, broken_at + 2] {
                    let mut elsewhere = scene.at(&session, server, number);
                    let (replayed, response) = broken.resumed(&mut elsewhere).await?;
                    assert_eq!(replayed, steps(token, from..=6), "{server}");
                    result_of(response)?;
                }
            }
        }
    }
    Ok(())
}

/// What is kept is bounded. A call whose answer is kept no longer ends with an error that says so, for each worker that is
/// asked; one whose answer is kept gives it, with the last of what came before and a warning that there was more.
#[tokio::test]
async fn who_missed_more_than_is_kept_is_told_so() -> anyhow::Result<()> {
    let scene = Scene::start("[upstream]\nevent_log_events_max = 10\n").await?;
    for server in ["stdio", "sse"] {
        let session = scene.open(server).await?;
        let mut first = scene.at(&session, server, 1);
        let missed = Running::begin(&mut first, "missed", (30, 1), 1).await?;
        let missed = missed.read_on().await?;
        let later = Running::begin(&mut first, "later", (20, 1), 1).await?;
        let later = later.read_on().await?;
        for number in 0..3 {
            let mut session = scene.at(&session, server, number);
            let (replayed, response) = missed.resumed(&mut session).await?;
            assert_eq!(replayed, Vec::new(), "{server}");
            let error = &response["error"];
            assert_eq!(error["code"], -32012, "{server}: {error}");
            let text = error.to_string();
            assert!(text.contains("not kept any more"), "{server}: {text}");

            let (replayed, response) = later.resumed(&mut session).await?;
            assert_eq!(replayed[0], None, "{server}: a warning comes first");
            assert_eq!(replayed[1..], steps("later", 12..=20), "{server}");
            result_of(response)?;
        }
    }
    Ok(())
}

/// The stream of what belongs to no call, too, goes on through another worker, and has no event of a call.
#[tokio::test]
async fn the_stream_of_no_call_goes_on_through_any_worker() -> anyhow::Result<()> {
    let scene = Scene::start("").await?;
    for server in ["stdio", "sse"] {
        let mut session = scene.open(server).await?;
        let mut listening = scene.at(&session, server, 1).listen(None).await?;
        let mut last_event_id = None;
        for kind in ["tools", "prompts", "resources"] {
            session
                .call("notify_list_changed", json!({"kind": kind}))
                .await?;
        }
        while last_event_id.is_none() {
            let event = listening.next_event().await?.context("an event")?;
            if event.data.contains("tools/list_changed") {
                last_event_id = event.id;
            }
        }
        for number in [2, 0, 1] {
            drop(listening);
            let mut elsewhere = scene.at(&session, server, number);
            listening = elsewhere.listen(last_event_id.as_deref()).await?;
            assert_eq!(listening.status, 200, "{server} after {last_event_id:?}");
            for kind in ["prompts", "resources"] {
                let message = listening.next_message().await?.context("a message")?;
                let expected = format!("notifications/{kind}/list_changed");
                assert_eq!(message["method"], expected, "{server}");
            }
        }
    }
    Ok(())
}

/// The worker through which the client was asked is killed. The answer goes through a second one, and what comes of it
/// is found through a third.
#[tokio::test]
async fn an_answer_counts_after_the_death_of_the_worker_that_asked() -> anyhow::Result<()> {
    let mut rig = Everything::start().await?;
    let client = HttpClient::default();
    for kind in KINDS {
        // Where the connection lives in one worker, that is the third.
        let opening = Opening {
            capabilities: json!({"elicitation": {}}),
            ..Opening::default()
        };
        let endpoints = rig.fleet.endpoints(kind, 0);
        let session = McpSession::open_with(&client, &endpoints[2..], opening).await?;
        let mut first = session.fork(&client, &endpoints[..1]);
        let params = json!({"name": "trigger-elicitation-request", "arguments": {}});
        let call = first.request_body("tools/call", params);
        let mut stream = first.post(&call).await?;
        let mut last_event_id = None;
        let question: Value = loop {
            let event = stream.next_event().await?.context("a question")?;
            last_event_id = event.id.or(last_event_id);
            if !event.data.is_empty() {
                break serde_json::from_str(&event.data)?;
            }
        };
        assert_eq!(question["method"], "elicitation/create", "{kind}");
        rig.fleet.gateways[0].restart().await?;
        drop(stream);

        let content = json!({"action": "accept", "content": {"name": "Ann"}});
        let mut second = session.fork(&client, &endpoints[1..2]);
        let answer = answer_to(&question["id"], &content);
        assert_eq!(second.post(&answer).await?.status, 202, "{kind}");
        let mut third = session.fork(&client, &endpoints[..1]);
        let result = resumed_result(&mut third, last_event_id.as_deref(), &call)
            .await
            .with_context(|| format!("resume at {kind}"))?;
        assert!(text_of(&result).contains("- Name: Ann"), "{kind}: {result}");
    }
    Ok(())
}

/// The result of `call`, on a stream that is resumed until it is there.
async fn resumed_result(
    session: &mut McpSession,
    after: Option<&str>,
    call: &Value,
) -> anyhow::Result<Value> {
    let response = wait::until(
        "the result on a resumed stream",
        ANSWERED_WITHIN,
        async || {
            let mut stream = session.listen(after).await?;
            ensure!(stream.status == 200, "resume: {}", stream.status);
            let next = tokio::time::timeout(Duration::from_secs(1), stream.next_message()).await;
            let Ok(message) = next else {
                return Ok(None);
            };
            Ok(message?.filter(|message| message["id"] == call["id"]))
        },
    )
    .await?;
    result_of(response)
}
