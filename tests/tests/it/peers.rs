//! What gateways ask of each other, with somebody in between: nothing of it can be read, nothing but what a gateway of the
//! fleet sent is served, once, and nothing but a whole reply reaches the client as one.

use std::time::Duration;

use anyhow::Context;
use http::StatusCode;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture;
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::Gateway;
use mooring_tests::journal::{Event, Journal};
use mooring_tests::redis::Redis;
use mooring_tests::session::{McpSession, Opening, read_exchange, result_of};
use mooring_tests::wait;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::keyed::{keyed_settings, stdio_table};
use crate::peer_proxy::{Mischief, PeerProxy};
use crate::recovery::answered;

/// A forward as it would be, short of TLS.
const PLAIN: &str =
    "POST /peer/v2/serve HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
/// The code of the error that says that a call may have run.
const OUTCOME_UNKNOWN: i64 = -32012;
/// How long a call takes whose reply is spoiled while it runs.
const SPOILED_MS: u64 = 2_000;
/// A call begins, and a refusal is counted, before this. Nothing is asserted about speed.
const SEEN_WITHIN: Duration = Duration::from_secs(20);

/// A gateway that owns a session's process, one that is asked for the session, and one with another key; between the first
/// and the others, the proxy.
struct Scene {
    owner: Gateway,
    asked: Gateway,
    stranger: Gateway,
    proxy: PeerProxy,
    journal: Journal,
    session: McpSession,
    _redis: Redis,
    _keys: [FleetKeys; 2],
}

impl Scene {
    async fn start(opening: Opening) -> anyhow::Result<Self> {
        let (redis, journal) = (Redis::start().await?, Journal::new()?);
        let table = stdio_table("tools", &fixture::stdio_command("a", Some(&journal), &[])?);
        let keys = [FleetKeys::of('a')?, FleetKeys::of('b')?];
        let settings = keyed_settings(&redis, &keys[0], &table);
        let proxy = PeerProxy::start().await?;
        let behind_proxy = settings
            .clone()
            .env("MOORING_WORKER_PEER_LISTEN", &proxy.behind())
            .env("MOORING_WORKER_PEER_ADVERTISE", &proxy.advertised());
        let owner = Gateway::start("owner", behind_proxy).await?;
        let asked = Gateway::start("asked", settings).await?;
        let strange = keyed_settings(&redis, &keys[1], &table);
        let stranger = Gateway::start("stranger", strange).await?;
        let client = HttpClient::default();
        let begun = McpSession::open_with(&client, &[owner.mcp_url("tools")], opening).await?;
        let session = begun.fork(&client, &[asked.mcp_url("tools")]);
        Ok(Self {
            owner,
            asked,
            stranger,
            proxy,
            journal,
            session,
            _redis: redis,
            _keys: keys,
        })
    }

    /// A call of `slow` through the gateway that has to ask: its response, or the error where it was not delivered.
    async fn slow(&mut self, token: &str, ms: u64) -> anyhow::Result<Value> {
        let params = json!({"name": "slow", "arguments": {"ms": ms, "token": token}});
        let call = self.session.request_body("tools/call", params);
        let answered = answered(self.session.post(&call).await?, &call).await?;
        Ok(match answered.exchange {
            Some(exchange) => exchange.response,
            None => answered.error,
        })
    }

    /// The same, while this is done to the piece of the reply that passes next after the call has begun.
    async fn slow_spoiled(&mut self, token: &str, mischief: Mischief) -> anyhow::Result<Value> {
        let params = json!({"name": "slow", "arguments": {"ms": SPOILED_MS, "token": token}});
        let call = self.session.request_body("tools/call", params);
        let (session, proxy, journal) = (&mut self.session, &self.proxy, &self.journal);
        let calling = async {
            let reply = session.post(&call).await?;
            Ok(read_exchange(reply, &call).await?.response)
        };
        let spoiling = async {
            until_begun(journal, token).await?;
            proxy.set(mischief);
            anyhow::Ok(())
        };
        let (response, ()) = tokio::try_join!(calling, spoiling)?;
        Ok(response)
    }

