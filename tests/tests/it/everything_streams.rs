//! What server-everything sends besides answers, over each of its transports and through whichever gateway: its requests
//! to the client, its progress, its notifications, and what it replays after a Last-Event-ID.

use std::time::Duration;

use anyhow::{Context, ensure};
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::session::{McpSession, Opening, read_exchange, result_of};
use mooring_tests::wait;
use serde_json::{Value, json};

use crate::everything::Rig;
use crate::keyed::{Everything, KINDS};

/// How long a poll of a stream waits for the next event before it tries again.
const POLL_STEP: Duration = Duration::from_millis(500);

/// How long the server may take to send what is waited for.
const SENT_WITHIN: Duration = Duration::from_secs(30);

/// Reads a stream until a message of this method comes; what came, the message last.
pub(crate) async fn read_up_to(stream: &mut Reply, method: &str) -> anyhow::Result<Vec<Value>> {
    let mut messages = Vec::new();
    loop {
        let message = stream.next_message().await?;
        let message = message.with_context(|| format!("ended before {method}: {messages:?}"))?;
        let found = message["method"] == method;
        messages.push(message);
        if found {
            return Ok(messages);
        }
    }
}

/// The texts of a tool's result, one behind the other.
pub(crate) fn text_of(result: &Value) -> String {
    let texts = result["content"].as_array().into_iter().flatten();
    texts
        .filter_map(|content| content["text"].as_str())
        .collect()
}

/// Nine sessions call at once a tool that asks its client. Each is asked on the stream of its call, through one
/// gateway, and answers through another; then each call has to end with its own session's answer.
async fn check_asking(
    tool: &str,
    method: &str,
    answer: impl Fn(usize) -> Value,
    expected: impl Fn(usize) -> String,
) -> anyhow::Result<()> {
    let rig = Everything::start().await?;
    let client = HttpClient::default();
    let mut asked = Vec::new();
    for number in 0..9 {
        // Nine sessions: each kind of server, begun at each gateway.
        let endpoints = rig.fleet.endpoints(KINDS[number % 3], number / 3);
        let opening = Opening {
            capabilities: json!({"elicitation": {}, "sampling": {}}),
            ..Opening::default()
        };
        let mut session = McpSession::open_with(&client, &endpoints, opening).await?;
        let params = json!({"name": tool, "arguments": {"prompt": format!("prompt {number}")}});
        let call = session.request_body("tools/call", params);
        let mut stream = session.post(&call).await?;
        let question = read_up_to(&mut stream, method)
            .await?
            .pop()
            .context("a question")?;
        asked.push((number, session, call, stream, question));
    }
    // In the other order, so that no answer finds its call by luck.
    for (number, session, _, _, question) in asked.iter_mut().rev() {
        let message = json!({"jsonrpc": "2.0", "id": question["id"], "result": answer(*number)});
        assert_eq!(session.post(&message).await?.status, 202);
    }
    for (number, _, call, stream, question) in asked {
        let exchange = read_exchange(stream, &call).await?;
        let text = text_of(&result_of(exchange.response)?);
        assert!(text.contains(&expected(number)), "{question}\n{text}");
    }
    Ok(())
}

#[tokio::test]
async fn elicitation_is_asked_by_one_gateway_and_answered_through_another() -> anyhow::Result<()> {
    check_asking(
        "trigger-elicitation-request",
        "elicitation/create",
        |number| json!({"action": "accept", "content": {"name": format!("Person {number}")}}),
        |number| format!("- Name: Person {number}"),
    )
    .await
}

#[tokio::test]
async fn sampling_is_asked_by_one_gateway_and_answered_through_another() -> anyhow::Result<()> {
    check_asking(
        "trigger-sampling-request",
        "sampling/createMessage",
        |number| {
            json!({
                "role": "assistant",
                "model": format!("model-{number}"),
                "content": {"type": "text", "text": "said"},
            })
        },
        |number| format!("\"model\": \"model-{number}\""),
    )
    .await
}

