//! Upstreams that break every rule: each fault has its documented answer, nothing hangs, and the session goes on.

use mooring_tests::client::Reply;
use mooring_tests::sse::Event;
use mooring_tests::wait;
use serde_json::{Value, json};

use crate::rig::{increment, kept, post_text};
use crate::scene::ScriptedScene;
use crate::scripted::{Exchange, Scripted};

/// The least that `upstream.event_bytes_max` takes.
const EVENT_BYTES_MAX: usize = 1024;

/// The error that says that a call may have run.
const OUTCOME_UNKNOWN: i64 = -32012;

/// A gateway that takes small events only, in front of a scripted upstream.
async fn start() -> anyhow::Result<ScriptedScene> {
    let upstream = Scripted::start().await?;
    let limit = EVENT_BYTES_MAX.to_string();
    let settings = kept(&[upstream.url()]).env("MOORING_UPSTREAM_EVENT_BYTES_MAX", &limit);
    ScriptedScene::start_with(upstream, settings).await
}

/// The next event of the server: the gateway begins silent streams with one of its own.
async fn next_event(reply: &mut Reply) -> anyhow::Result<Option<Event>> {
    let is_own = |event: &Event| {
        let id = event.id.as_deref();
        // The server's ids stand behind the name of the request.
        let is_own = |id: &str| id.starts_with("mooring:") && id.matches('.').count() == 1;
        id.is_some_and(is_own) && event.data.is_empty()
    };
    loop {
        match reply.next_event().await? {
            Some(event) if is_own(&event) => {}
            event => return Ok(event),
        }
    }
}

/// Whether a chunked reply has its end.
fn is_whole(reply: &str) -> bool {
    !reply.contains("transfer-encoding: chunked") || reply.ends_with("0\r\n\r\n")
}

/// The JSON of the last event, or of the body, of a raw reply.
fn last_message(reply: &str) -> Value {
    let json = reply.lines().rev().find_map(|line| {
        let text = line.strip_prefix("data: ").unwrap_or(line);
        serde_json::from_str::<Value>(text)
            .ok()
            .filter(Value::is_object)
    });
    json.unwrap_or_default()
}

/// Answers that never come, in whatever way: the call may have run, and the client is told.
#[tokio::test]
async fn a_call_whose_answer_never_comes_is_told_that_it_may_have_run() -> anyhow::Result<()> {
    const EVENTS: &str =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let events = |data: &str| format!("{EVENTS}{:x}\r\n{data}\r\n", data.len()).into_bytes();
    let ended = |data: &str| [events(data), b"0\r\n\r\n".to_vec()].concat();
    let large = "x".repeat(EVENT_BYTES_MAX);
    let table: Vec<(&str, Vec<u8>)> = vec![
        ("closes without a byte", vec![]),
        ("no HTTP", b"\x00\x01\x02 garbage \xff\r\n\r\n".to_vec()),
        ("half a head", b"HTTP/1.1 200 OK\r\ncontent-ty".to_vec()),
        (
            "closes in the stream",
            events("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n"),
        ),
        ("closes in an event", events("data: {\"jsonrpc\":")),
        (
            "ends the stream at once",
            [EVENTS.as_bytes(), b"0\r\n\r\n"].concat(),
        ),
        (
            "ends the stream without the answer",
            ended("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n"),
        ),
        (
            "breaks the chunks",
            [events("data: {}\n\n"), b"zz\r\n".to_vec()].concat(),
        ),
        ("an event that is no JSON", ended("data: not json\n\n")),
        ("an event that is no message", ended("data: [1,2]\n\n")),
        (
            "an event that is no UTF-8",
            [EVENTS.as_bytes(), b"9\r\ndata: \xff\n\n\r\n0\r\n\r\n"].concat(),
        ),
        (
            "an answer to nobody",
            ended("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"),
        ),
        (
            "an answer to another gateway",
            ended("data: {\"jsonrpc\":\"2.0\",\"id\":\"aabbccdd:1\",\"result\":{}}\n\n"),
        ),
        (
            "a question without an id",
            ended("data: {\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}\n\n"),
        ),
        (
            "an event over the limit",
            events(&format!("data: {large}\n\n")),
        ),
        (
            "an event over the limit, with an id",
            events(&format!("id: 1/1\ndata: {large}\n\n")),
        ),
        ("a line without an end", events(&format!(": {large}"))),
    ];
    let mut scene = start().await?;
    for (what, bytes) in table {
        let reply = scene
            .raw_call(async |mut exchange| exchange.raw(bytes).await)
            .await?;
        assert!(reply.starts_with("HTTP/1.1 200 "), "{what}: {reply}");
        assert!(is_whole(&reply), "{what}: {reply}");
        let message = last_message(&reply);
        assert_eq!(
            (&message["id"], &message["error"]["code"]),
            (&json!(1), &json!(OUTCOME_UNKNOWN)),
            "{what}: {reply}"
        );
        scene.goes_on(what).await?;
    }
    let reply = scene.raw_call(async |exchange| exchange.reset()).await?;
    assert_eq!(
        last_message(&reply)["error"]["code"],
        OUTCOME_UNKNOWN,
        "a reset: {reply}"
    );
    scene.goes_on("a reset").await
}

