//! Requests of the server: each reaches the client of its own session on the stream of the call, and its answer finds
//! the way back over any gateway. What a client makes up finds none.

use http::StatusCode;
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::fixture::Fixture;
use mooring_tests::session::{McpSession, read_exchange, result_of};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::rig::{increment, kept, post_text, refusal, sharing};
use crate::scene::ScriptedScene;
use crate::scripted::{Exchange, Scripted};

#[tokio::test]
async fn a_request_of_the_server_is_answered_over_another_gateway_with_the_servers_own_id()
-> anyhow::Result<()> {
    let shared = TempDir::new()?;
    let upstream = Scripted::start().await?;
    let settings = kept(&[upstream.url()]);
    let other = sharing("other", &settings, shared.path()).await?;
    let mut scene = ScriptedScene::start_with(upstream, settings.state_home(shared.path())).await?;
    for (id, method) in [
        ("7", "ping"),
        (r#""7""#, "sampling/createMessage"),
        (r#""q\"\u0041""#, "roots/list"),
    ] {
        let ask = async |mut exchange: Exchange| {
            exchange.begin_events().await?;
            exchange
                .event(&format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"v":1.10}}}}"#
                ))
                .await?;
            Ok(Some(exchange))
        };
        let (mut reply, running) = scene.exchange(&increment("1"), ask).await?;
        let mut running = running.expect("the call runs");
        let question = reply
            .next_message()
            .await?
            .expect("the question, on the stream of the call");
        assert_eq!(question["method"], method);

        let mut elsewhere = scene.session.fork(&scene.client, &[other.mcp_url("tools")]);
        let answer = format!(
            r#"{{"jsonrpc":"2.0","result":{{"n":1.10}},"id":{}}}"#,
            question["id"]
        );
        let posted = post_text(&scene.client, &mut elsewhere, answer);
        let taken = async {
            let exchange = scene.upstream.next().await?;
            assert_eq!(
                exchange.request.body,
                format!(r#"{{"jsonrpc":"2.0","result":{{"n":1.10}},"id":{id}}}"#)
            );
            assert_eq!(
                exchange.request.header("mcp-session-id"),
                running.request.header("mcp-session-id")
            );
            exchange.answer("202 Accepted", "text/plain", "").await
        };
        let (accepted, ()) = tokio::try_join!(posted, taken)?;
        assert_eq!(accepted.status, 202);
        assert_eq!(accepted.bytes().await?.len(), 0);
        let wire_id = running.wire_id();
        running
            .event(&format!(
                r#"{{"jsonrpc":"2.0","id":{wire_id},"result":{{}}}}"#
            ))
            .await?;
        running.end().await?;
        assert_eq!(reply.next_message().await?.expect("the answer")["id"], 1);
    }
    Ok(())
}

/// A call of `ask` that waits for its client.
struct Asked {
    session: McpSession,
    call: Value,
    stream: Reply,
    question: Value,
}

impl Asked {
    async fn begin(client: &HttpClient, endpoint: String, secret: &str) -> anyhow::Result<Self> {
        let mut session = McpSession::open(client, &[endpoint]).await?;
        let arguments = json!({"message": format!("for {secret}"), "secret": secret});
        let call =
            session.request_body("tools/call", json!({"name": "ask", "arguments": arguments}));
        let mut stream = session.post(&call).await?;
        let question = stream.next_message().await?.expect("the question");
        assert_eq!(question["params"]["message"], format!("for {secret}"));
        Ok(Self {
            session,
            call,
            stream,
            question,
        })
    }

    fn answer(&self, text: &str) -> Value {
        let content = json!({"action": "accept", "content": {"answer": text}});
        json!({"jsonrpc": "2.0", "id": self.question["id"], "result": content})
    }
}