/// The params of a call that reports its progress.
fn long_call(seconds: f64, steps: u64, token: &Value) -> Value {
    json!({
        "name": "trigger-long-running-operation",
        "arguments": {"duration": seconds, "steps": steps},
        "_meta": {"progressToken": token},
    })
}

#[tokio::test]
async fn progress_comes_on_the_stream_of_its_call_with_the_token_of_the_client()
-> anyhow::Result<()> {
    let rig = Everything::start().await?;
    let client = HttpClient::default();
    for kind in KINDS {
        let mut session =
            McpSession::open_with(&client, &rig.fleet.endpoints(kind, 0), plain()).await?;
        for token in [
            json!("a token"),
            json!(7),
            json!("again, a string"),
            json!(0),
        ] {
            check_progress(&mut session, &token).await?;
        }
    }
    Ok(())
}

/// A client that can be asked nothing.
fn plain() -> Opening {
    Opening {
        capabilities: json!({}),
        ..Opening::default()
    }
}

async fn check_progress(session: &mut McpSession, token: &Value) -> anyhow::Result<()> {
    let exchange = session
        .request("tools/call", long_call(0.2, 4, token))
        .await?;
    let expected: Vec<Value> = (1..=4)
        .map(|progress| json!({"progress": progress, "total": 4, "progressToken": token}))
        .collect();
    let params: Vec<Value> = exchange
        .before
        .iter()
        .filter(|message| message["method"] == "notifications/progress")
        .map(|message| message["params"].clone())
        .collect();
    assert_eq!(params, expected);
    let text = text_of(&result_of(exchange.response)?);
    assert!(
        text.starts_with("Long running operation completed"),
        "{text}"
    );
    Ok(())
}

/// What a resumed stream replays up to the answer of `call`; none while the answer is not among it.
async fn replayed(
    session: &mut McpSession,
    after: &str,
    call: &Value,
) -> anyhow::Result<Option<Vec<Value>>> {
    let mut stream = session.listen(Some(after)).await?;
    ensure!(stream.status == 200, "resuming: {}", stream.status);
    let mut messages = Vec::new();
    // The server keeps a resumed stream open and silent after what it had; the poll's limit ends the wait.
    while let Ok(Some(message)) = stream.next_message().await {
        let answers = message["id"] == call["id"] && message.get("result").is_some();
        messages.push(message);
        if answers {
            return Ok(Some(messages));
        }
    }
    Ok(None)
}

#[tokio::test]
async fn a_stream_that_broke_is_replayed_through_another_gateway() -> anyhow::Result<()> {
    let mut rig = Rig::start().await?;
    let (client, endpoints) = (HttpClient::default(), rig.fleet.endpoints());
    let mut session = McpSession::open(&client, &endpoints).await?;
    let mut first = session.fork(&client, &endpoints[..1]);
    let call = first.request_body("tools/call", long_call(0.6, 3, &json!("token")));
    let mut stream = first.post(&call).await?;
    let mut last_event_id = None;
    // Two events at least: the priming one and the first step's.
    let progressed = loop {
        let event = stream.next_event().await?.context("the stream goes on")?;
        last_event_id = event.id.or(last_event_id);
        if event.data.contains("notifications/progress") {
            break event.data;
        }
    };
    assert!(progressed.contains("\"progress\":1"), "{progressed}");
    let last_event_id = last_event_id.context("an event id")?;
    rig.fleet.gateways[0].process().kill_now()?;
    drop(stream);

    // The other gateways never saw the call.
    let impatient = HttpClient::new(POLL_STEP);
    let mut second = session.fork(&impatient, &endpoints[1..]);
    let messages = wait::until("the answer to be replayed", SENT_WITHIN, async || {
        replayed(&mut second, &last_event_id, &call).await
    })
    .await?;
    let progress: Vec<Option<u64>> = messages
        .iter()
        .filter(|message| message["params"]["progressToken"] == "token")
        .map(|message| message["params"]["progress"].as_u64())
        .collect();
    assert_eq!(
        progress,
        [Some(2), Some(3)],
        "what came after the event, once each: {messages:?}"
    );
    let answer = text_of(&messages.last().context("an answer")?["result"]);
    assert!(
        answer.starts_with("Long running operation completed"),
        "{answer}"
    );
    session = session.fork(&client, &endpoints[1..]);
    assert_eq!(session.delete().await?.status, 204);
    Ok(())
}

