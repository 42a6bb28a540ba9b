//! The official SDKs: each starts the process itself, holds what it answers against the schemas, and finds its session
//! again when it has started another.

use std::ffi::OsStr;

use anyhow::Context;
use mooring_tests::gateway::Settings;
use mooring_tests::script::run_client_for;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{SERVER, counted, with_fastmcp};

/// What a client reports.
#[derive(Debug, Deserialize)]
struct Report {
    tools: Vec<String>,
    answers: Vec<Answer>,
    /// How each process ended that it started.
    ended: Vec<Value>,
}

#[derive(Debug, Deserialize)]
struct Answer {
    is_error: bool,
    structured: Value,
}

/// A client of `tests/clients`, and the arguments that choose its SDK.
type Sdk<'a> = (&'a str, [&'a str; 2]);

/// Lets the SDK start `mooring stdio --server SERVER`, list its tools and make these calls, and close.
async fn run(
    (script, chosen): Sdk<'_>,
    settings: &Settings,
    server: &str,
    calls: &[(&str, Value)],
) -> anyhow::Result<Report> {
    let directory = TempDir::new()?;
    let mut command = settings.command("stdio", directory.path())?;
    command.args(["--server", server]);
    let calls: Vec<Value> = calls
        .iter()
        .map(|(tool, arguments)| json!({"name": tool, "arguments": arguments}))
        .collect();
    let mut words: Vec<String> = chosen.map(str::to_owned).into();
    for (name, value) in command.get_envs() {
        let variable = format!("{}={}", text(name)?, text(value.unwrap_or_default())?);
        words.extend(["--env".to_owned(), variable]);
    }
    let calls = Value::from(calls).to_string();
    words.extend(["--calls".to_owned(), calls, "--".to_owned()]);
    words.push(text(command.get_program())?);
    for argument in command.get_args() {
        words.push(text(argument)?);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let report: Report = run_client_for(script, &words).await?;
    assert_eq!(report.ended, [0], "{script} {chosen:?}: {report:?}");
    Ok(report)
}

fn text(word: &OsStr) -> anyhow::Result<String> {
    Ok(word.to_str().context("a word in UTF-8")?.to_owned())
}

async fn check_server(sdk: Sdk<'_>) -> anyhow::Result<()> {
    let scene = with_fastmcp().await?;
    let mut next = 1;
    for _ in 0..2 {
        let calls = [("increment", json!({})), ("increment", json!({}))];
        let report = run(sdk, &scene.settings, SERVER, &calls).await?;
        assert_eq!(report.tools, ["increment", "whoami", "slow"]);
        assert_eq!(report.answers.len(), calls.len());
        for answer in report.answers {
            assert_eq!(counted(&answer.structured)?.0, next, "{answer:?}");
            next += 1;
        }
    }
    Ok(())
}

async fn check_sandbox(sdk: Sdk<'_>) -> anyhow::Result<()> {
    let state_home = TempDir::new()?;
    let settings = Settings::toml("").state_home(state_home.path());
    let path = "/scratch/note";
    let write = [("fs_write", json!({"path": path, "content": "kept"}))];
    let report = run(sdk, &settings, "sandbox", &write).await?;
    assert!(!report.answers[0].is_error, "{report:?}");
    let read = [
        ("fs_read", json!({"path": path})),
        ("shell_exec", json!({"code": format!("cat {path}")})),
        ("fs_read", json!({"path": "/scratch/none"})),
    ];
    let report = run(sdk, &settings, "sandbox", &read).await?;
    assert!(report.tools.iter().any(|tool| tool == "shell_exec"));
    let [file, shell, none] = &report.answers[..] else {
        panic!("as many answers as calls: {report:?}");
    };
    assert_eq!(file.structured["content"], "kept");
    assert_eq!(shell.structured["output"], "kept");
    let errors = [file, shell, none].map(|answer| answer.is_error);
    assert_eq!(errors, [false, false, true], "{report:?}");
    Ok(())
}

async fn check(sdk: Sdk<'_>) -> anyhow::Result<()> {
    check_server(sdk).await?;
    check_sandbox(sdk).await
}

#[tokio::test]
async fn the_python_sdk_starts_it_and_finds_its_session_again() -> anyhow::Result<()> {
    check(("stdio_answers.py", ["--mode", "legacy"])).await
}

#[tokio::test]
async fn the_python_sdk_that_asks_for_a_newer_revision_first_does_too() -> anyhow::Result<()> {
    check(("stdio_answers.py", ["--mode", "auto"])).await
}

#[tokio::test]
async fn the_typescript_sdk_v2_starts_it_and_finds_its_session_again() -> anyhow::Result<()> {
    check(("stdio_answers.mjs", ["--sdk", "v2"])).await
}

#[tokio::test]
async fn the_typescript_sdk_v1_starts_it_and_finds_its_session_again() -> anyhow::Result<()> {
    check(("stdio_answers.mjs", ["--sdk", "v1"])).await
}