    /// How often the owner refused for this reason.
    async fn refused(&self, reason: &str) -> anyhow::Result<f64> {
        let label = format!("reason=\"{reason}\"");
        self.owner
            .metric("mooring_peer_refused_total", &[&label])
            .await
    }

    /// How many calls with this token began.
    fn begun(&self, token: &str) -> anyhow::Result<usize> {
        begun(&self.journal, token)
    }

    /// The session goes on as if nothing had been.
    async fn goes_on(&mut self, token: &str) -> anyhow::Result<()> {
        let result = result_of(self.slow(token, 0).await?)?;
        assert_eq!(result["structuredContent"]["token"], token);
        assert_eq!(result["_meta"], Value::Null, "no state was lost");
        assert_eq!(self.begun(token)?, 1);
        Ok(())
    }

    /// Sends these bytes to the owner's listener, past the proxy; what it says until it closes. It may close at any
    /// moment: what it has not read by then resets the connection, which can overtake its answer.
    async fn raw(&self, bytes: &[u8]) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(self.proxy.behind()).await?;
        let mut reply = Vec::new();
        let exchange = async {
            stream.write_all(bytes).await?;
            // Not closed on this side before that: a request whose sender has gone need not be answered.
            stream.read_to_end(&mut reply).await
        };
        match tokio::time::timeout(crate::rig::RAW_WITHIN, exchange).await? {
            Err(error) if !is_closed(&error) => Err(error.into()),
            _ => Ok(String::from_utf8_lossy(&reply).into_owned()),
        }
    }
}

/// How many calls with this token began.
fn begun(journal: &Journal, token: &str) -> anyhow::Result<usize> {
    let tokens = journal.tokens_of(Event::Begin)?;
    Ok(tokens.iter().filter(|begun| *begun == token).count())
}

async fn until_begun(journal: &Journal, token: &str) -> anyhow::Result<()> {
    wait::until_true("the call's beginning", SEEN_WITHIN, async || {
        Ok(begun(journal, token)? > 0)
    })
    .await
}

