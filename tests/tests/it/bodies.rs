//! Bodies that are no message, or none that is carried: each is refused, and neither the store nor the upstream
//! hears of it.

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::Gateway;
use mooring_tests::session::McpSession;
use serde_json::json;

use crate::rig::{increment, kept, post_of, post_text, raw_exchange, raw_head, refusal};
use crate::scene::{BODY_BYTES_MAX, CountingScene, Reaches};

#[tokio::test]
async fn bodies_that_are_refused() -> anyhow::Result<()> {
    const PARSE: i64 = -32700;
    const INVALID: i64 = -32600;
    let deep = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"a":{open}{close}}}}}"#)
    };
    let call = |id: &str| increment(id).into_bytes();
    let text = |text: &str| text.as_bytes().to_vec();
    let table: Vec<(&str, Vec<u8>, i64)> = vec![
        ("nothing", vec![], PARSE),
        ("half a message", text(r#"{"jsonrpc":"2.0","id":1,"#), PARSE),
        ("two messages", [call("1"), call("2")].concat(), PARSE),
        (
            "no UTF-8",
            b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}".to_vec(),
            PARSE,
        ),
        (
            "UTF-16",
            "{\"jsonrpc\""
                .encode_utf16()
                .flat_map(u16::to_le_bytes)
                .collect(),
            PARSE,
        ),
        ("a number", text("5"), INVALID),
        ("null", text("null"), INVALID),
        ("an empty object", text("{}"), INVALID),
        ("an empty batch", text("[]"), INVALID),
        (
            "a batch",
            [
                b"[".to_vec(),
                call("1"),
                b",".to_vec(),
                call("2"),
                b"]".to_vec(),
            ]
            .concat(),
            INVALID,
        ),
        ("no jsonrpc", text(r#"{"id":1,"method":"ping"}"#), INVALID),
        (
            "JSON-RPC 1.0",
            text(r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#),
            INVALID,
        ),
        (
            "a method that is no string",
            text(r#"{"jsonrpc":"2.0","id":1,"method":["tools/call"]}"#),
            INVALID,
        ),
        (
            "params that are a string",
            text(r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}"#),
            INVALID,
        ),
        (
            "a method and a result",
            text(r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#),
            INVALID,
        ),
        (
            "a result and an error",
            text(r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}"#),
            INVALID,
        ),
        (
            "a result without an id",
            text(r#"{"jsonrpc":"2.0","result":{}}"#),
            INVALID,
        ),
        ("the id null", call("null"), INVALID),
        ("a fraction for an id", call("1.5"), INVALID),
        ("an exponent for an id", call("1e3"), INVALID),
        ("an object for an id", call(r#"{"a":1}"#), INVALID),
        ("an array for an id", call("[1]"), INVALID),
        ("true for an id", call("true"), INVALID),
        (
            "two ids",
            text(r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#),
            INVALID,
        ),
        (
            "two ids, one in escapes",
            text(r#"{"jsonrpc":"2.0","id":1,"\u0069d":2,"method":"ping"}"#),
            INVALID,
        ),
        (
            "two methods",
            text(r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}"#),
            INVALID,
        ),
        (
            "two params",
            text(r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{},"params":{}}"#),
            INVALID,
        ),
        (
            "two names",
            text(
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","name":"increment"}}"#,
            ),
            INVALID,
        ),
        (
            "two arguments",
            text(
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"increment","arguments":{},"arguments":{"by":9}}}"#,
            ),
            INVALID,
        ),
        (
            "a method in another case beside the method",
            text(r#"{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}"#),
            INVALID,
        ),
        (
            "an id in another case",
            text(r#"{"jsonrpc":"2.0","ID":1,"method":"ping"}"#),
            INVALID,
        ),
        (
            "a name in another case beside the name",
            text(
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","NAME":"increment"}}"#,
            ),
            INVALID,
        ),
        (
            "arguments with the long s of another case",
            text(
                "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"increment\",\"argument\u{17f}\":{}}}",
            ),
            INVALID,
        ),
        (
            "a progress token in another case",
            text(
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"progresstoken":1}}}"#,
            ),
            INVALID,
        ),
        (
            "a method in another case",
            text(r#"{"jsonrpc":"2.0","id":1,"method":"Tools/Call","params":{"name":"increment"}}"#),
            INVALID,
        ),
        (
            "a method with a NUL",
            text(
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call\u0000","params":{"name":"increment"}}"#,
            ),
            INVALID,
        ),
        (
            "a padded method",
            text(
                r#"{"jsonrpc":"2.0","id":1,"method":" tools/call","params":{"name":"increment"}}"#,
            ),
            INVALID,
        ),
        (
            "a padded name",
            text(
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"increment\n"}}"#,
            ),
            INVALID,
        ),
        ("deep", deep(130).into_bytes(), INVALID),
        ("deep and never closed", vec![b'['; 1000], INVALID),
        (
            "an initialize without params",
            text(r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#),
            -32602,
        ),
    ];
    let mut scene = CountingScene::start().await?;
    for (what, body, code) in table {
        let request = post_of(&mut scene.session, body)?;
        scene
            .check(what, request, (400, code), Reaches::Nothing)
            .await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_id_that_is_too_long_is_refused_and_the_longest_is_served() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let gateway = Gateway::start("surface", kept(&[fixture.url()])).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    let id = |length: usize| format!("\"{}\"", "\\".repeat(length - 2));
    let longest = id(1024);
    let mut reply = post_text(&client, &mut session, increment(&longest)).await?;
    let answer = reply.next_message().await?.expect("an answer");
    assert_eq!(answer["id"].to_string(), longest);
    let too_long = format!("\"{}\"", "x".repeat(1023));
    let reply = post_text(&client, &mut session, increment(&too_long)).await?;
    assert_eq!(
        refusal(reply).await?,
        (http::StatusCode::BAD_REQUEST, -32600)
    );
    assert_eq!(session.increment().await?, 2);
    // A million levels overflow the stack of whoever reads them by recursion.
    let bomb = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{}"#,
        "[".repeat(1_000_000)
    );
    let reply = post_text(&client, &mut session, bomb).await?;
    assert_eq!(
        refusal(reply).await?,
        (http::StatusCode::BAD_REQUEST, -32600)
    );
    assert_eq!(session.increment().await?, 3);
    Ok(())
}

#[tokio::test]
async fn a_request_of_a_revision_without_sessions_is_told_what_is_served() -> anyhow::Result<()> {
    let mut scene = CountingScene::start().await?;
    for version in [json!("2026-07-28"), json!("2030-01-01"), json!(7)] {
        for method in ["tools/call", "initialize"] {
            let message = json!({
                "jsonrpc": "2.0", "id": "modern", "method": method,
                "params": {"name": "increment", "_meta": {
                    "io.modelcontextprotocol/protocolVersion": version,
                    "io.modelcontextprotocol/clientCapabilities": {},
                }},
            });
            let reply = post_text(&scene.client, &mut scene.session, message.to_string()).await?;
            assert_eq!(reply.status, 400);
            let body = reply.json().await?;
            assert_eq!(body["id"], "modern");
            assert_eq!(body["error"]["code"], -32022);
            let supported = json!(["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]);
            assert_eq!(body["error"]["data"]["supported"], supported);
            let requested = version.as_str().unwrap_or_default();
            assert_eq!(body["error"]["data"]["requested"], requested);
            scene.unchanged("a modern request").await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_before_it_is_read_whole() -> anyhow::Result<()> {
    let mut scene = CountingScene::start().await?;
    let fits = |length: usize| {
        let call = increment("1");
        let padding = " ".repeat(length - call.len());
        call + &padding
    };
    let reply = post_text(&scene.client, &mut scene.session, fits(BODY_BYTES_MAX)).await?;
    assert_eq!(reply.status, 200);
    scene.count += 1;
    let request = post_of(&mut scene.session, fits(BODY_BYTES_MAX + 1))?;
    scene
        .check("a byte too much", request, (413, -32000), Reaches::Nothing)
        .await?;

    // The rest of neither body is ever sent, so only a gateway that does not wait for it answers.
    let head = raw_head(&scene.session);
    let part = "x".repeat(2 * BODY_BYTES_MAX);
    for framed in [
        format!("{head}content-length: 1000000000\r\n\r\n{part}"),
        format!(
            "{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{part}\r\n",
            part.len()
        ),
    ] {
        let reply = raw_exchange(&scene.gateway, framed.as_bytes()).await?;
        assert!(reply.starts_with("HTTP/1.1 413 "), "{reply}");
        scene.unchanged("an endless body").await?;
    }
    Ok(())
}
