//! The fixture on stdio: one process, one session, and a client of the harness that starts it. What the tests of
//! servers of the kind `stdio` lean on.

use mooring_tests::fixture::stdio_command;
use mooring_tests::journal::{Entry, Event, Journal};
use mooring_tests::process_tree::{children_of, is_running, started_with};
use mooring_tests::session::result_of;
use mooring_tests::stdio::{StdioConnection, StdioSession};
use mooring_tests::wait;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Answers an elicitation with the question itself, so that the result shows both.
pub(crate) fn echo(question: &Value) -> anyhow::Result<Value> {
    let message = question["params"]["message"].clone();
    Ok(json!({"action": "accept", "content": {"answer": message}}))
}

#[tokio::test]
async fn one_process_of_the_fixture_on_stdio_is_one_session() -> anyhow::Result<()> {
    let journal = Journal::new()?;
    let command = stdio_command("one", Some(&journal), &[])?;
    let mut first = StdioSession::start(&command).await?;
    let mut second = StdioSession::start(&command).await?;
    assert_eq!((first.increment().await?, first.increment().await?), (1, 2));
    assert_eq!(second.increment().await?, 1);
    let whoami = first.call("whoami", json!({})).await?;
    let id = first.connection().id().expect("it runs");
    assert_eq!(whoami["structuredContent"]["pid"], id);
    assert!(children_of(std::process::id())?.contains(&id));

    first.connection().close();
    assert!(first.connection().ended().await?.success());
    let ids = |entries: Vec<Entry>| -> Vec<u32> { entries.iter().map(|entry| entry.pid).collect() };
    assert_eq!(journal.of(Event::Initialized)?.len(), 2);
    assert_eq!(ids(journal.of(Event::Stopped)?), [id]);
    Ok(())
}

#[tokio::test]
async fn the_fixture_on_stdio_asks_and_gets_its_answer() -> anyhow::Result<()> {
    let mut session = StdioSession::start(&stdio_command("one", None, &[])?).await?;
    let params = json!({"name": "ask", "arguments": {"secret": "s1"}});
    let exchange = session
        .request_answering("tools/call", params, echo)
        .await?;
    assert_eq!(exchange.before[0]["method"], "elicitation/create");
    let expected = json!({"action": "accept", "answer": "The secret is s1.", "secret": "s1"});
    assert_eq!(result_of(exchange.response)?["structuredContent"], expected);
    Ok(())
}

/// Two calls of one session at once, one of them withdrawn: the journal has the order in which it was.
#[tokio::test]
async fn the_journal_shows_calls_that_overlap_and_one_that_was_withdrawn() -> anyhow::Result<()> {
    let journal = Journal::new()?;
    let mut session = StdioSession::start(&stdio_command("one", Some(&journal), &[])?).await?;
    let hang = session.request_body(
        "tools/call",
        json!({"name": "hang", "arguments": {"token": "hanging"}}),
    );
    session.send(&hang).await?;
    journal
        .wait_for(Event::Begin, 1, wait::STARTED_WITHIN)
        .await?;
    session
        .call("slow", json!({"ms": 1, "token": "slow"}))
        .await?;
    let params = json!({"requestId": hang["id"]});
    session
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))
        .await?;
    journal
        .wait_for(Event::Cancelled, 1, wait::STARTED_WITHIN)
        .await?;
    assert_eq!(journal.tokens_of(Event::Begin)?, ["hanging", "slow"]);
    assert_eq!(journal.tokens_of(Event::End)?, ["slow"]);
    assert_eq!(journal.overlap_max()?, 2);
    Ok(())
}

#[tokio::test]
async fn a_stubborn_fixture_ends_only_by_force_and_a_daemon_outlives_it() -> anyhow::Result<()> {
    let name = format!("stubborn-{}", std::process::id());
    let mut session = StdioSession::start(&stdio_command(&name, None, &["--stubborn"])?).await?;
    let daemon = session.call("spawn_daemon", json!({})).await?;
    let daemon = daemon["structuredContent"]["pid"].as_u64().expect("an id");
    let daemon = u32::try_from(daemon)?;
    let id = session.connection().id().expect("it runs");
    let process = Pid::from_raw(i32::try_from(id)?).expect("an id");

    kill_process(process, Signal::TERM)?;
    // It has handled the signal when it answers again.
    session.call("whoami", json!({})).await?;
    session.connection().close();
    assert_eq!(started_with(&name)?.into_iter().collect::<Vec<_>>(), [id]);
    kill_process(process, Signal::KILL)?;
    session.connection().ended().await?;
    assert!(started_with(&name)?.is_empty());

    assert!(is_running(daemon), "nobody has ended it");
    kill_process(
        Pid::from_raw(i32::try_from(daemon)?).expect("an id"),
        Signal::KILL,
    )?;
    Ok(())
}

#[tokio::test]
async fn what_the_fixture_says_beside_its_messages_is_seen() -> anyhow::Result<()> {
    let mut session = StdioSession::start(&stdio_command("one", None, &[])?).await?;
    session
        .call("complain", json!({"line": "a complaint"}))
        .await?;
    let errors = std::fs::read_to_string(session.connection().errors())?;
    assert!(errors.lines().any(|line| line == "a complaint"), "{errors}");
    let error = session
        .call("babble", json!({"line": "no message"}))
        .await
        .expect_err("no JSON");
    assert!(
        format!("{error:#}").contains("parse no message"),
        "{error:#}"
    );
    Ok(())
}

#[tokio::test]
async fn a_fixture_that_exits_in_mid_call_ends_the_connection() -> anyhow::Result<()> {
    let mut session = StdioSession::start(&stdio_command("one", None, &[])?).await?;
    session
        .call("exit", json!({"code": 3}))
        .await
        .expect_err("no response");
    assert_eq!(session.connection().ended().await?.code(), Some(3));
    Ok(())
}

#[tokio::test]
async fn nobody_who_closes_before_a_session_begins_is_blamed() -> anyhow::Result<()> {
    let mut connection = StdioConnection::start(&stdio_command("one", None, &[])?)?;
    connection.close();
    assert!(connection.ended().await?.success());
    Ok(())
}
