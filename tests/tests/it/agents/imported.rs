//! Conversations of another project's `sessions.json`, which go on here.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, ensure};
use mooring_tests::agent::{AgentHome, Ids, SERVER, agent_command};
use mooring_tests::gateway::Settings;
use mooring_tests::redis::Redis;
use mooring_tests::stdio_client::StdioClient;
use serde_json::{Value, json};

use super::{prompt_in, text};

/// A session that the agent does not know.
const UNKNOWN: &str = "eff82f41-a021-4098-80a0-95117aa3f3e4";

/// Runs the agent without any gateway; its new session.
fn session_of_its_own(home: &AgentHome, prompt: &str) -> anyhow::Result<String> {
    let before = home.sessions()?;
    let command = agent_command()?;
    let (program, arguments) = command.split_first().context("a program")?;
    let arguments = arguments
        .iter()
        .filter(|argument| *argument != "{resume}")
        .map(|argument| argument.replace("{prompt}", prompt));
    let output = Command::new(program)
        .args(arguments)
        .env(
            "STANDIN_AGENT_HOME",
            home.work_folder().with_file_name("sessions"),
        )
        .stdin(std::process::Stdio::null())
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    let after = home.sessions()?;
    let new: BTreeSet<&String> = after.difference(&before).collect();
    ensure!(new.len() == 1, "{new:?}");
    Ok((*new.first().context("a session")?).clone())
}

/// The time as that project writes it.
fn now() -> anyhow::Result<String> {
    let output = Command::new("date")
        .args(["-u", "+%Y-%m-%dT%H:%M:%S.000Z"])
        .output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// `mooring sessions import FILE`.
fn import(settings: &Settings, file: &Path) -> anyhow::Result<Output> {
    let directory = tempfile::tempdir()?;
    let mut command = settings.command("sessions", directory.path())?;
    command.arg("import").arg(file).args(["--server", SERVER]);
    Ok(command.output()?)
}

/// One call from a fresh process.
async fn call(settings: &Settings, parent: &str, prompt: &str) -> anyhow::Result<Value> {
    let mut client = StdioClient::open(settings, SERVER, &[]).await?;
    let answer = client.ask(SERVER, prompt_in(parent, prompt)).await?;
    client.close().await?;
    Ok(answer)
}

#[tokio::test]
async fn conversations_of_a_sessions_json_go_on() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    for store in ["embedded", &redis.url()] {
        let (home, state) = (AgentHome::new(Ids::Stay)?, tempfile::tempdir()?);
        let settings = home.settings(store, "")?.state_home(state.path());
        let known = session_of_its_own(&home, "remember before")?;
        let file = state.path().join("sessions.json");
        let sessions = json!({
            "parent-session-123": {"claudeSessionId": known, "updatedAt": now()?},
            "forgotten by the agent": {"claudeSessionId": UNKNOWN, "updatedAt": now()?},
            "too-old": {"claudeSessionId": known, "updatedAt": "2020-01-14T23:15:00Z"},
            "of-another-type": {"claudeSessionId": 5, "updatedAt": now()?},
            "a-flag": {"claudeSessionId": "--help", "updatedAt": now()?},
            "nothing": null,
        });
        std::fs::write(&file, serde_json::to_vec_pretty(&sessions)?)?;
        let output = import(&settings, &file)?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{store}: {errors}");
        for skipped in ["too-old", "of-another-type", "a-flag", "nothing"] {
            assert!(errors.contains(skipped), "{store}: {skipped}: {errors}");
        }

        let answer = call(&settings, "parent-session-123", "recall").await?;
        assert_eq!(answer["result"], "before", "{store}");
        assert_eq!(answer["resumed"], true);
        assert_eq!(answer["startedFresh"], Value::Null);
        assert_eq!(answer["agentSessionId"], known);

        let answer = call(&settings, "forgotten by the agent", "remember anew").await?;
        assert_eq!(answer["resumed"], false, "{store}: {answer}");
        let reason = text(&answer, "startedFresh");
        assert!(reason.contains("did not know"), "{reason}");
        let answer = call(&settings, "forgotten by the agent", "recall").await?;
        assert_eq!(answer["result"], "anew", "{store}");
        assert_eq!(answer["resumed"], true);

        for skipped in ["too-old", "of-another-type", "a-flag", "nothing"] {
            let answer = call(&settings, skipped, "recall").await?;
            assert_eq!(answer["resumed"], false, "{store}: {skipped}");
            assert_eq!(answer["startedFresh"], Value::Null);
        }
    }
    Ok(())
}

#[tokio::test]
async fn importing_again_takes_back_nothing_that_was_said_since() -> anyhow::Result<()> {
    let (home, state) = (AgentHome::new(Ids::Change)?, tempfile::tempdir()?);
    let settings = home.settings("embedded", "")?.state_home(state.path());
    let known = session_of_its_own(&home, "remember before")?;
    let file = state.path().join("sessions.json");
    let sessions = json!({"chat": {"claudeSessionId": known, "updatedAt": now()?}});
    std::fs::write(&file, sessions.to_string())?;
    for _ in 0..2 {
        let output = import(&settings, &file)?;
        assert!(output.status.success(), "{output:?}");
    }
    call(&settings, "chat", "remember since").await?;
    let output = import(&settings, &file)?;
    assert!(output.status.success(), "{output:?}");
    let answer = call(&settings, "chat", "recall").await?;
    assert_eq!(answer["result"], "before\nsince");
    Ok(())
}

#[tokio::test]
async fn a_file_that_is_no_sessions_json_is_refused_and_changes_nothing() -> anyhow::Result<()> {
    let (home, state) = (AgentHome::new(Ids::Stay)?, tempfile::tempdir()?);
    let settings = home.settings("embedded", "")?.state_home(state.path());
    call(&settings, "chat", "remember a").await?;
    let file = state.path().join("sessions.json");
    for text in [
        "",
        "[]",
        "null",
        "{\"chat\": {\"claudeSessionId\": \"x\", \"upda",
        "sessions",
    ] {
        std::fs::write(&file, text)?;
        let output = import(&settings, &file)?;
        assert_eq!(output.status.code(), Some(1), "{text:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{text:?}");
    }
    let answer = call(&settings, "chat", "recall").await?;
    assert_eq!(answer["result"], "a");
    Ok(())
}