/// An event that the upstream left unfinished is none: the client sees the error alone.
#[tokio::test]
async fn the_error_is_no_part_of_an_unfinished_event() -> anyhow::Result<()> {
    let mut scene = start().await?;
    let posted = post_text(&scene.client, &mut scene.session, increment("1"));
    let answered = async {
        let mut exchange = scene.upstream.next().await?;
        exchange.begin_events().await?;
        exchange.chunk("event: vendor\ndata: {\"jsonrpc\"").await
    };
    let (mut reply, ()) = tokio::try_join!(posted, answered)?;
    let event = next_event(&mut reply).await?.expect("the error");
    assert_eq!(event.name, None);
    let message: Value = serde_json::from_str(&event.data)?;
    assert_eq!(message["error"]["code"], OUTCOME_UNKNOWN);
    assert!(reply.next_event().await?.is_none());
    scene.goes_on("an unfinished event").await
}

/// A stream with event ids that breaks can be resumed, and its client is left to do so: an error would end the call.
#[tokio::test]
async fn a_stream_with_event_ids_that_breaks_is_left_to_be_resumed() -> anyhow::Result<()> {
    let mut scene = start().await?;
    for priming in [
        "id: 1/1\ndata:\n\n",
        "id: 1/1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n",
    ] {
        let posted = post_text(&scene.client, &mut scene.session, increment("1"));
        let answered = async {
            let mut exchange = scene.upstream.next().await?;
            exchange.begin_events().await?;
            exchange.chunk(priming).await
        };
        let (mut reply, ()) = tokio::try_join!(posted, answered)?;
        let event = next_event(&mut reply)
            .await?
            .expect("the event before the break");
        // The server's id, behind the name of the request.
        let id = event.id.unwrap_or_default();
        assert!(id.starts_with("mooring:") && id.ends_with(".1/1"), "{id}");
        assert!(reply.next_event().await?.is_none(), "no error after it");
        scene.goes_on("a break").await?;
    }
    Ok(())
}

/// A JSON body passes once its id has come. One that breaks off afterwards is cut, and no client can take it for whole; one
/// that breaks off before is an error that says that the call may have run.
#[tokio::test]
async fn a_json_answer_that_breaks_off_is_not_passed_as_whole() -> anyhow::Result<()> {
    const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    const CHUNKED: &str = "transfer-encoding: chunked\r\n\r\n";
    let table = [
        (
            "a body shorter than announced",
            format!("{HEAD}content-length: 100\r\n\r\n{{\"jsonrpc\":\"2.0\""),
            Some(OUTCOME_UNKNOWN),
        ),
        (
            "a chunked body without its end",
            format!("{HEAD}{CHUNKED}5\r\n{{\"a\":\r\n"),
            Some(OUTCOME_UNKNOWN),
        ),
        (
            "broken chunks",
            format!("{HEAD}{CHUNKED}5\r\n{{\"a\":\r\nzz\r\n"),
            Some(OUTCOME_UNKNOWN),
        ),
        (
            "an id that never ends",
            format!(
                "{HEAD}{CHUNKED}5000\r\n{{\"id\":\"{}\r\n",
                "x".repeat(0x5000 - 7)
            ),
            Some(-32011),
        ),
        (
            "a body that breaks off behind its id",
            format!("{HEAD}content-length: 500\r\n\r\n{{\"id\":WIRE_ID,\"result\":{{"),
            None,
        ),
    ];
    let mut scene = start().await?;
    for (what, bytes, code) in table {
        let reply = scene
            .raw_call(async |mut exchange| {
                let bytes = bytes.replace("WIRE_ID", &exchange.wire_id());
                exchange.raw(bytes).await
            })
            .await?;
        match code {
            Some(code) => {
                assert!(is_whole(&reply), "{what}: {reply}");
                let message = last_message(&reply);
                assert_eq!(message["error"]["code"], code, "{what}: {reply}");
            }
            None => assert!(
                reply.starts_with("HTTP/1.1 200 ") && !is_whole(&reply),
                "{what}: {reply}"
            ),
        }
        scene.goes_on(what).await?;
    }
    Ok(())
}

/// A client that is told that its request was accepted would wait for the answer for ever.
#[tokio::test]
async fn a_request_that_is_only_accepted_is_told_so() -> anyhow::Result<()> {
    let mut scene = start().await?;
    for status in ["202 Accepted", "204 No Content"] {
        let answer = async |mut exchange: Exchange| {
            let head =
                format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            exchange.raw(head).await
        };
        let reply = scene.raw_call(answer).await?;
        assert!(reply.starts_with("HTTP/1.1 502 "), "{status}: {reply}");
        assert_eq!(
            last_message(&reply)["error"]["code"],
            -32011,
            "{status}: {reply}"
        );
        scene.goes_on(status).await?;
    }
    Ok(())
}

