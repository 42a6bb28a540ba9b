//! Requests of servers over a fleet: whichever worker has the connection, each reaches the client of its own session, and
//! only what that client answers comes back, through any worker.

use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;
use http::StatusCode;
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::fixture::{self, Fixture};
use mooring_tests::session::{McpSession, Opening, read_exchange, result_of};
use mooring_tests::wait;
use serde_json::{Value, json};
use tokio::sync::Barrier;

use crate::everything_streams::text_of;
use crate::fixture_stdio::echo;
use crate::keyed::{KeyedFleet, instances_table, stdio_table};
use crate::rig::refusal;

/// How long an answer may take to reach the server, and what comes of it the client.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// The fixture behind three gateways: two instances as `http`, one as `sse`, and a process for each session as `stdio`.
struct Fixtures {
    fleet: KeyedFleet,
    client: HttpClient,
    _instances: [Fixture; 3],
}

impl Fixtures {
    async fn start(more_toml: &str) -> anyhow::Result<Self> {
        let (one, two, sse) = tokio::try_join!(
            Fixture::start("a"),
            Fixture::start("b"),
            Fixture::start("c")
        )?;
        let tables = [
            more_toml.to_owned(),
            instances_table("http", "http", &[one.url(), two.url()]),
            instances_table("sse", "sse", &[sse.sse_url()]),
            stdio_table("stdio", &fixture::stdio_command("d", None, &[])?),
        ];
        Ok(Self {
            fleet: KeyedFleet::start(3, &tables.concat()).await?,
            client: HttpClient::default(),
            _instances: [one, two, sse],
        })
    }

    /// A session that is begun at the gateway at `first` and goes on round them all.
    async fn open(&self, server: &str, first: usize) -> anyhow::Result<McpSession> {
        McpSession::open(&self.client, &self.fleet.endpoints(server, first)).await
    }

    /// The same session at another server, or from another gateway on.
    fn fork(&self, session: &McpSession, server: &str, first: usize) -> McpSession {
        session.fork(&self.client, &self.fleet.endpoints(server, first))
    }
}

/// The params of a call of `ask`, whose question holds the secret.
fn ask(secret: &str) -> Value {
    json!({"name": "ask", "arguments": {"secret": secret}})
}

/// A call of `ask` that waits for its client.
struct Asked {
    call: Value,
    stream: Reply,
    question: Value,
}

impl Asked {
    async fn begin(session: &mut McpSession, secret: &str) -> anyhow::Result<Self> {
        let call = session.request_body("tools/call", ask(secret));
        let mut stream = session.post(&call).await?;
        let question = stream.next_message().await?.context("a question")?;
        assert_eq!(question["method"], "elicitation/create", "{question}");
        Ok(Self {
            call,
            stream,
            question,
        })
    }

    fn answer(&self) -> anyhow::Result<Value> {
        Ok(answer_to(&self.question["id"], &echo(&self.question)?))
    }

    /// The result of the call, of which nothing but the question came before.
    async fn result(self) -> anyhow::Result<Value> {
        let exchange = read_exchange(self.stream, &self.call).await?;
        assert_eq!(exchange.before, Vec::<Value>::new());
        result_of(exchange.response)
    }
}

