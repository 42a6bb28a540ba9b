//! Agent servers under test: the stand-in agent `tests/servers/agent.py`, its sessions, and users of its tool.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::HttpClient;
use crate::code::USER;
use crate::gateway::{Gateway, Settings};
use crate::paths;
use crate::session::{McpSession, Opening};

/// The id of the agent server, and the name of its tool, in the settings of [`AgentHome::settings`].
pub const SERVER: &str = "assistant";

/// How long one call of a user may take.
const CALL_WITHIN: std::time::Duration = std::time::Duration::from_secs(60);

/// The directory of the stand-in agent's sessions, shared by all gateways, and a working directory.
#[derive(Debug)]
pub struct AgentHome {
    directory: TempDir,
    ids: Ids,
}

/// The id that a resumed run prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// The same.
    Stay,
    /// A new one each time; the old one can still be resumed, and stays as it was.
    Change,
}

impl AgentHome {
    /// No session yet.
    pub fn new(ids: Ids) -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("mooring-agent-").context("make a directory")?;
        for name in ["sessions", "work"] {
            std::fs::create_dir(directory.path().join(name))?;
        }
        Ok(Self { directory, ids })
    }

    /// Its default working directory.
    #[must_use]
    pub fn work_folder(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    /// The table of an agent server with this id that runs the stand-in, with the profile of the agent whose output it
    /// imitates. `more` is appended to that table.
    pub fn server_toml(&self, id: &str, more: &str) -> anyhow::Result<String> {
        let command = agent_command()?;
        let resume = ["--resume={session}"];
        let (work_folder, home) = (self.work_folder(), self.home());
        let forks = i32::from(self.ids == Ids::Change).to_string();
        // The debug format of these strings and lists is valid TOML: nothing in them needs escaping.
        Ok(format!(
            "[[servers]]\nid = {id:?}\nkind = \"agent\"\nallow = [{{}}]\nprofile = \"claude\"\ncommand = {command:?}\n\
             resume = {resume:?}\ndirectory = {work_folder:?}\n\
             env = {{ STANDIN_AGENT_HOME = {home:?}, STANDIN_AGENT_FORK_IDS = {forks:?} }}\n{more}\n"
        ))
    }

    /// Gateways with this one agent server and this store; users are named by [`USER`]. `more` is further lines of the
    /// server's table.
    pub fn settings(&self, store_url: &str, more: &str) -> anyhow::Result<Settings> {
        let server = self.server_toml(SERVER, more)?;
        let toml = format!("[store]\nurl = {store_url:?}\n\n{server}");
        Ok(Settings::toml(toml)
            .users_by_header()
            // On a busy machine a gateway that starts many programs may beat late, and loses its turns by that.
            .env("MOORING_WORKER_BEAT_TTL_MS", "10000"))
    }

    /// The ids of the agent's own sessions.
    pub fn sessions(&self) -> anyhow::Result<BTreeSet<String>> {
        let mut sessions = BTreeSet::new();
        for entry in std::fs::read_dir(self.home())? {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                let name = path.file_stem().and_then(|name| name.to_str());
                sessions.insert(name.context("a session's name")?.to_owned());
            }
        }
        Ok(sessions)
    }

    /// What a session has remembered, in order.
    pub fn remembered(&self, session: &str) -> anyhow::Result<Vec<String>> {
        let text = std::fs::read_to_string(self.session_file(session))?;
        let conversation: Value = serde_json::from_str(&text)?;
        let remembered = conversation.get("remembered").context("what it holds")?;
        Ok(serde_json::from_value(remembered.clone())?)
    }

    /// Deletes one of them, as an agent does that has become too old for it.
    pub fn lose(&self, session: &str) -> anyhow::Result<()> {
        std::fs::remove_file(self.session_file(session)).context("delete a session of the agent")
    }

    fn home(&self) -> PathBuf {
        self.directory.path().join("sessions")
    }

    fn session_file(&self, session: &str) -> PathBuf {
        self.home().join(format!("{session}.json"))
    }
}

/// The command template of the stand-in.
pub fn agent_command() -> anyhow::Result<Vec<String>> {
    let text = |path: &Path| path.display().to_string();
    let (python, program) = (
        paths::tool("python")?,
        paths::test_file("servers/agent.py")?,
    );
    let mut command = vec![text(&python), text(&program)];
    command.extend(
        [
            "--output-format=stream-json",
            "{resume}",
            "--prompt={prompt}",
        ]
        .map(str::to_owned),
    );
    Ok(command)
}

/// One user of an agent server; each call may go to another gateway.
#[derive(Debug)]
pub struct AgentUser {
    session: McpSession,
}

impl AgentUser {
    /// Initializes as `user` over the gateways' agent servers, which are used in turn.
    pub async fn open(gateways: &[&Gateway], user: &str) -> anyhow::Result<Self> {
        let endpoints: Vec<String> = gateways.iter().map(|g| g.mcp_url(SERVER)).collect();
        let opening = Opening::default().header(USER, user)?;
        let client = HttpClient::new(CALL_WITHIN);
        let session = McpSession::open_with(&client, &endpoints, opening).await?;
        Ok(Self { session })
    }

    /// Calls the tool: its structured answer, and whether it is marked as an error.
    pub async fn call(&mut self, arguments: Value) -> anyhow::Result<(Value, bool)> {
        let result = self.session.call(SERVER, arguments).await?;
        let is_error = result.get("isError") == Some(&json!(true));
        let structured = result
            .get("structuredContent")
            .with_context(|| format!("structured content: {result}"))?;
        Ok((structured.clone(), is_error))
    }

    /// Runs a prompt in the conversation of a parent session; it has to succeed.
    pub async fn run(&mut self, parent: &str, prompt: &str) -> anyhow::Result<Value> {
        let arguments = json!({"prompt": prompt, "parentSessionId": parent});
        let (answer, is_error) = self.call(arguments).await?;
        ensure!(!is_error, "{prompt} failed: {answer}");
        Ok(answer)
    }

    /// The same; returns the agent's answer.
    pub async fn ask(&mut self, parent: &str, prompt: &str) -> anyhow::Result<String> {
        let answer = self.run(parent, prompt).await?;
        let result = answer.get("result").and_then(Value::as_str);
        Ok(result.context("a result")?.to_owned())
    }
}
