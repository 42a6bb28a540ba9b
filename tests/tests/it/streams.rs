//! What passes through: every byte but ids, and as it arrives, whatever its size.

use anyhow::Context as _;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use mooring_tests::session::McpSession;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::rig::{
    RAW_WITHIN, connect_from, increment, raw_post, read_until, refusal, resident_peak_kib,
};
use crate::scene::ScriptedScene;
use crate::scripted::Exchange;

/// How long a silent stream may go without a comment; the gateway writes one every fifteen seconds.
const KEPT_ALIVE_WITHIN: Duration = Duration::from_secs(45);

/// How much more memory a gateway may use while a reply of any size passes, in KiB.
const GROWTH_KIB_MAX: u64 = 32 * 1024;

#[tokio::test]
async fn everything_but_the_id_survives_byte_for_byte_both_ways() -> anyhow::Result<()> {
    let ids = [
        "0",
        "-1",
        "9007199254740993",
        "123456789012345678901234567890",
        r#""""#,
        r#""c:1""#,
        r#""a \"quoted\" \\ \u0041 \ud83d\ude00 Zoë""#,
        r#""s:1:1""#,
    ];
    // White space, member order, numbers that a double cannot hold, escapes, and members that no revision knows.
    let request = |id: &str| {
        format!(
            "{{ \"vendor\":{{\"b\":1.0e400,\"a\":[ 1 ,2]}},\"id\" :{id},\"method\":\"tools\\/call\",\"jsonrpc\":\"2.0\",\"params\":{{\"name\":\"x\",\"arguments\":{{\"n\":12345678901234567890123,\"u\":\"\\ud800\"}},\"_meta\":{{\"vendor/key\":null}}}},\"z\":\"\\u007f\"}}"
        )
    };
    let response = |id: &str| {
        format!(
            "{{\"result\":{{\"z\":1,\"a\":1.10,\"big\":123456789012345678901234567890,\"u\":\"\\ud83d\",\"id\":\"inner\"}},\"x-vendor\":[true ],\"id\": {id} ,\"jsonrpc\":\"2.0\"}}"
        )
    };
    let mut scene = ScriptedScene::start().await?;
    for id in ids {
        for content_type in ["application/json", "text/event-stream"] {
            let answer = async |exchange: Exchange| {
                // Most parsers refuse the numbers of the request.
                let body = &exchange.request.body;
                let (_, rest) = body.split_once(r#""id" :"#).expect("an id");
                let wire_id = rest
                    .split_once(r#","method""#)
                    .expect("a method")
                    .0
                    .to_owned();
                let sent: String = serde_json::from_str(&wire_id)?;
                let (tag, own) = sent["c:".len()..].split_once(':').expect("a tag");
                assert_eq!((tag.len(), own), (32, id), "{sent}");
                assert_eq!(exchange.request.body, request(&wire_id), "up");
                let text = response(&wire_id);
                let body = match content_type {
                    "application/json" => text,
                    _ => format!(": a comment\nid: 7/1\nvendor: x\nretry: 5\ndata: {text}\n\n"),
                };
                exchange.answer("200 OK", content_type, &body).await?;
                Ok(None)
            };
            let (reply, _) = scene.exchange(&request(id), answer).await?;
            assert_eq!(reply.header("content-type"), Some(content_type));
            let text = reply.text().await?;
            match content_type {
                "application/json" => assert_eq!(text, response(id), "down"),
                // Comments and unknown fields of server-sent events mean nothing, by their standard.
                _ => {
                    let (event_id, rest) = text.split_once('\n').context("an id")?;
                    assert!(event_id.ends_with(".7/1"), "{event_id}");
                    let expected = format!("retry: 5\ndata: {}\n\n", response(id));
                    assert_eq!(rest, expected, "down");
                }
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_cancellation_and_progress_find_the_call_they_belong_to() -> anyhow::Result<()> {
    let mut scene = ScriptedScene::start().await?;
    let call = r#"{"jsonrpc":"2.0","id":"a\"b","method":"tools/call","params":{"name":"x","_meta":{"progressToken":"a\"b"}}}"#;
    let begin = async |mut exchange: Exchange| {
        let token = exchange.request.json()["params"]["_meta"]["progressToken"].clone();
        assert_eq!(
            token.to_string(),
            exchange.wire_id(),
            "one token, one id, one form"
        );
        exchange.begin_events().await?;
        let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": token, "progress": 1, "vendor": "x"}});
        exchange.event(&progress.to_string()).await?;
        Ok(Some(exchange))
    };
    let (mut reply, running) = scene.exchange(call, begin).await?;
    let mut running = running.expect("the call runs");
    let progress = reply.next_message().await?.expect("progress");
    assert_eq!(
        progress["params"],
        json!({"progressToken": "a\"b", "progress": 1, "vendor": "x"})
    );

    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a\"b","reason":"enough"}}"#;
    let wire_id = running.wire_id();
    let accept = async |exchange: Exchange| {
        let params = exchange.request.json()["params"].clone();
        assert_eq!(
            (params["requestId"].to_string(), &params["reason"]),
            (wire_id, &json!("enough"))
        );
        exchange.answer("202 Accepted", "text/plain", "").await?;
        Ok(None)
    };
    let (accepted, _) = scene.exchange(cancel, accept).await?;
    assert_eq!(accepted.status, 202);

    let wire_id = running.wire_id();
    running
        .event(&format!(
            r#"{{"jsonrpc":"2.0","id":{wire_id},"result":{{}}}}"#
        ))
        .await?;
    running.end().await?;
    let answer = reply.next_message().await?.expect("the answer");
    assert_eq!(answer["id"], "a\"b");
    scene.goes_on("after it").await
}

#[tokio::test]
async fn replies_stream_as_they_arrive() -> anyhow::Result<()> {
    let mut scene = ScriptedScene::start().await?;
    let begin = async |mut exchange: Exchange| {
        exchange.begin_events().await?;
        exchange.event(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#).await?;
        Ok(Some(exchange))
    };
    let (mut reply, running) = scene.exchange(&increment("1"), begin).await?;
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    assert_eq!(reply.header("x-accel-buffering"), Some("no"));
    assert_eq!(
        reply.header("cache-control"),
        Some("no-cache, no-transform")
    );
    let first = reply
        .next_message()
        .await?
        .expect("the first event, while the last is not written yet");
    assert_eq!(first["params"]["data"], 1);
    let mut running = running.expect("the call runs");
    // A comment of the upstream's keeps the connection alive end to end, so it passes, and at once.
    running.chunk(": alive\n\n").await?;
    let answer = format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#,
        running.wire_id()
    );
    // An event in three pieces is one event.
    let (head, tail) = answer.split_at(20);
    running.chunk(format!("data: {head}")).await?;
    running.chunk(format!("{tail}\n")).await?;
    running.chunk("\n").await?;
    running.end().await?;
    assert_eq!(reply.next_message().await?.expect("the answer")["id"], 1);
    assert!(
        reply.next_event().await?.is_none(),
        "a clean end, and nothing after it"
    );

    let mut raw = connect_from("127.0.0.1", &scene.gateway).await?;
    raw.write_all(raw_post(&scene.session, &increment("2")).as_bytes())
        .await?;
    let mut running = scene.upstream.next().await?;
    running.begin("application/json").await?;
    let head = format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"first":1,"#,
        running.wire_id()
    );
    running.chunk(head).await?;
    read_until(&mut raw, r#""first":1,"#, RAW_WITHIN).await?;
    running.chunk(r#""last":2}}"#).await?;
    running.end().await?;
    read_until(&mut raw, r#""last":2}}"#, RAW_WITHIN).await?;
    scene.goes_on("after it").await
}

#[tokio::test]
async fn a_reply_of_100_mb_passes_in_bounded_memory_and_a_reader_that_stops_blocks_nobody()
-> anyhow::Result<()> {
    const CHUNK: usize = 64 * 1024;
    const CHUNKS: usize = 1600;
    let mut scene = ScriptedScene::start_side_by_side().await?;
    let before = resident_peak_kib(scene.gateway.process().id())?;
    let chunk = "x".repeat(CHUNK);
    let write = async |mut exchange: Exchange| -> anyhow::Result<()> {
        exchange.begin("application/json").await?;
        let head = format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"text":""#,
            exchange.wire_id()
        );
        exchange.chunk(head).await?;
        for _ in 0..CHUNKS {
            exchange.chunk(&chunk).await?;
        }
        exchange.chunk(r#"","end":2}}"#).await?;
        exchange.end().await
    };

    // The first client asks and never reads.
    let mut stuck = connect_from("127.0.0.1", &scene.gateway).await?;
    stuck
        .write_all(raw_post(&scene.session, &increment("1")).as_bytes())
        .await?;
    let stuck_exchange = scene.upstream.next().await?;
    let mut reader = connect_from("127.0.0.1", &scene.gateway).await?;
    reader
        .write_all(raw_post(&scene.session, &increment("2")).as_bytes())
        .await?;
    let exchange = scene.upstream.next().await?;
    let sent_to_stuck = write(stuck_exchange);
    let rest = async {
        let (sent, read) = tokio::join!(write(exchange), count_until(&mut reader, r#""end":2}}"#));
        sent?;
        assert!(read? > CHUNKS * CHUNK);
        scene.goes_on("after it").await
    };
    tokio::select! {
        sent = sent_to_stuck => panic!("100 MB fit into the buffers of a client that does not read: {sent:?}"),
        rest = rest => rest?,
    }
    let growth = resident_peak_kib(scene.gateway.process().id())? - before;
    assert!(growth < GROWTH_KIB_MAX, "the gateway grew by {growth} KiB");
    drop(stuck);
    scene.goes_on("after it").await
}

/// A reply whose id comes last is withheld until then: it might be the reply to another request.
#[tokio::test]
async fn a_reply_with_its_id_at_the_end_is_withheld_up_to_a_limit() -> anyhow::Result<()> {
    const CHUNK: usize = 1024 * 1024;
    let mut scene = ScriptedScene::start().await?;
    let chunk = "x".repeat(CHUNK);
    for (chunks, status, code) in [(2, 200, None), (17, 502, Some(-32011))] {
        let answer = async |mut exchange: Exchange| {
            exchange.begin("application/json").await?;
            exchange.chunk(r#"{"jsonrpc":"2.0","result":""#).await?;
            for _ in 0..chunks {
                // The gateway closes the connection once it has enough.
                if exchange.chunk(&chunk).await.is_err() {
                    return Ok(None);
                }
            }
            let tail = format!(r#"","id":{}}}"#, exchange.wire_id());
            let _ = exchange.chunk(tail).await;
            let _ = exchange.end().await;
            Ok(None)
        };
        let (reply, _) = scene.exchange(&increment("1"), answer).await?;
        assert_eq!(reply.status, status, "{chunks}");
        let body = reply.json().await?;
        assert_eq!(body["id"], 1, "{chunks}");
        assert_eq!(body["error"]["code"].as_i64(), code, "{chunks}");
    }
    scene.goes_on("after it").await
}

/// Reads until `end` has come, keeping no more than a buffer; how many bytes came.
async fn count_until(stream: &mut tokio::net::TcpStream, end: &str) -> anyhow::Result<usize> {
    use tokio::io::AsyncReadExt;
    let (mut count, mut tail) = (0, Vec::new());
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let read = stream.read(&mut buffer).await?;
        anyhow::ensure!(read > 0, "the reply ended after {count} bytes");
        count += read;
        tail.extend_from_slice(&buffer[..read]);
        tail.drain(..tail.len().saturating_sub(256));
        if String::from_utf8_lossy(&tail).contains(end) {
            return Ok(count);
        }
    }
}

#[tokio::test]
async fn get_streams_and_their_refusals_are_the_upstreams() -> anyhow::Result<()> {
    let mut scene = ScriptedScene::start().await?;
    let listen = |session: &mut McpSession, last_event_id: &'static str| {
        let mut request = session.http_request(Method::GET, Bytes::new()).unwrap();
        request
            .headers_mut()
            .insert("last-event-id", HeaderValue::from_static(last_event_id));
        request
    };
    let opened = async {
        let mut exchange = scene.upstream.next().await?;
        assert_eq!(exchange.request.http_method, "GET");
        assert_eq!(exchange.request.header("last-event-id"), Some("7/1"));
        assert_eq!(exchange.request.header("accept"), Some("text/event-stream"));
        exchange.begin_events().await?;
        exchange.chunk("id: 7/2\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n").await?;
        Ok(exchange)
    };
    let request = listen(&mut scene.session, "7/1");
    let (mut stream, exchange) = tokio::try_join!(scene.client.send(request), opened)?;
    assert_eq!(stream.header("x-accel-buffering"), Some("no"));
    let event = stream.next_event().await?.expect("an event");
    assert_eq!(event.id.as_deref(), Some("7/2"));

    for (status, expected) in [("409 Conflict", 409), ("405 Method Not Allowed", 405)] {
        let refused = async {
            scene
                .upstream
                .next()
                .await?
                .answer(
                    status,
                    "application/json",
                    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"one stream"}}"#,
                )
                .await
        };
        let request = listen(&mut scene.session, "7/2");
        let (reply, ()) = tokio::try_join!(scene.client.send(request), refused)?;
        assert_eq!(
            refusal(reply).await?,
            (StatusCode::from_u16(expected)?, -32000)
        );
    }
    exchange.end().await?;
    assert!(
        stream.next_event().await?.is_none(),
        "the stream ends where the upstream's ends"
    );
    scene.goes_on("after it").await
}

#[tokio::test]
async fn a_client_that_leaves_cancels_nothing() -> anyhow::Result<()> {
    let mut scene = ScriptedScene::start_side_by_side().await?;
    let mut leaving = connect_from("127.0.0.1", &scene.gateway).await?;
    leaving
        .write_all(raw_post(&scene.session, &increment("1")).as_bytes())
        .await?;
    let running = scene.upstream.next().await?;
    drop(leaving);
    for _ in 0..5 {
        scene.goes_on("after it").await?;
    }
    assert!(
        !running.is_abandoned(),
        "the gateway still waits for the answer"
    );
    running.result(&json!({})).await?;
    let methods = scene.upstream.seen_methods();
    assert!(
        !methods
            .iter()
            .any(|method| method == "notifications/cancelled"),
        "{methods:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_silent_stream_is_kept_alive_by_comments() -> anyhow::Result<()> {
    let mut scene = ScriptedScene::start_side_by_side().await?;
    let id = scene.session.id().expect("a session id").to_owned();
    let listen = format!(
        "GET /servers/tools/mcp HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nmcp-session-id: {id}\r\n\r\n"
    );
    let call = raw_post(&scene.session, &increment("1"));
    let mut open = Vec::new();
    for request in [listen, call] {
        let mut connection = connect_from("127.0.0.1", &scene.gateway).await?;
        connection.write_all(request.as_bytes()).await?;
        let mut exchange = scene.upstream.next().await?;
        exchange.begin_events().await?;
        open.push((connection, exchange));
    }
    for (connection, exchange) in &mut open {
        let reply = read_until(connection, ": keep-alive\n\n", KEPT_ALIVE_WITHIN).await?;
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
        assert!(!exchange.is_abandoned());
    }
    scene.goes_on("a silence").await
}