pub(crate) fn answer_to(id: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

/// Asks in the middle of a call, and again when the call is over, and answers each time with what was asked.
async fn ask_twice(
    mut session: McpSession,
    mut elsewhere: McpSession,
    secret: String,
    all_asked: &Barrier,
) -> anyhow::Result<()> {
    let question_text = format!("The secret is {secret}.");
    let asked = Asked::begin(&mut session, &secret).await?;
    all_asked.wait().await;
    assert_eq!(asked.question["params"]["message"], question_text);
    assert_eq!(elsewhere.post(&asked.answer()?).await?.status, 202);
    assert_eq!(
        asked.result().await?["structuredContent"],
        json!({"action": "accept", "answer": question_text, "secret": secret})
    );

    let mut general = elsewhere.listen(None).await?;
    ensure!(general.status == 200, "listen: {}", general.status);
    session.ask_later(&secret).await?;
    let question = general.next_message().await?.context("a question")?;
    assert_eq!(question["params"]["message"], question_text);
    let answer = answer_to(&question["id"], &echo(&question)?);
    assert_eq!(elsewhere.post(&answer).await?.status, 202);
    let answers = wait::until("the answer", ANSWERED_WITHIN, async || {
        let result = session.call("answers", json!({})).await?;
        let answers = result["structuredContent"]["answers"].clone();
        Ok((answers != json!([])).then_some(answers))
    })
    .await?;
    let content = json!({"answer": question_text});
    assert_eq!(
        answers,
        json!([{"asked": question_text, "action": "accept", "content": content}])
    );
    Ok(())
}

/// All of them wait for their clients at the same time before the first one answers.
#[tokio::test]
async fn the_questions_of_two_hundred_sessions_are_never_misrouted() -> anyhow::Result<()> {
    const SESSIONS: usize = 200;
    let scene = Fixtures::start("").await?;
    let all_asked = Barrier::new(SESSIONS);
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        // A session of `stdio` is a process.
        let server = match number % 8 {
            0 | 4 => "stdio",
            1 | 5 => "sse",
            _ => "http",
        };
        let session = scene.open(server, number).await?;
        // The session's next request goes to the second gateway; what answers begins at the third.
        let session = scene.fork(&session, server, number + 1);
        let elsewhere = scene.fork(&session, server, number + 2);
        let secret = format!("s{number}");
        sessions.push(ask_twice(session, elsewhere, secret, &all_asked));
    }
    try_join_all(sessions).await?;
    Ok(())
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_sees_no_question_and_the_server_is_told()
-> anyhow::Result<()> {
    let scene = Fixtures::start("").await?;
    for server in ["stdio", "sse"] {
        let opening = Opening {
            capabilities: json!({}),
            ..Opening::default()
        };
        let endpoints = scene.fleet.endpoints(server, 0);
        let mut session = McpSession::open_with(&scene.client, &endpoints, opening).await?;
        let mut general = scene.fork(&session, server, 2).listen(None).await?;
        for tool in ["ask", "sample", "roots"] {
            let exchange = session
                .request("tools/call", json!({"name": tool, "arguments": {}}))
                .await?;
            assert_eq!(exchange.before, Vec::<Value>::new(), "{tool} at {server}");
            let result = result_of(exchange.response)?;
            assert_eq!(result["isError"], true, "{tool} at {server}: {result}");
        }
        // The first that comes on the other stream is what is sent now.
        let kind = json!({"kind": "prompts"});
        session.call("notify_list_changed", kind).await?;
        let told = general.next_message().await?.context("a notification")?;
        assert_eq!(
            told["method"], "notifications/prompts/list_changed",
            "{server}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_call_whose_question_nobody_answers_ends() -> anyhow::Result<()> {
    let scene = Fixtures::start("[upstream]\nclient_answer_timeout_ms = 1000\n").await?;
    for server in ["stdio", "sse"] {
        let mut session = scene.open(server, 0).await?;
        let mut asked = Asked::begin(&mut session, "s").await?;
        let withdrawn = asked.stream.next_message().await?.context("a message")?;
        assert_eq!(withdrawn["method"], "notifications/cancelled", "{server}");
        assert_eq!(
            withdrawn["params"]["requestId"], asked.question["id"],
            "{server}"
        );
        // Too late, and no fault of the client's.
        let late = asked.answer()?;
        assert_eq!(session.post(&late).await?.status, 202, "{server}");
        let result = asked.result().await?;
        let text = text_of(&result);
        assert_eq!(result["isError"], true, "{server}: {result}");
        assert!(text.contains("did not answer in time"), "{server}: {text}");
    }
    Ok(())
}

/// A server asks whether the connection lives, and it does, whether or not its client listens.
#[tokio::test]
async fn a_servers_ping_is_answered_where_nobody_listens() -> anyhow::Result<()> {
    let scene = Fixtures::start("").await?;
    for server in ["stdio", "sse"] {
        let mut session = scene.open(server, 0).await?;
        for _ in 0..3 {
            let params = json!({"name": "ping_client", "arguments": {}});
            let exchange = session.request("tools/call", params).await?;
            assert_eq!(exchange.before, Vec::<Value>::new(), "{server}");
            let result = result_of(exchange.response)?;
            assert_eq!(
                result["structuredContent"],
                json!({"answered": true}),
                "{server}"
            );
        }
    }
    Ok(())
}

/// Ids that look like `id` and were given to nobody: another seal, no seal, another epoch, another request.
fn forgeries(id: &str) -> anyhow::Result<Vec<String>> {
    let (marks, request) = id
        .strip_prefix("s:")
        .and_then(|rest| rest.split_once(':'))
        .context("a marked id")?;
    let (epoch, seal) = marks.split_once('.').context("a seal")?;
    let first = seal.get(..1).context("a digit")?;
    let other_seal = seal.replacen(first, if first == "0" { "1" } else { "0" }, 1);
    Ok(vec![
        format!("s:{epoch}.{other_seal}:{request}"),
        format!("s:{epoch}.{}:{request}", &seal[1..]),
        format!(
            "s:{epoch}.{}:{request}",
            seal.to_uppercase().replace(char::is_numeric, "A")
        ),
        format!("s:{epoch}.:{request}"),
        format!("s:{epoch}:{request}"),
        format!("s:{}.{seal}:{request}", epoch.parse::<u64>()? + 1),
        format!("s:{epoch}.{seal}:9{request}"),
    ])
}

#[tokio::test]
async fn forged_answers_and_answers_of_others_are_refused_and_the_right_one_counts()
-> anyhow::Result<()> {
    let scene = Fixtures::start("").await?;
    for (server, other_server) in [("stdio", "sse"), ("sse", "http"), ("http", "stdio")] {
        let mut session = scene.open(server, 0).await?;
        let mut other = scene.open(server, 1).await?;
        let others = Asked::begin(&mut other, "other").await?;
        let asked = Asked::begin(&mut session, "own").await?;
        let mut at_other_server = scene.fork(&session, other_server, 0);

        let stolen = json!({"action": "accept", "content": {"answer": "stolen"}});
        let own_id = asked.question["id"].as_str().context("a text")?;
        for id in forgeries(own_id)? {
            let reply = session.post(&answer_to(&json!(id), &stolen)).await?;
            let refused = refusal(reply).await?;
            assert_eq!(refused, (StatusCode::BAD_REQUEST, -32003), "{server}: {id}");
        }
        let own = answer_to(&asked.question["id"], &stolen);
        let foreign = answer_to(&others.question["id"], &stolen);
        for (poster, answer) in [(&mut session, &foreign), (&mut other, &own)] {
            let refused = refusal(poster.post(answer).await?).await?;
            assert_eq!(refused, (StatusCode::BAD_REQUEST, -32003), "{server}");
        }
        // The session is none of the other server's.
        let refused = refusal(at_other_server.post(&own).await?).await?;
        assert_eq!(refused, (StatusCode::NOT_FOUND, -32001), "{server}");

        for (poster, asked, secret) in [(&mut session, asked, "own"), (&mut other, others, "other")]
        {
            assert_eq!(poster.post(&asked.answer()?).await?.status, 202);
            let result = asked.result().await?;
            let answer = &result["structuredContent"]["answer"];
            assert_eq!(*answer, format!("The secret is {secret}."), "{server}");
        }
    }
    Ok(())
}
