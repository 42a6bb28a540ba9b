//! The stand-in for model APIs, `tests/servers/model.py`, and the real command-line agents that use it.
//!
//! Invariant: an agent has its own home, no login, and no network access: the stand-in is also the proxy for all
//! requests to other hosts, so these are recorded and refused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::HttpClient;
use crate::paths;
use crate::port::free_port;
use crate::process::Process;
use crate::process_tree::started_with_variable;
use crate::wait;

/// How long an agent may take until it queries its model.
const ASKED_WITHIN: Duration = Duration::from_secs(60);

/// The name of the MCP server of [`ProgramHome::use_mcp_server`] in agents' settings.
const MCP_SERVER: &str = "tools";

/// The running stand-in.
#[derive(Debug)]
pub struct ModelApi {
    process: Process,
    port: u16,
    _directory: TempDir,
}

/// A request to the stand-in.
#[derive(Clone, Debug, Deserialize)]
pub struct ModelRequest {
    /// Its HTTP method.
    pub method: String,
    /// Its path, or the host and port of a proxy request.
    pub path: String,
    /// The commands in the user's messages, in order.
    pub said: Vec<String>,
}

impl ModelApi {
    /// Starts it.
    pub async fn start() -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("mooring-model-").context("make a directory")?;
        let port = free_port()?;
        let mut command = Command::new(paths::tool("python")?);
        command
            .arg(paths::test_file("servers/model.py")?)
            .args(["--port", &port.to_string()]);
        let log = directory.path().join("log");
        let process = Process::start("the model's stand-in", &mut command, &log)?;
        let mut model = Self {
            process,
            port,
            _directory: directory,
        };
        let (client, url) = (HttpClient::default(), model.url("/seen"));
        model
            .process
            .ready(async || client.get(&url).await.map(drop))
            .await?;
        Ok(model)
    }

    /// An address below it; the path begins with `/`, or is empty.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// All requests so far.
    pub async fn seen(&self) -> anyhow::Result<Vec<ModelRequest>> {
        let reply = HttpClient::default().get(&self.url("/seen")).await?;
        serde_json::from_value(reply.json().await?).context("what was seen")
    }

    /// Waits until a request has this command as its last.
    pub async fn until_asked(&self, command: &str) -> anyhow::Result<()> {
        wait::until_true("the agent to ask its model", ASKED_WITHIN, async || {
            let seen = self.seen().await?;
            let mut last = seen.iter().filter_map(|request| request.said.last());
            Ok(last.any(|last| last == command))
        })
        .await
    }
}

/// An agent of the registries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentProgram {
    /// Claude Code.
    Claude,
    /// Codex CLI.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// OpenCode.
    OpenCode,
}

impl AgentProgram {
    /// Its name, as a program and as a profile.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::OpenCode => "opencode",
        }
    }

    /// Its settings: files below its home. They, or [`Self::variables`], disable requests to other hosts; tools of an
    /// MCP server are allowed if there is one.
    fn files(self, model: &ModelApi, mcp_url: Option<&str>) -> Vec<(&'static str, String)> {
        let servers = |server: Value| match mcp_url {
            Some(_) => json!({MCP_SERVER: server}),
            None => json!({}),
        };
        match self {
            Self::Claude => vec![
                (
                    ".claude.json",
                    json!({"mcpServers": servers(json!({"type": "http", "url": mcp_url}))})
                        .to_string(),
                ),
                (
                    ".claude/settings.json",
                    json!({"permissions": {"allow": [format!("mcp__{MCP_SERVER}")]}}).to_string(),
                ),
            ],
            Self::Codex => {
                let url = model.url("/v1");
                let mcp = mcp_url.map(|url| {
                    format!("[mcp_servers.{MCP_SERVER}]\nurl = {url:?}\ndefault_tools_approval_mode = \"approve\"\n\
                         # Waited for before the first request.\nrequired = true\n")
                });
                let text = format!(
                    "model = \"stand-in\"\nmodel_provider = \"stand-in\"\ncheck_for_update_on_startup = false\n\
                     [analytics]\nenabled = false\n[features]\nplugins = false\napps = false\n\
                     [model_providers.stand-in]\nname = \"stand-in\"\nbase_url = {url:?}\nenv_key = \"STANDIN_KEY\"\n\
                     wire_api = \"responses\"\n{}",
                    mcp.unwrap_or_default()
                );
                vec![(".codex/config.toml", text)]
            }
            Self::Gemini => {
                let settings = json!({
                    "security": {"auth": {"selectedType": "gemini-api-key"}},
                    "general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false},
                    "privacy": {"usageStatisticsEnabled": false},
                    "mcpServers": servers(json!({"httpUrl": mcp_url, "trust": true})),
                });
                vec![(".gemini/settings.json", settings.to_string())]
            }
            Self::OpenCode => {
                let settings = json!({
                    "model": "stand-in/stand-in",
                    "small_model": "stand-in/stand-in",
                    "autoupdate": false,
                    "share": "disabled",
                    "provider": {"stand-in": {
                        "npm": "@ai-sdk/openai-compatible",
                        "options": {"baseURL": model.url("/v1"), "apiKey": "none"},
                        "models": {"stand-in": {}},
                    }},
                    "mcp": servers(json!({"type": "remote", "url": mcp_url, "oauth": false})),
                });
                vec![(".config/opencode/opencode.json", settings.to_string())]
            }
        }
    }

    fn variables(self, model: &ModelApi) -> Vec<(&'static str, String)> {
        let set = |names: &[&'static str]| {
            let ones = names.iter().map(|name| (*name, "1".to_owned()));
            ones.collect::<Vec<_>>()
        };
        let given = |name, value: &str| (name, value.to_owned());
        match self {
            Self::Claude => [
                set(&["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"]),
                vec![
                    ("ANTHROPIC_BASE_URL", model.url("")),
                    given("ANTHROPIC_API_KEY", "none"),
                    // All tools are in each request, without a search; the first request waits for them.
                    given("ENABLE_TOOL_SEARCH", "false"),
                    given("MCP_CONNECTION_NONBLOCKING", "false"),
                ],
            ]
            .concat(),
            Self::Codex => vec![given("STANDIN_KEY", "none")],
            // With an explicit model, no router model is queried.
            Self::Gemini => vec![
                ("GOOGLE_GEMINI_BASE_URL", model.url("")),
                given("GEMINI_API_KEY", "none"),
                given("GEMINI_MODEL", "gemini-2.5-flash"),
                given("GEMINI_CLI_TRUST_WORKSPACE", "true"),
            ],
            Self::OpenCode => [
                set(&[
                    "OPENCODE_DISABLE_AUTOUPDATE",
                    "OPENCODE_DISABLE_MODELS_FETCH",
                    "OPENCODE_DISABLE_LSP_DOWNLOAD",
                    "OPENCODE_DISABLE_DEFAULT_PLUGINS",
                ]),
                vec![given("npm_config_offline", "true")],
            ]
            .concat(),
        }
    }
}

