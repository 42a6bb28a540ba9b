//! Scripts and tools that run to an end: the SDK clients in Python and TypeScript, and the conformance suite.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::code::USER;
use crate::paths;

/// How long a script may take.
const ENDED_WITHIN: Duration = Duration::from_secs(180);

/// A script's exit status and output.
#[derive(Debug)]
pub struct Output {
    /// Whether the exit status was 0.
    pub succeeded: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// The report of a round-robin client of `tests/clients`.
#[derive(Debug, Deserialize)]
pub struct Counts {
    /// The replies of each session in order: as numbers if possible, else as text.
    pub sessions: BTreeMap<String, Vec<serde_json::Value>>,
    /// Requests that were sent to another gateway because the first could not be reached (`refused`), or
    /// because its connection broke before a reply (`broken`: the request may have run).
    pub retries: Retries,
    /// Errors by session; empty if there were none.
    pub errors: BTreeMap<String, String>,
}

/// See [`Counts::retries`].
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub struct Retries {
    /// The connection was refused: the request was certainly not received.
    pub refused: u64,
    /// The connection broke after the request was sent.
    pub broken: u64,
    /// The client was told, by the gateway or by `--broken tell`, that the call may have run; it repeated the call.
    pub unknown: u64,
}

/// What an official SDK got from a server, as `answers.py` and `answers.mjs` of `tests/clients` report it.
#[derive(Debug, Deserialize)]
pub struct Answers {
    /// The names of its tools.
    pub tools: Vec<String>,
    /// The results of the calls, in order.
    pub answers: Vec<Answer>,
}

/// The result of one call; the SDK validated it against the tool's output schema.
#[derive(Debug, Deserialize)]
pub struct Answer {
    /// Whether the tool reported an error.
    pub is_error: bool,
    /// Its structured content; null if it has none.
    #[serde(default)]
    pub structured: Value,
    /// Its text.
    pub text: String,
}

/// Makes these calls as a user with the SDK of `script` (selected by `sdk`, if there are several). Requests go to the
/// endpoints in turn.
pub async fn answers(
    script: &str,
    sdk: &[&str],
    endpoints: &[String],
    user: &str,
    calls: impl Iterator<Item = (&str, &Value)>,
) -> anyhow::Result<Answers> {
    let calls: Value = calls
        .map(|(tool, arguments)| json!({"name": tool, "arguments": arguments}))
        .collect();
    let (calls, user) = (calls.to_string(), format!("{USER}={user}"));
    let mut words = vec!["--header", &user, "--calls", &calls];
    for endpoint in endpoints {
        words.extend(["--url", endpoint]);
    }
    words.extend(sdk);
    run_client_for(script, &words).await
}

/// Runs a round-robin client: `tests/clients/SCRIPT` with the interpreter for its extension.
pub async fn run_client(script: &str, arguments: &[&str]) -> anyhow::Result<Counts> {
    run_client_for(script, arguments).await
}

/// The same for any client that reports in JSON.
pub async fn run_client_for<R: DeserializeOwned>(
    script: &str,
    arguments: &[&str],
) -> anyhow::Result<R> {
    let interpreter = match Path::new(script).extension().and_then(OsStr::to_str) {
        Some("py") => paths::tool("python")?,
        Some("mjs") => paths::tool("node")?,
        _ => bail!("no interpreter is known for {script}"),
    };
    let file = paths::test_file(&format!("clients/{script}"))?;
    let mut command = Command::new(interpreter);
    command.arg(file).args(arguments);
    let output = run(script, &mut command).await?;
    ensure!(
        output.succeeded,
        "{script} failed:\n{}\n{}",
        output.stdout,
        output.stderr
    );
    serde_json::from_str(&output.stdout).with_context(|| {
        format!(
            "read the report of {script}:\n{}\n{}",
            output.stdout, output.stderr
        )
    })
}

/// Runs the official conformance suite against `url` with further arguments, for instance
/// `["--requirements", "2025-11-25"]`, and with an access token in every request if there is one.
pub async fn run_conformance(
    url: &str,
    token: Option<&str>,
    arguments: &[&str],
) -> anyhow::Result<Output> {
    let directory =
        tempfile::TempDir::with_prefix("mooring-conformance-").context("make a directory")?;
    let mut command = Command::new(paths::tool("conformance")?);
    command
        .args(["server", "--url", url])
        .args(arguments)
        .arg("-o")
        .arg(directory.path());
    if let Some(token) = token {
        // The suite has no option for headers.
        let preloaded = paths::test_file("clients/bearer_token.mjs")?;
        command
            .env("NODE_OPTIONS", format!("--import={}", preloaded.display()))
            .env("MOORING_TEST_TOKEN", token);
    }
    run("conformance", &mut command).await
}

async fn run(name: &str, command: &mut Command) -> anyhow::Result<Output> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(ENDED_WITHIN, command.output())
        .await
        .map_err(|_| anyhow!("{name} did not end within {ENDED_WITHIN:?}"))?
        .with_context(|| format!("run {name}"))?;
    Ok(Output {
        succeeded: output.status.success(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
