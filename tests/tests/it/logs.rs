//! What others than the operator can do to the log: leave it unread, write into it, and flood it.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use mooring_tests::client::HttpClient;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::{McpSession, Opening};
use mooring_tests::stdio_client::StdioClient;
use mooring_tests::wait;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use serde_json::json;
use tempfile::TempDir;

/// Servers that each write a line of a kilobyte to stderr for every call: enough of them to fill the pipe and the queue.
const SERVERS: usize = 8;
/// Calls of all of them.
const CALLS: usize = 500;
/// How long a log line takes on a busy machine.
const LOGGED_WITHIN: Duration = Duration::from_secs(30);

/// A server whose tool writes its argument `text` to stderr, repeated to a kilobyte.
const LOUD_SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "loud", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        text = params["arguments"]["text"]
        sys.stderr.buffer.write((text * (1000 // len(text))).encode() + b"\n")
        sys.stderr.flush()
        result = {"content": []}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

/// The servers, as members of the group `all`.
fn settings(directory: &Path) -> anyhow::Result<Settings> {
    let script = directory.join("loud.py");
    std::fs::write(&script, LOUD_SERVER)?;
    let script = script.to_str().context("a path in UTF-8")?;
    let names: Vec<String> = (0..SERVERS).map(|number| format!("loud{number}")).collect();
    let mut toml = String::new();
    for name in &names {
        toml += &format!(
            "[[servers]]\nid = \"{name}\"\nkind = \"stdio\"\ncommand = [\"python3\", \"{script}\"]\n"
        );
    }
    toml += &format!("[[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = {names:?}\n");
    Ok(Settings::toml(toml))
}

/// A pipe that is read only when it is asked for.
struct UnreadPipe(File);

impl UnreadPipe {
    fn make(path: &Path) -> anyhow::Result<Self> {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        // Open for writing as well: otherwise its writers would wait for this end, and this end would see theirs go.
        let pipe = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(path)?;
        Ok(Self(pipe))
    }

    /// Reads until the text is there; what was read.
    async fn read_until(&mut self, text: &str) -> anyhow::Result<String> {
        let mut read = Vec::new();
        wait::until_true(text, LOGGED_WITHIN, async || {
            match (&self.0).take(1 << 20).read_to_end(&mut read) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => drop(other?),
            }
            Ok(String::from_utf8_lossy(&read).contains(text))
        })
        .await?;
        Ok(String::from_utf8_lossy(&read).into_owned())
    }
}

#[tokio::test]
async fn a_gateway_whose_stderr_nobody_reads_serves_on_and_says_what_it_dropped()
-> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let path = directory.path().join("stderr");
    let mut pipe = UnreadPipe::make(&path)?;
    let gateway = Gateway::start("unread", settings(directory.path())?.stderr(&path)).await?;
    let mut session = McpSession::open(&HttpClient::default(), &[gateway.mcp_url("all")]).await?;
    for call in 0..CALLS {
        let tool = format!("loud{}__say", call % SERVERS);
        session.call(&tool, json!({"text": "line "})).await?;
    }
    let lost = "mooring_log_lines_lost_total";
    let unread = gateway.metric(lost, &["reason=\"unread\""]).await?;
    assert!(unread > 0.0, "{}", gateway.metrics().await?);
    let log = pipe.read_until("log lines were dropped").await?;
    assert!(log.contains("stderr of a server"), "{log}");
    Ok(())
}

#[tokio::test]
async fn a_stdio_gateway_whose_stderr_nobody_reads_serves_on_and_ends() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let path = directory.path().join("stderr");
    let mut pipe = UnreadPipe::make(&path)?;
    let settings = settings(directory.path())?.stderr(&path);
    let mut client = StdioClient::open(&settings, "all", &[]).await?;
    for call in 0..CALLS {
        let tool = format!("loud{}__say", call % SERVERS);
        let params = json!({"name": tool, "arguments": {"text": "line "}});
        client.request("tools/call", params).await?;
    }
    // Its end waits for the reader of its log no more than its calls did.
    client.close_input();
    assert!(client.ended().await?.success());
    pipe.read_until("stderr of a server").await?;
    Ok(())
}

#[tokio::test]
async fn what_clients_and_servers_write_is_one_short_line_without_control_characters()
-> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let settings = settings(directory.path())?;
    let limited = "[[servers]]\nid = \"limited\"\ninstances = [\"http://127.0.0.1:1/mcp\"]\n\
                   allow = [{ users = [\"ada\"], tools = [\"read\"] }]\n";
    let settings = settings.more_toml(limited).users_by_header();
    let mut gateway = Gateway::start("flooded", settings).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open_with(
        &client,
        &[gateway.mcp_url("loud0")],
        Opening::default().header("x-mooring-user", "ada")?,
    )
    .await?;
    let before = gateway.process().log_text().len();
    // Refused before a session is looked for.
    let mut refused = session.fork(&client, &[gateway.mcp_url("limited")]);
    let forged = "x\" session=forged \u{202e}\u{2028} tool=x";
    let long = "é".repeat(1 << 19);
    for call in 0..5000 {
        let tool = match call {
            ..10 => long.as_str(),
            _ => forged,
        };
        let exchange = refused
            .request("tools/call", json!({"name": tool, "arguments": {}}))
            .await?;
        assert_eq!(exchange.response["error"]["code"], -32602, "{exchange:?}");
    }
    // Another event still gets through, and a server's text is no more trusted than a client's.
    let text = "\u{1b}[31m\r2026 ERROR forged\u{7f}\u{9b}\u{7}";
    session.call("say", json!({"text": text})).await?;
    let log = wait::until("the server's line", LOGGED_WITHIN, async || {
        let log = gateway.process().log_text().split_off(before);
        let is_whole = log.contains("stderr of a server") && log.contains("repeated=");
        Ok(is_whole.then_some(log))
    })
    .await?;
    let is_shown = |character: char| character == '\n' || !character.is_control();
    assert!(log.chars().all(is_shown), "{log:?}");
    assert!(!log.contains(['\u{202e}', '\u{2028}']), "{log:?}");
    for line in log.lines() {
        assert!(line.contains(" mooring"), "a forged line: {line}");
        assert!(
            !line.contains(" session=forged") || line.contains("tool=\"x"),
            "{line}"
        );
        assert!(line.len() < 4096, "{line}");
    }
    // However long the flood takes: unlimited, the first ten names alone are ten times as long.
    assert!(log.len() < 1 << 20, "{} bytes", log.len());
    let repeated = gateway
        .metric("mooring_log_lines_lost_total", &["reason=\"repeated\""])
        .await?;
    assert!(repeated > 1000.0, "{repeated}");
    Ok(())
}