#[tokio::test]
async fn elicitations_of_two_sessions_are_answered_over_other_gateways_and_never_crossed()
-> anyhow::Result<()> {
    let shared = TempDir::new()?;
    let (first, second) = (Fixture::start("a").await?, Fixture::start("b").await?);
    let settings = kept(&[first.url(), second.url()]);
    let left = sharing("left", &settings, shared.path()).await?;
    let right = sharing("right", &settings, shared.path()).await?;
    let client = HttpClient::default();
    let mut asked = Vec::new();
    for secret in ["s1", "s2", "s3", "s4"] {
        asked.push(Asked::begin(&client, left.mcp_url("tools"), secret).await?);
    }
    // Nobody answers for another session: at the best such an answer reaches the own upstream session.
    let forged = asked[1].answer("stolen");
    let mut thief = asked[0].session.fork(&client, &[right.mcp_url("tools")]);
    let reply = thief.post(&forged).await?;
    assert_eq!(refusal(reply).await?, (StatusCode::BAD_REQUEST, -32003));

    for (number, one) in asked.iter().enumerate().rev() {
        let mut elsewhere = one.session.fork(&client, &[right.mcp_url("tools")]);
        assert_eq!(
            elsewhere
                .post(&one.answer(&format!("answer {number}")))
                .await?
                .status,
            202
        );
    }
    for (number, one) in asked.into_iter().enumerate() {
        let result = result_of(read_exchange(one.stream, &one.call).await?.response)?;
        let expected = json!({
            "action": "accept",
            "answer": format!("answer {number}"),
            "secret": format!("s{}", number + 1),
        });
        assert_eq!(result["structuredContent"], expected);
    }
    Ok(())
}

#[tokio::test]
async fn a_cut_stream_is_resumed_over_another_gateway() -> anyhow::Result<()> {
    let shared = TempDir::new()?;
    let (first, second) = (Fixture::start("a").await?, Fixture::start("b").await?);
    let settings = kept(&[first.url(), second.url()]);
    let left = sharing("left", &settings, shared.path()).await?;
    let right = sharing("right", &settings, shared.path()).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[left.mcp_url("tools")]).await?;
    let call = session.request_body(
        "tools/call",
        json!({"name": "test_reconnection", "arguments": {}}),
    );
    let mut stream = session.post(&call).await?;
    let mut last_event_id = None;
    while let Some(event) = stream.next_event().await? {
        assert_eq!(
            event.data, "",
            "nothing but the priming event before the cut"
        );
        last_event_id = event.id.or(last_event_id);
    }
    assert!(last_event_id.is_some(), "the upstream's event id passes");
    let mut elsewhere = session.fork(&client, &[right.mcp_url("tools")]);
    let resumed = elsewhere.listen(last_event_id.as_deref()).await?;
    result_of(read_exchange(resumed, &call).await?.response)?;
    Ok(())
}

/// A response that a client makes up is refused, and reaches nobody.
#[tokio::test]
async fn forged_responses_are_refused() -> anyhow::Result<()> {
    let ids = [
        "1",
        r#""1""#,
        r#""s:1:1""#,
        r#""s:0:1""#,
        r#""s:01:1""#,
        r#""s:18446744073709551616:1""#,
        r#""s:-1:1""#,
        r#""s:1:""#,
        r#""s::1""#,
        r#""s:1:{}""#,
        r#""c:1""#,
        r#""c@1:1""#,
        r#""aabbccdd:1""#,
        r#""""#,
    ];
    let mut scene = ScriptedScene::start().await?;
    let seen_before = scene.upstream.seen().len();
    for id in ids {
        for outcome in [r#""result":{}"#, r#""error":{"code":1,"message":"x"}"#] {
            let response = format!(r#"{{"jsonrpc":"2.0","id":{id},{outcome}}}"#);
            let reply = post_text(&scene.client, &mut scene.session, response).await?;
            assert_eq!(
                refusal(reply).await?,
                (StatusCode::BAD_REQUEST, -32003),
                "{id}"
            );
        }
        let progress = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"progress":1}}}}"#
        );
        let reply = post_text(&scene.client, &mut scene.session, progress).await?;
        assert_eq!(
            refusal(reply).await?,
            (StatusCode::BAD_REQUEST, -32003),
            "{id}"
        );
    }
    assert_eq!(
        scene.upstream.seen().len(),
        seen_before,
        "nothing reached the upstream"
    );
    scene.goes_on("forged responses").await
}
