//! The profiles, held against the real agents: Claude Code, Codex, Gemini CLI and OpenCode, each with a stand-in for its
//! model. docs/agents.md names the versions. As MCP clients they call tools through a gateway. Two of them take so much
//! processor time that they are soak tests.

use anyhow::ensure;
use mooring_tests::agent::{AgentUser, SERVER};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::model::{AgentProgram, ProgramHome};
use mooring_tests::paths::workspace;
use mooring_tests::servers::Server;
use serde_json::{Value, json};

use super::{ADA, Call, prompt_in, text};

#[tokio::test]
async fn claude_code_is_as_its_profile_says() -> anyhow::Result<()> {
    check(AgentProgram::Claude).await
}

#[tokio::test]
async fn codex_is_as_its_profile_says() -> anyhow::Result<()> {
    check(AgentProgram::Codex).await
}

#[tokio::test]
#[ignore = "soak: half a minute of processor time"]
async fn soak_gemini_cli_is_as_its_profile_says() -> anyhow::Result<()> {
    check(AgentProgram::Gemini).await
}

#[tokio::test]
#[ignore = "soak: half a minute of processor time"]
async fn soak_opencode_is_as_its_profile_says() -> anyhow::Result<()> {
    check(AgentProgram::OpenCode).await
}

#[tokio::test]
async fn claude_code_calls_a_tool() -> anyhow::Result<()> {
    check_as_client(AgentProgram::Claude).await
}

#[tokio::test]
async fn codex_calls_a_tool() -> anyhow::Result<()> {
    check_as_client(AgentProgram::Codex).await
}

#[tokio::test]
#[ignore = "soak: half a minute of processor time"]
async fn soak_gemini_cli_calls_a_tool() -> anyhow::Result<()> {
    check_as_client(AgentProgram::Gemini).await
}

#[tokio::test]
#[ignore = "soak: half a minute of processor time"]
async fn soak_opencode_calls_a_tool() -> anyhow::Result<()> {
    check_as_client(AgentProgram::OpenCode).await
}

/// One conversation: begun, taken up, failed in, cancelled in, taken up again, and lost by the agent.
async fn check(program: AgentProgram) -> anyhow::Result<()> {
    let home = ProgramHome::new(program).await?;
    let toml = home.server_toml(SERVER)?;
    let settings = Settings::toml(toml).users_by_header();
    let gateway = Gateway::start(program.name(), settings).await?;
    let mut ada = AgentUser::open(&[&gateway], ADA).await?;

    let begun = ada.run("chat", "model: say one").await?;
    assert_eq!(begun["result"], "one");
    assert_eq!(begun["resumed"], false);

    // No prompt is a flag.
    let resumed = ada.run("chat", "--version model: recall").await?;
    assert_eq!(resumed["result"], "say one");
    assert_eq!(resumed["resumed"], true);
    assert_eq!(resumed["startedFresh"], Value::Null);

    let (failed, is_error) = ada.call(prompt_in("chat", "model: fail")).await?;
    assert!(is_error, "{failed}");
    assert_eq!(failed["resumed"], true);
    let cause = format!("{} {}", failed["result"], failed["error"]);
    assert!(
        cause.contains("the model fails as it was told to"),
        "{failed}"
    );

    let mut call = Call::begin(&gateway, SERVER, ADA, prompt_in("chat", "model: hang")).await?;
    home.model.until_asked("hang").await?;
    assert!(!home.processes()?.is_empty());
    call.cancel().await?;
    let (cancelled, is_error) = call.answer().await?;
    assert!(is_error, "{cancelled}");
    assert_eq!(home.processes()?.len(), 0);

    let resumed = ada.run("chat", "model: recall").await?;
    let recalled = text(&resumed, "result");
    assert!(recalled.starts_with("say one | recall"), "{resumed}");
    assert_eq!(resumed["startedFresh"], Value::Null);

    let mut elsewhere = prompt_in("chat", "model: recall");
    elsewhere["workFolder"] = json!(home.other_folder()?);
    let (answer, is_error) = ada.call(elsewhere).await?;
    assert!(!is_error, "{answer}");
    let is_resumed = matches!(program, AgentProgram::Claude | AgentProgram::Codex);
    assert_eq!(answer["resumed"], is_resumed, "{answer}");
    assert_eq!(answer["startedFresh"].is_null(), is_resumed, "{answer}");

    home.forget_all()?;
    let fresh = ada.run("chat", "model: recall").await?;
    assert_eq!(fresh["result"], "nothing");
    assert_eq!(fresh["resumed"], false);
    assert_ne!(fresh["startedFresh"], Value::Null);
    asked_its_model_alone(&home).await
}

/// The model asks for a call of a tool that an upstream server has, and says what it returned.
async fn check_as_client(program: AgentProgram) -> anyhow::Result<()> {
    let mut home = ProgramHome::new(program).await?;
    let upstream = Server::python_counting("one").await?;
    let toml = format!(
        "[[servers]]\nid = \"counting\"\naffinity = \"on\"\ninstances = [{:?}]\n{}",
        upstream.url(),
        home.server_toml(SERVER)?
    );
    let gateway = Gateway::start(program.name(), Settings::toml(toml)).await?;
    home.use_mcp_server(&gateway.mcp_url("counting"))?;
    let mut ada = AgentUser::open(&[&gateway], ADA).await?;
    let answer = ada.run("chat", "model: call increment {}").await?;
    // Agents put it in a frame of their own.
    let result = text(&answer, "result").replace('\\', "");
    assert!(result.contains("\"count\":1"), "{answer}");
    asked_its_model_alone(&home).await
}

/// Nothing else was requested, of this host or through it of another.
async fn asked_its_model_alone(home: &ProgramHome) -> anyhow::Result<()> {
    for request in home.model.seen().await? {
        let (path, _) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let is_of_the_model = [
            "/messages",
            "/responses",
            "/completions",
            ":streamGenerateContent",
        ]
        .iter()
        .any(|end| path.ends_with(end));
        ensure!(is_of_the_model, "requested: {request:?}");
    }
    Ok(())
}

#[test]
fn the_guides_name_the_versions_that_are_run() -> anyhow::Result<()> {
    let read = |name: &str| std::fs::read_to_string(workspace().join(name));
    let pins: Value = serde_json::from_str(&read("tests/tools/package.json")?)?;
    let guides = [read("docs/agents.md")?, read("docs/compatibility.md")?];
    for (name, package) in [
        ("Claude Code", "@anthropic-ai/claude-code-linux-x64"),
        ("Codex", "@openai/codex-linux-x64"),
        ("Gemini CLI", "@google/gemini-cli"),
        ("OpenCode", "opencode-linux-x64"),
    ] {
        let pin = pins["dependencies"][package].as_str().unwrap_or(package);
        let version = pin.rsplit('@').next().unwrap_or(pin);
        let row = format!("| {name} | {} |", version.trim_end_matches("-linux-x64"));
        for guide in &guides {
            ensure!(guide.contains(&row), "no row begins with {row:?}");
        }
    }
    Ok(())
}