/// What an upstream refuses is passed on; only what would mislead the client is changed.
#[tokio::test]
async fn refusals_of_the_upstream_are_passed_on() -> anyhow::Result<()> {
    let error = r#"{"jsonrpc":"2.0","id":WIRE_ID,"error":{"code":-32602,"message":"no","data":{"v":1.10}}}"#;
    // The gateway's credentials were refused, not the client's: 401 and 403 would make it log in again.
    let table = [
        (
            "500 Internal Server Error",
            "text/plain",
            "oops",
            "HTTP/1.1 500 ",
            "oops",
        ),
        (
            "503 Service Unavailable",
            "text/html",
            "<html>",
            "HTTP/1.1 503 ",
            "<html>",
        ),
        (
            "429 Too Many Requests\r\nretry-after: 17",
            "text/plain",
            "slow down",
            "HTTP/1.1 429 ",
            "retry-after: 17\r\n",
        ),
        (
            "401 Unauthorized\r\nwww-authenticate: Bearer",
            "text/plain",
            "who?",
            "HTTP/1.1 502 ",
            "who?",
        ),
        (
            "403 Forbidden",
            "text/plain",
            "not you",
            "HTTP/1.1 502 ",
            "not you",
        ),
        (
            "400 Bad Request",
            "application/json",
            error,
            "HTTP/1.1 400 ",
            r#""id":1,"error":{"code":-32602,"message":"no","data":{"v":1.10}}"#,
        ),
        (
            "200 OK",
            "application/json",
            error,
            "HTTP/1.1 200 ",
            r#""id":1,"error":{"code":-32602,"message":"no","data":{"v":1.10}}"#,
        ),
        (
            "200 OK",
            "application/json",
            "not json",
            "HTTP/1.1 502 ",
            "the body is not a JSON-RPC response",
        ),
        (
            "200 OK",
            "text/event-stream",
            "data: {\"jsonrpc\":\"2.0\",\"id\":WIRE_ID,\"result\":{}}\n\n",
            "HTTP/1.1 200 ",
            r#""id":1,"result":{}"#,
        ),
    ];
    let mut scene = start().await?;
    for (status, content_type, body, expected, holds) in table {
        let answer = async |exchange: Exchange| {
            let body = body.replace("WIRE_ID", &exchange.wire_id());
            exchange.answer(status, content_type, &body).await
        };
        let reply = scene.raw_call(answer).await?;
        assert!(
            reply.starts_with(expected) && reply.contains(holds),
            "{status}: {reply}"
        );
        assert!(is_whole(&reply), "{status}: {reply}");
        assert!(!reply.contains("www-authenticate"), "{status}: {reply}");
        scene.goes_on(status).await?;
    }
    Ok(())
}

/// A switch of protocols is no answer, and the client's connection stays what it is.
#[tokio::test]
async fn an_upstream_that_switches_protocols_is_a_bad_gateway() -> anyhow::Result<()> {
    let mut scene = start().await?;
    let head = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n";
    let reply = scene
        .raw_call(async |mut exchange| exchange.raw(head).await)
        .await?;
    assert!(reply.starts_with("HTTP/1.1 502 "), "{reply}");
    scene.goes_on("a switch of protocols").await
}

/// What an upstream sends that is no message is counted, and said in the log a few times, however long the flood takes.
#[tokio::test]
async fn a_flood_of_broken_events_is_few_lines_of_log() -> anyhow::Result<()> {
    const EVENTS: usize = 50_000;
    let mut scene = start().await?;
    let before = scene.gateway.process().log_text().len();
    let (mut reply, _) = scene
        .exchange(&increment("1"), async |mut exchange| {
            exchange.begin_events().await?;
            for _ in 0..EVENTS / 1_000 {
                exchange.chunk("data: x\n\n".repeat(1_000)).await?;
            }
            let id = exchange.wire_id();
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"count":1}}}}"#);
            exchange.event(&answer).await?;
            exchange.end().await?;
            Ok(None)
        })
        .await?;
    let answer = next_event(&mut reply).await?.expect("the answer");
    assert!(answer.data.contains("count"), "{answer:?}");
    let dropped = scene
        .gateway
        .metric("mooring_upstream_messages_dropped_total", &[])
        .await?;
    assert_eq!(dropped, EVENTS as f64);
    let said = wait::until_logged("repeated=", 1, || {
        scene.gateway.process().log_text().split_off(before)
    })
    .await?;
    assert!(said.contains("an event that is no message"), "{said}");
    assert!(said.lines().count() < EVENTS / 50, "{said}");
    scene.goes_on("a flood").await
}
