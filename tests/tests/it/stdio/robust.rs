//! Input that no client should write, and ends that come from any side: every line is answered or counts for nothing, and
//! what is written is messages and nothing else.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::Settings;
use mooring_tests::journal::{Event, Journal};
use mooring_tests::session::Opening;
use mooring_tests::stdio_client::StdioClient;
use mooring_tests::wait::{STARTED_WITHIN, until_logged};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use super::{SERVER, count, with_fixture};
use crate::rig::kept;
use crate::scripted::{Exchange, Scripted};

/// The longest line, in the settings of the tests that write a longer one.
const LINE_BYTES_MAX: usize = 1024;

/// How long a process may take to end whose client has gone.
const ENDED_WITHIN: Duration = Duration::from_secs(60);

/// Writes a line that is answered with an error of this code for this id, and no more.
async fn refuses(client: &mut StdioClient, line: &str, id: Value, code: i64) -> anyhow::Result<()> {
    client.write_text(&format!("{line}\n")).await?;
    let answer = client.read().await?.context("its output is at its end")?;
    let start: String = line.chars().take(80).collect();
    assert_eq!(answer["jsonrpc"], "2.0", "{start}: {answer}");
    assert_eq!(answer.get("id"), Some(&id), "{start}: {answer}");
    assert_eq!(answer["error"]["code"], code, "{start}: {answer}");
    assert!(answer["error"]["message"].is_string(), "{start}: {answer}");
    assert_eq!(answer.get("result"), None, "{start}: {answer}");
    Ok(())
}