/// The server asks for the roots on the session's GET stream and keeps them with the session.
#[tokio::test]
async fn roots_told_through_one_gateway_are_known_through_the_others() -> anyhow::Result<()> {
    let rig = Everything::start().await?;
    let client = HttpClient::default();
    let mut sessions = Vec::new();
    for number in 0..9 {
        let opening = Opening {
            capabilities: json!({"roots": {"listChanged": true}}),
            ..Opening::default()
        };
        let endpoints = rig.fleet.endpoints(KINDS[number % 3], number / 3);
        let session = McpSession::open_with(&client, &endpoints, opening).await?;
        let mut listening = session.fork(&client, &endpoints);
        let stream = listening.listen(None).await?;
        assert_eq!(stream.status, 200);
        sessions.push((number, session, stream));
    }
    for (number, session, stream) in &mut sessions {
        let question = read_up_to(stream, "roots/list")
            .await?
            .pop()
            .context("a question")?;
        let root =
            json!({"uri": format!("file:///root-{number}"), "name": format!("Root {number}")});
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [root]}});
        assert_eq!(session.post(&answer).await?.status, 202);
        let told = read_up_to(stream, "notifications/message")
            .await?
            .pop()
            .context("a message")?;
        assert_eq!(
            told["params"]["data"],
            "Roots updated: 1 root(s) received from client"
        );
    }
    for (number, session, _) in &mut sessions {
        for _ in 0..3 {
            let text = text_of(&session.call("get-roots-list", json!({})).await?);
            assert!(
                text.contains(&format!("Root {number}\n   URI: file:///root-{number}")),
                "{text}"
            );
            assert!(text.contains("(1 total)"), "{text}");
        }
    }
    Ok(())
}

/// Subscribed through one gateway, begun through the next, heard through a third; and nobody hears of what
/// another session subscribed to.
#[tokio::test]
async fn updates_reach_the_stream_of_the_session_that_subscribed() -> anyhow::Result<()> {
    let rig = Everything::start().await?;
    let client = HttpClient::default();
    let mut sessions = Vec::new();
    for number in 0..9 {
        let (kind, first) = (KINDS[number % 3], number / 3);
        let endpoints = rig.fleet.endpoints(kind, first);
        let mut session = McpSession::open_with(&client, &endpoints, plain()).await?;
        let stream = session
            .fork(&client, &rig.fleet.endpoints(kind, first + 1))
            .listen(None)
            .await?;
        let uri = format!("demo://resource/dynamic/text/{}", number + 1);
        let exchange = session
            .request("resources/subscribe", json!({"uri": uri}))
            .await?;
        result_of(exchange.response)?;
        sessions.push((session, stream, uri, exchange.before));
    }
    for (session, stream, uri, on_call) in &mut sessions {
        session.call("toggle-subscriber-updates", json!({})).await?;
        let heard = read_up_to(stream, "notifications/resources/updated").await?;
        assert_eq!(heard.last().context("an update")?["params"]["uri"], *uri);
        // What is logged while a call runs comes on the call's stream where the server has one connection for all.
        let told: Vec<&str> = heard
            .iter()
            .chain(on_call.iter())
            .filter_map(|message| message["params"]["data"].as_str())
            .filter(|data| data.starts_with("Received Subscribe Resource request"))
            .collect();
        assert_eq!(
            told.len(),
            1,
            "of its own subscription, and no other's: {heard:?}"
        );
        assert!(told[0].contains(&format!("for URI: {uri} ")), "{heard:?}");
    }
    Ok(())
}
