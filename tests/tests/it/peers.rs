//! What workers ask of each other, with somebody in between: nothing but what a worker of the fleet signed, for this worker
//! and once, is served, and nothing but its whole answer reaches the client as an answer.

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
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::keyed::{keyed_settings, stdio_table};
use crate::peer_proxy::{Mischief, PeerProxy};

/// The code of the error that says that a call may have run.
const OUTCOME_UNKNOWN: i64 = -32012;
/// A gateway looks for 15 s whether the owner can be asked after all.
const REFUSED_WITHIN: Duration = Duration::from_secs(60);

/// A worker that owns a session's process, one that is asked for the session, and one with another key; between the first
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

    /// A call of `slow` through the worker that has to ask: its response, or why there is none.
    async fn slow(&mut self, token: &str) -> anyhow::Result<Value> {
        let params = json!({"name": "slow", "arguments": {"ms": 300, "token": token}});
        let exchange = self.session.request("tools/call", params).await?;
        Ok(exchange.response)
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
        let tokens = self.journal.tokens_of(Event::Begin)?;
        Ok(tokens.iter().filter(|begun| *begun == token).count())
    }

    /// The session goes on as if nothing had been.
    async fn goes_on(&mut self, token: &str) -> anyhow::Result<()> {
        self.proxy.set(Mischief::None);
        let result = result_of(self.slow(token).await?)?;
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

fn with_length(head: &str, body: &[u8]) -> Vec<u8> {
    let head: Vec<&str> = head
        .lines()
        .filter(|line| !line.starts_with("content-length") && !line.starts_with("connection"))
        .collect();
    let head = head.join("\r\n");
    let mut request = format!(
        "{head}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}

#[tokio::test]
async fn what_no_worker_signed_for_now_is_refused_and_runs_nothing() -> anyhow::Result<()> {
    let mut scene = Scene::start(Opening::default()).await?;
    scene.goes_on("recorded").await?;
    let recorded = scene.proxy.requests().pop().context("a request")?;
    let text = String::from_utf8_lossy(&recorded).into_owned();
    let (head, _) = text.split_once("\r\n\r\n").context("a head")?;
    let body = recorded[head.len() + 4..].to_vec();

    let unsigned = |text: &str| {
        let mut body = u32::try_from(text.len())
            .unwrap_or_default()
            .to_be_bytes()
            .to_vec();
        body.extend_from_slice(text.as_bytes());
        body
    };
    let too_long = [u32::MAX.to_be_bytes().as_slice(), b"x"].concat();
    let cases: [(&str, &str, Vec<u8>); 8] = [
        ("the same again", "replayed", body.clone()),
        ("one byte less", "replayed", body[..body.len() - 1].to_vec()),
        ("half an envelope", "truncated", body[..100].to_vec()),
        ("nothing", "truncated", Vec::new()),
        ("another version", "version", unsigned("words")),
        ("no tag", "malformed", unsigned("\u{1}words")),
        (
            "a tag of nobody",
            "not_authentic",
            unsigned(&format!("\u{1}{}", "x".repeat(300))),
        ),
        ("too long", "malformed", too_long),
    ];
    for (what, reason, body) in cases {
        let before = scene.refused(reason).await?;
        let reply = scene.raw(&with_length(head, &body)).await?;
        let is_told_nothing = reply.starts_with("HTTP/1.1 401 ") && reply.ends_with("\r\n\r\n");
        assert!(reply.is_empty() || is_told_nothing, "{what}: {reply}");
        assert_eq!(scene.refused(reason).await? - before, 1.0, "{what}");
    }
    for junk in [
        "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        "POST /servers/tools/mcp HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}",
    ] {
        let reply = scene.raw(junk.as_bytes()).await?;
        assert!(
            reply.is_empty() || reply.starts_with("HTTP/1.1 404 "),
            "{reply}"
        );
    }
    let reply = scene.raw(b"\x16\x03\x01\x02\x00 no HTTP\r\n\r\n").await?;
    assert!(
        reply.is_empty() || reply.starts_with("HTTP/1.1 400 "),
        "{reply}"
    );
    assert_eq!(scene.begun("recorded")?, 1);
    scene.goes_on("afterwards").await
}

#[tokio::test]
async fn a_request_that_was_changed_on_its_way_runs_nothing_and_the_client_is_told()
-> anyhow::Result<()> {
    let mut scene = Scene::start(earlier_revision()).await?;
    // In the message; in the envelope's tag or fields, which are before it.
    for (before_end, reason) in [(5, "other_body"), (300, "not_authentic")] {
        let token = format!("flipped-{before_end}");
        scene.proxy.set(Mischief::FlipRequest(before_end));
        let response = scene.slow(&token).await?;
        assert_eq!(response["error"]["code"], OUTCOME_UNKNOWN, "{response}");
        // The call, and perhaps the question whether it may be repeated.
        assert!(scene.refused(reason).await? >= 1.0, "{reason}");
        assert_eq!(scene.begun(&token)?, 0);
        scene.goes_on(&format!("after-{before_end}")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_reply_that_was_changed_or_cut_is_no_answer_and_nothing_runs_twice() -> anyhow::Result<()>
{
    let mut scene = Scene::start(earlier_revision()).await?;
    for mischief in [
        Mischief::FlipReply(1),
        Mischief::FlipReply(2),
        Mischief::CutReply(1),
    ] {
        let token = format!("{mischief:?}");
        scene.proxy.set(mischief);
        let response = scene.slow(&token).await?;
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
    scene.proxy.set(Mischief::CutReply(2));
    let params = json!({"name": "slow", "arguments": {"ms": 500, "token": "cut"}});
    let call = scene.session.request_body("tools/call", params);
    let mut stream = scene.session.post(&call).await?;
    let first = stream.next_event().await?.context("a first event")?;
    let last_event_id = first.id.context("an event id")?;
    drop(stream);
    scene.proxy.set(Mischief::None);
    let resumed = scene.session.listen(Some(&last_event_id)).await?;
    let result = result_of(read_exchange(resumed, &call).await?.response)?;
    assert_eq!(result["structuredContent"]["token"], "cut");
    assert_eq!(scene.begun("cut")?, 1);
    Ok(())
}

#[tokio::test]
async fn a_worker_with_another_key_sends_nothing_and_its_log_says_why() -> anyhow::Result<()> {
    let mut scene = Scene::start(earlier_revision()).await?;
    let patient = HttpClient::new(REFUSED_WITHIN);
    let mut elsewhere = (scene.session).fork(&patient, &[scene.stranger.mcp_url("tools")]);
    let params = json!({"name": "slow", "arguments": {"ms": 0, "token": "strange"}});
    let call = elsewhere.request_body("tools/call", params);
    let reply = elsewhere.post(&call).await?;
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(scene.begun("strange")?, 0);
    assert_eq!(scene.proxy.requests().len(), 0, "nothing was sent");
    let log = scene.stranger.process().log_text();
    let why = "no key of this gateway made the signature of the worker's address";
    assert!(log.contains(why), "{log}");
    let told = scene
        .stranger
        .metric(
            "mooring_forward_duration_seconds_count",
            &["outcome=\"unverified\""],
        )
        .await?;
    assert!(told >= 1.0, "{told}");

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