/// Lines that are no message of a client, whenever they come.
async fn refuses_what_is_no_message(client: &mut StdioClient) -> anyhow::Result<()> {
    let long = "x".repeat(LINE_BYTES_MAX + 1);
    let very_long = "x".repeat(200 * LINE_BYTES_MAX);
    // A request too, were it not for its length.
    let padded = format!(
        r#"{{"jsonrpc":"2.0","id":5,"method":"ping"{}}}"#,
        " ".repeat(LINE_BYTES_MAX)
    );
    let nested = "[".repeat(LINE_BYTES_MAX / 2);
    let table = [
        ("garbage", -32700),
        ("{\"jsonrpc\":\"2.0\",", -32700),
        (&nested, -32600),
        ("17", -32600),
        ("[]", -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
        (r#"{"jsonrpc":"1.0","id":2,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":3}"#, -32600),
        (&long, -32000),
        (&very_long, -32000),
    ];
    for (line, code) in table {
        // What is empty is nothing.
        client.write_text("\n \t\r\n").await?;
        refuses(client, line, Value::Null, code).await?;
    }
    refuses(client, &padded, json!(5), -32000).await?;
    Ok(())
}

#[tokio::test]
async fn what_is_no_message_or_comes_too_early_is_refused_and_the_next_line_served()
-> anyhow::Result<()> {
    let (server, state_home) = (Fixture::start("one").await?, TempDir::new()?);
    let settings = kept(&[server.url()])
        .state_home(state_home.path())
        .env("MOORING_LISTEN_BODY_BYTES_MAX", &LINE_BYTES_MAX.to_string())
        .env("MOORING_LOG_LEVEL", "debug");
    let mut client = StdioClient::start(&settings, SERVER, &[])?;
    refuses_what_is_no_message(&mut client).await?;
    let list = r#"{"jsonrpc":"2.0","id":"early","method":"tools/list"}"#;
    refuses(&mut client, list, json!("early"), -32600).await?;
    // For these there is nobody yet, and no answer.
    client
        .write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        .await?;
    client
        .write(&json!({"jsonrpc": "2.0", "id": 3, "result": {}}))
        .await?;
    assert_eq!(client.request("ping", json!({})).await?, json!({}));

    client.initialize().await?;
    refuses_what_is_no_message(&mut client).await?;
    let again = json!({"jsonrpc": "2.0", "id": "again", "method": "initialize",
        "params": Opening::default().initialize_params()});
    refuses(&mut client, &again.to_string(), json!("again"), -32600).await?;
    let unknown = r#"{"jsonrpc":"2.0","id":-7,"method":"vendor/method"}"#;
    refuses(&mut client, unknown, json!(-7), -32601).await?;
    client
        .write(&json!({"jsonrpc": "2.0", "id": "s:1:1", "result": {}}))
        .await?;
    assert_eq!(client.request("ping", json!({})).await?, json!({}));
    assert_eq!(count(&mut client).await?.0, 1);
    // Every line of its output was read as a message; the log is elsewhere.
    until_logged("was refused", 1, || client.log_text()).await?;
    client.close().await
}

#[tokio::test]
async fn what_was_asked_before_the_input_ended_is_answered_before_the_process_ends()
-> anyhow::Result<()> {
    let scene = with_fixture().await?;
    let mut client = StdioClient::open(&scene.settings, SERVER, &[]).await?;
    let mut expected = BTreeMap::new();
    for token in ["first", "second", "third"] {
        let params = json!({"name": "slow", "arguments": {"ms": 500, "token": token}});
        let id = client.send("tools/call", params).await?;
        expected.insert(id.to_string(), json!(token));
    }
    // Its line has no end.
    client
        .write_text(r#"{"jsonrpc":"2.0","id":"last","method":"ping"}"#)
        .await?;
    expected.insert("\"last\"".to_owned(), Value::Null);
    client.close_input();
    let mut answered = BTreeMap::new();
    while let Some(message) = client.read().await? {
        if let (Some(result), Some(id)) = (message.get("result"), message.get("id")) {
            let token = result["structuredContent"]["token"].clone();
            let before = answered.insert(id.to_string(), token);
            assert_eq!(before, None, "answered twice: {message}");
        }
    }
    assert_eq!(answered, expected);
    let status = client.ended().await?;
    assert_eq!(status.code(), Some(0), "{}", client.log_text());
    Ok(())
}

/// A fixture whose calls are seen as they begin, and settings for processes in front of it.
async fn journalled(
    journal: &Journal,
    state_home: &TempDir,
) -> anyhow::Result<(Fixture, Settings)> {
    let path = journal.path().display().to_string();
    let server = Fixture::start_with("one", &["--journal", &path]).await?;
    let settings = kept(&[server.url()]).state_home(state_home.path());
    Ok((server, settings))
}

#[tokio::test]
async fn a_signal_ends_it_cleanly_also_while_a_call_hangs() -> anyhow::Result<()> {
    let (journal, state_home) = (Journal::new()?, TempDir::new()?);
    let (_server, settings) = journalled(&journal, &state_home).await?;
    for (before, signal) in [Signal::TERM, Signal::INT].into_iter().enumerate() {
        // Its own session: in one session the second call would wait for the first.
        let mut client = StdioClient::open(&settings, SERVER, &["--new-session"]).await?;
        let params = json!({"name": "hang", "arguments": {}});
        client.send("tools/call", params).await?;
        journal
            .wait_for(Event::Begin, before + 1, STARTED_WITHIN)
            .await?;
        let id = Pid::from_raw(i32::try_from(client.process_id()?)?).context("a process id")?;
        kill_process(id, signal)?;
        let status = client.ended().await?;
        assert_eq!(status.code(), Some(0), "{signal:?}: {}", client.log_text());
    }
    Ok(())
}

#[tokio::test]
async fn it_ends_when_nobody_reads_its_output_any_more() -> anyhow::Result<()> {
    let (journal, state_home) = (Journal::new()?, TempDir::new()?);
    let (_server, settings) = journalled(&journal, &state_home).await?;
    let directory = TempDir::new()?;
    let mut command = settings.command("stdio", directory.path())?;
    command.args(["--server", SERVER]);
    let mut process = Command::from(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    // Held open to the end of the test.
    let mut input = process.stdin.take().context("its standard input")?;
    let output = process.stdout.take().context("its standard output")?;
    let mut output = BufReader::new(output).lines();

    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": Opening::default().initialize_params()});
    input
        .write_all(format!("{initialize}\n").as_bytes())
        .await?;
    timeout(ENDED_WITHIN, output.next_line())
        .await?
        .context("read the introduction")?;
    let hang = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "hang", "arguments": {}}});
    input.write_all(format!("{hang}\n").as_bytes()).await?;
    journal.wait_for(Event::Begin, 1, STARTED_WITHIN).await?;

    // The call has no end, and nothing is ever written again: only the reader's absence can be seen.
    drop(output);
    let status = timeout(ENDED_WITHIN, process.wait())
        .await
        .context("it does not end")??;
    assert_eq!(status.code(), Some(0));
    drop(input);
    Ok(())
}

#[tokio::test]
async fn a_message_that_has_many_lines_upstream_is_one_line_here() -> anyhow::Result<()> {
    let (mut upstream, state_home) = (Scripted::start().await?, TempDir::new()?);
    let settings = kept(&[upstream.url()]).state_home(state_home.path());
    let mut client = StdioClient::open(&settings, SERVER, &[]).await?;

    let id = client.send("tools/call", json!({"name": "a"})).await?;
    let exchange = next_call(&mut upstream).await?;
    let body = format!("{}\r\n\r\n", pretty(&exchange.wire_id()));
    exchange.answer("200 OK", "application/json", &body).await?;
    let answer = client.answer(id).await?;
    assert_eq!(answer["structuredContent"]["lines"], "a\nb\r\n");

    let id = client.send("tools/call", json!({"name": "b"})).await?;
    let mut exchange = next_call(&mut upstream).await?;
    let lines: String = pretty(&exchange.wire_id())
        .lines()
        .map(|line| format!("data: {line}\n"))
        .collect();
    exchange.begin_events().await?;
    exchange.chunk(format!("{lines}\n")).await?;
    // Nothing of the reply is wanted after its answer, so the gateway may have hung up.
    let _ = exchange.end().await;
    let answer = client.answer(id).await?;
    assert_eq!(answer["structuredContent"]["lines"], "a\nb\r\n");
    client.close().await
}

/// A result as some servers write it.
fn pretty(id: &str) -> String {
    format!(
        "{{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": {id},\n  \"result\": {{\n    \"content\": [],\r\n    \
         \"structuredContent\": {{\n      \"lines\": \"a\\nb\\r\\n\"\n    }}\n  }}\n}}"
    )
}

/// The next call of a tool. A GET for what answers no request is turned away on the way to it.
async fn next_call(upstream: &mut Scripted) -> anyhow::Result<Exchange> {
    loop {
        let exchange = upstream.next().await?;
        if exchange.request.method() == "tools/call" {
            return Ok(exchange);
        }
        exchange
            .answer("405 Method Not Allowed", "text/plain", "")
            .await?;
    }
}
