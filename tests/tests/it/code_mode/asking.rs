//! A tool asks its user during a run: the question reaches the client of that run, whose answer may come to any worker.

use anyhow::Context;
use futures_util::future::try_join_all;
use mooring_tests::fixture::{self, Fixture};
use mooring_tests::session::{McpSession, Opening, read_exchange, result_of};
use serde_json::{Value, json};

use super::{Rig, run};
use crate::everything_streams::read_up_to;
use crate::keyed::{instances_table, stdio_table};

fn asked() -> Opening {
    Opening {
        capabilities: json!({"elicitation": {}}),
        ..Opening::default()
    }
}

fn asking(server: &str, secret: &str) -> String {
    format!(
        "import json, tools\nprint(json.dumps(tools.{server}.ask(message='how many?', secret={secret:?})))"
    )
}

/// A run whose tool asks; the client answers with a number through another worker than asked: what the run printed.
async fn answered(mut session: McpSession, code: &str, number: usize) -> anyhow::Result<Value> {
    let params = json!({"name": "shell_exec", "arguments": {"language": "python", "code": code}});
    let call = session.request_body("tools/call", params);
    let mut stream = session.post(&call).await?;
    let question = read_up_to(&mut stream, "elicitation/create").await?;
    let question = question.last().context("a question")?;
    let answer = json!({"action": "accept", "content": {"answer": number.to_string()}});
    let message = json!({"jsonrpc": "2.0", "id": question["id"], "result": answer});
    assert_eq!(session.post(&message).await?.status, 202, "{question}");
    let exchange = read_exchange(stream, &call).await?;
    let result = result_of(exchange.response)?;
    mooring_tests::code::whole_answer(&result)
}

#[tokio::test]
async fn each_question_reaches_the_client_of_its_run_and_each_answer_its_tool() -> anyhow::Result<()>
{
    let fixture = Fixture::start("a").await?;
    let tables = [
        instances_table("web", "http", &[fixture.url()]),
        stdio_table("child", &fixture::stdio_command("d", None, &[])?),
    ];
    let rig = Rig::start(&tables.concat(), "").await?;
    let runs = (0..8).map(|number| {
        let rig = &rig;
        async move {
            let user = format!("user-{number}@example.org");
            let session = rig.open_with("sandbox", &user, asked()).await?;
            let server = if number % 2 == 0 { "web" } else { "child" };
            let secret = format!("secret-{number}");
            let answer = answered(session, &asking(server, &secret), number).await?;
            let output = answer["output"].as_str().unwrap_or_default();
            assert!(output.contains(&secret), "{answer}");
            assert!(
                output.contains(&format!("\"answer\": \"{number}\"")),
                "{answer}"
            );
            anyhow::Ok(())
        }
    });
    try_join_all(runs).await?;
    Ok(())
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_is_answered_for_and_the_code_hears_it() -> anyhow::Result<()>
{
    let fixture = Fixture::start("a").await?;
    let rig = Rig::start(&instances_table("web", "http", &[fixture.url()]), "").await?;
    let mut session = rig.open("sandbox", "ada@example.org").await?;
    let answer = run(&mut session, "python", &asking("web", "x")).await?;
    assert_eq!(answer["metrics"]["outcome"], "failed", "{answer}");
    let error = answer["error"].as_str().unwrap_or_default();
    assert!(error.contains("ToolError"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn an_answer_of_another_user_or_to_a_question_that_nobody_asked_is_refused()
-> anyhow::Result<()> {
    let fixture = Fixture::start("a").await?;
    let rig = Rig::start(&instances_table("web", "http", &[fixture.url()]), "").await?;
    let mut ada = rig.open_with("sandbox", "ada@example.org", asked()).await?;
    let mut bob = rig.open_with("sandbox", "bob@example.org", asked()).await?;
    let code = asking("web", "ada's");
    let params = json!({"name": "shell_exec", "arguments": {"language": "python", "code": code}});
    let call = ada.request_body("tools/call", params);
    let mut stream = ada.post(&call).await?;
    let question = read_up_to(&mut stream, "elicitation/create").await?;
    let id = question.last().context("a question")?["id"].clone();
    let answer = |id: &Value, number: u64| {
        let content = json!({"answer": number.to_string()});
        json!({"jsonrpc": "2.0", "id": id, "result": {"action": "accept", "content": content}})
    };
    assert_eq!(bob.post(&answer(&id, 666)).await?.status, 400);
    let forged = id
        .as_str()
        .context("an id")?
        .replace("n:python:web:s:", "n:python:web:s:9");
    assert_eq!(ada.post(&answer(&json!(forged), 666)).await?.status, 400);
    assert_eq!(
        ada.post(&answer(&json!("n:python:nowhere:s:1:1"), 666))
            .await?
            .status,
        404
    );
    assert_eq!(ada.post(&answer(&id, 5)).await?.status, 202);
    let exchange = read_exchange(stream, &call).await?;
    let result = result_of(exchange.response)?;
    let output = result["structuredContent"]["output"]
        .as_str()
        .unwrap_or_default();
    assert!(
        output.contains("\"answer\": \"5\"") && output.contains("ada's"),
        "{result}"
    );
    Ok(())
}