/// Whether the other side has closed, whichever call it is that says so.
fn is_closed(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

/// The revision before streams began with an event by which they can be resumed.
fn earlier_revision() -> Opening {
    Opening {
        protocol_version: "2025-06-18".to_owned(),
        ..Opening::default()
    }
}

/// Whether the bytes hold this text.
fn shows(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

#[tokio::test]
async fn nothing_that_passes_can_be_read_and_a_record_of_it_does_nothing() -> anyhow::Result<()> {
    let mut scene = Scene::start(Opening::default()).await?;
    scene.goes_on("the-marker").await?;
    let recordings = scene.proxy.recordings();
    assert!(!recordings.is_empty());
    let session_id = scene.session.id().context("a session id")?.to_owned();
    for recording in &recordings {
        for bytes in [&recording.asked, &recording.answered] {
            assert!(bytes.len() > 200, "{}", bytes.len());
            for secret in ["the-marker", "slow", "mcpgw", "HTTP/1.1", &session_id] {
                assert!(!shows(bytes, secret), "{secret}");
            }
        }
    }
    let raw = [
        ("plain HTTP", PLAIN.as_bytes()),
        ("garbage", b"\x16\x03\x01\x00\x05hello"),
    ];
    let recorded = recordings.iter().map(|one| ("a record", &one.asked[..]));
    for (what, bytes) in raw.into_iter().chain(recorded) {
        let before = scene.refused("malformed").await?;
        let reply = scene.raw(bytes).await?;
        assert!(!reply.contains("HTTP"), "{what}: {reply}");
        wait::until_true(what, SEEN_WITHIN, async || {
            Ok(scene.refused("malformed").await? > before)
        })
        .await?;
    }
    assert_eq!(scene.begun("the-marker")?, 1);
    scene.goes_on("afterwards").await
}

#[tokio::test]
async fn a_request_that_was_changed_on_its_way_runs_nothing_and_the_client_is_told()
-> anyhow::Result<()> {
    let mut scene = Scene::start(earlier_revision()).await?;
    for round in 0..3 {
        scene.goes_on(&format!("before-{round}")).await?;
        let token = format!("flipped-{round}");
        scene.proxy.set(Mischief::FlipRequest);
        let response = scene.slow(&token, 0).await?;
        // Over a new connection it is the handshake that fails, after which it is certain that nothing ran.
        assert!(response["error"]["code"].is_i64(), "{response}");
        assert_eq!(scene.begun(&token)?, 0);
    }
    scene.goes_on("afterwards").await
}

#[tokio::test]
async fn a_reply_that_was_changed_or_cut_is_no_answer_and_nothing_runs_twice() -> anyhow::Result<()>
{
    let mut scene = Scene::start(earlier_revision()).await?;
    for mischief in [Mischief::FlipReply, Mischief::CutReply] {
        let token = format!("{mischief:?}");
        let response = scene.slow_spoiled(&token, mischief).await?;
        assert_eq!(
            response["error"]["code"], OUTCOME_UNKNOWN,
            "{token}: {response}"
        );
        scene.goes_on(&format!("after {token}")).await?;
        assert_eq!(scene.begun(&token)?, 1, "{token}");
    }
    Ok(())
}

/// Where the stream began with an event id, the client can come back for the answer, and gets it.
#[tokio::test]
async fn a_reply_that_was_cut_is_resumed() -> anyhow::Result<()> {
    let mut scene = Scene::start(Opening::default()).await?;
    let params = json!({"name": "slow", "arguments": {"ms": SPOILED_MS, "token": "cut"}});
    let call = scene.session.request_body("tools/call", params);
    let mut stream = scene.session.post(&call).await?;
    let first = stream.next_event().await?.context("a first event")?;
    let last_event_id = first.id.context("an event id")?;
    until_begun(&scene.journal, "cut").await?;
    scene.proxy.set(Mischief::CutReply);
    let rest = stream.next_message().await;
    assert!(!matches!(rest, Ok(Some(_))), "{rest:?}");
    let resumed = scene.session.listen(Some(&last_event_id)).await?;
    let result = result_of(read_exchange(resumed, &call).await?.response)?;
    assert_eq!(result["structuredContent"]["token"], "cut");
    assert_eq!(scene.begun("cut")?, 1);
    Ok(())
}

#[tokio::test]
async fn a_gateway_with_another_key_sends_nothing_and_both_logs_say_why() -> anyhow::Result<()> {
    let mut scene = Scene::start(earlier_revision()).await?;
    let client = HttpClient::default();
    let mut elsewhere = (scene.session).fork(&client, &[scene.stranger.mcp_url("tools")]);
    let params = json!({"name": "slow", "arguments": {"ms": 0, "token": "the-marker"}});
    let call = elsewhere.request_body("tools/call", params);
    let reply = elsewhere.post(&call).await?;
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(scene.begun("the-marker")?, 0);
    for recording in scene.proxy.recordings() {
        assert!(!shows(&recording.asked, "the-marker"));
    }
    let why = "has no certificate of this fleet";
    wait::until_logged(why, 1, || scene.stranger.process().log_text()).await?;
    let attempts = scene
        .stranger
        .metric(
            "mooring_forward_duration_seconds_count",
            &["outcome=\"unverified\""],
        )
        .await?;
    assert_eq!(attempts, 1.0, "it is not tried again");
    wait::until_true("the owner's refusal", SEEN_WITHIN, async || {
        Ok(scene.refused("not_authentic").await? == 1.0)
    })
    .await?;

    // An id that the fleet sealed is none to the stranger, and is good at its own workers all the same.
    let ask = json!({"name": "ask", "arguments": {"secret": "s"}});
    let call = scene.session.request_body("tools/call", ask);
    let mut stream = scene.session.post(&call).await?;
    let question = stream.next_message().await?.context("a question")?;
    let content = json!({"action": "accept", "content": {"answer": "a"}});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": content});
    let refused = crate::rig::refusal(elsewhere.post(&answer).await?).await?;
    assert_eq!(refused, (StatusCode::BAD_REQUEST, -32003));
    assert_eq!(scene.session.post(&answer).await?.status, 202);
    let result = result_of(read_exchange(stream, &call).await?.response)?;
    assert_eq!(result["structuredContent"]["answer"], "a");
    scene.goes_on("afterwards").await?;
    drop(scene.asked);
    Ok(())
}