/// The home of one agent, with settings and conversations, and a working directory.
#[derive(Debug)]
pub struct ProgramHome {
    program: AgentProgram,
    /// Its model.
    pub model: ModelApi,
    directory: TempDir,
    mcp_url: Option<String>,
}

impl ProgramHome {
    /// An agent that has not run yet.
    pub async fn new(program: AgentProgram) -> anyhow::Result<Self> {
        let home = Self {
            program,
            model: ModelApi::start().await?,
            directory: TempDir::with_prefix("mooring-program-").context("make a directory")?,
            mcp_url: None,
        };
        std::fs::create_dir(home.work_folder())?;
        home.furnish()?;
        Ok(home)
    }

    /// Its working directory.
    #[must_use]
    pub fn work_folder(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    /// A folder in that one.
    pub fn other_folder(&self) -> anyhow::Result<PathBuf> {
        let folder = self.work_folder().join("other");
        std::fs::create_dir_all(&folder).context("make a folder")?;
        Ok(folder)
    }

    /// Its environment, in addition to Debian's program directories.
    pub fn variables(&self) -> anyhow::Result<Vec<(&'static str, String)>> {
        let text = |path: &Path| path.display().to_string();
        let tools = paths::workspace().join(".tools/bin");
        paths::tool(self.program.name())?;
        let mut variables = self.program.variables(&self.model);
        variables.extend([
            ("HOME", text(&self.home())),
            ("PATH", format!("{}:/usr/bin:/bin", text(&tools))),
            ("HTTPS_PROXY", self.model.url("")),
            ("NO_PROXY", "127.0.0.1".to_owned()),
        ]);
        Ok(variables)
    }

    /// The table of an agent server with this id that runs it by its profile.
    pub fn server_toml(&self, id: &str) -> anyhow::Result<String> {
        let variables = self.variables()?;
        let env: Vec<String> = variables
            .iter()
            .map(|(name, value)| format!("{name} = {value:?}"))
            .collect();
        let (profile, folder, env) = (self.program.name(), self.work_folder(), env.join(", "));
        Ok(format!(
            "[[servers]]\nid = {id:?}\nkind = \"agent\"\nallow = [{{}}]\nprofile = {profile:?}\ndirectory = {folder:?}\nenv = {{ {env} }}\n"
        ))
    }

    /// Configures an MCP server over Streamable HTTP.
    pub fn use_mcp_server(&mut self, url: &str) -> anyhow::Result<()> {
        self.mcp_url = Some(url.to_owned());
        self.forget_all()
    }

    /// Deletes everything except its settings.
    pub fn forget_all(&self) -> anyhow::Result<()> {
        std::fs::remove_dir_all(self.home()).context("delete the agent's home")?;
        self.furnish()
    }

    /// The ids of its live processes, and of all their descendants.
    pub fn processes(&self) -> anyhow::Result<BTreeSet<u32>> {
        started_with_variable("HOME", &self.home().display().to_string())
    }

    fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    fn furnish(&self) -> anyhow::Result<()> {
        std::fs::create_dir(self.home())?;
        for (name, text) in self.program.files(&self.model, self.mcp_url.as_deref()) {
            let path = self.home().join(name);
            std::fs::create_dir_all(path.parent().context("its folder")?)?;
            std::fs::write(path, text)?;
        }
        Ok(())
    }
}
