//! Code servers under test: gateways that share a volume, clients of their tools, and the content of the volume.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::HttpClient;
use crate::gateway::{Gateway, Settings};
use crate::session::{McpSession, Opening};

/// The identity header in the settings of [`CodeVolume::settings`].
pub const USER: &str = "x-mooring-user";

/// The id of the code server in the settings of [`CodeVolume::settings`].
pub const SERVER: &str = "sandbox";

/// Directories of the volume that belong to the gateways and not to a session.
const OWN_DIRECTORIES: [&str; 6] = [".locks", ".trash", ".tools", ".runs", ".skills", ".catalog"];

/// Hexadecimal digits of a code session's id.
const SESSION_ID_LENGTH: usize = 24;

/// A volume that gateways share.
#[derive(Debug)]
pub struct CodeVolume {
    directory: TempDir,
}

impl CodeVolume {
    /// An empty one.
    pub fn new() -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("mooring-code-").context("make a volume")?;
        Ok(Self { directory })
    }

    /// The path of the volume.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Gateways with one code server on this volume and this store; users are named by [`USER`].
    #[must_use]
    pub fn settings(&self, store_url: &str) -> Settings {
        Settings::toml(format!(
            "[store]\nurl = {store_url:?}\n\n[[servers]]\nid = {SERVER:?}\nkind = \"code\"\nallow = [{{}}]\n\
             sandbox_policy = {{ max_runs_per_minute = 1000 }}\n"
        ))
        .env("MOORING_CODE_BASE_DIR", &self.path().display().to_string())
        .users_by_header()
    }

    /// The directories of sessions: `<server>/<user>/<session>`.
    pub fn sessions(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut sessions = Vec::new();
        for server in subdirectories(self.path())? {
            if OWN_DIRECTORIES.iter().any(|own| server.ends_with(own)) {
                continue;
            }
            for user in subdirectories(&server)? {
                sessions.extend(subdirectories(&user)?);
            }
        }
        Ok(sessions)
    }

    /// The entries of one of the gateways' directories, such as `.tools`.
    pub fn own(&self, name: &str) -> anyhow::Result<Vec<PathBuf>> {
        entries(&self.path().join(name))
    }

    /// The directories of sessions that are being deleted: `<session>.<generation>` in the trash, which also contains
    /// retired trees of tools for a while.
    pub fn trashed_sessions(&self) -> anyhow::Result<Vec<PathBuf>> {
        let is_session = |name: &str| {
            let id = name.split('.').next().unwrap_or_default();
            id.len() == SESSION_ID_LENGTH && id.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let mut trashed = self.own(".trash")?;
        trashed.retain(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(is_session)
        });
        Ok(trashed)
    }

    /// Every regular file of the volume that belongs to no session, and is none of what outlives sessions: locks, trees of
    /// tools, records, skills and lists of tools.
    pub fn orphan_files(&self) -> anyhow::Result<BTreeSet<PathBuf>> {
        let mut sessions: Vec<PathBuf> = self.sessions()?;
        let lasting = [".locks", ".tools", ".runs", ".skills", ".catalog"];
        sessions.extend(lasting.map(|own| self.path().join(own)));
        let mut orphans = BTreeSet::new();
        let mut pending = vec![self.path().to_owned()];
        while let Some(directory) = pending.pop() {
            for entry in entries(&directory)? {
                if sessions.contains(&entry) {
                    continue;
                }
                if entry.symlink_metadata()?.is_dir() {
                    pending.push(entry);
                } else {
                    orphans.insert(entry);
                }
            }
        }
        Ok(orphans)
    }
}

fn entries(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let listing = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        listing => listing.with_context(|| format!("list {}", directory.display()))?,
    };
    listing.map(|entry| Ok(entry?.path())).collect()
}

fn subdirectories(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = entries(directory)?;
    found.retain(|entry| entry.symlink_metadata().is_ok_and(|about| about.is_dir()));
    Ok(found)
}

/// The structured content of a result, merged with the run in its `_meta`: as in the form `full`.
pub fn whole_answer(result: &Value) -> anyhow::Result<Value> {
    let structured = result.get("structuredContent").and_then(Value::as_object);
    let structured = structured.with_context(|| format!("structured content: {result}"))?;
    let run = result.pointer("/_meta/mooring~1run");
    let mut answer = run.and_then(Value::as_object).cloned().unwrap_or_default();
    answer.extend(structured.clone());
    Ok(answer.into())
}

/// One user's client of a code server; each call may go to another gateway.
#[derive(Debug)]
pub struct Coder {
    session: McpSession,
}

impl Coder {
    /// Initializes as `user` over the gateways' code servers, which are used in turn.
    pub async fn open(gateways: &[&Gateway], user: &str) -> anyhow::Result<Self> {
        let endpoints: Vec<String> = gateways.iter().map(|g| g.mcp_url(SERVER)).collect();
        Self::open_at(&endpoints, user).await
    }

    /// The same over URLs.
    pub async fn open_at(endpoints: &[String], user: &str) -> anyhow::Result<Self> {
        let opening = Opening::default().header(USER, user)?;
        let client = HttpClient::new(std::time::Duration::from_secs(60));
        let session = McpSession::open_with(&client, endpoints, opening).await?;
        Ok(Self { session })
    }

    /// Calls a tool: its [`whole_answer`], and whether it is marked as an error.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> anyhow::Result<(Value, bool)> {
        let result = self.result(tool, arguments).await?;
        let is_error = result.get("isError") == Some(&json!(true));
        Ok((whole_answer(&result)?, is_error))
    }

    /// Calls a tool: its result as it came.
    pub async fn result(&mut self, tool: &str, arguments: Value) -> anyhow::Result<Value> {
        self.session.call(tool, arguments).await
    }

    /// Calls a tool that has to succeed.
    pub async fn done(&mut self, tool: &str, arguments: Value) -> anyhow::Result<Value> {
        let (answer, is_error) = self.call(tool, arguments).await?;
        ensure!(!is_error, "{tool} failed: {answer}");
        Ok(answer)
    }

    /// Runs Python that must succeed; returns its output.
    pub async fn python(&mut self, code: &str) -> anyhow::Result<String> {
        let arguments = json!({"code": code, "language": "python"});
        let answer = self.done("shell_exec", arguments).await?;
        let output = answer.get("output").and_then(Value::as_str);
        Ok(output.context("an output")?.trim_end().to_owned())
    }

    /// Writes a file.
    pub async fn write(&mut self, path: &str, content: &str) -> anyhow::Result<Value> {
        self.done("fs_write", json!({"path": path, "content": content}))
            .await
    }

    /// Reads a file.
    pub async fn read(&mut self, path: &str) -> anyhow::Result<String> {
        let answer = self.done("fs_read", json!({"path": path})).await?;
        let content = answer.get("content").and_then(Value::as_str);
        Ok(content.context("a content")?.to_owned())
    }

    /// The names in a directory.
    pub async fn names(&mut self, path: &str) -> anyhow::Result<Vec<String>> {
        let answer = self.done("fs_browse", json!({"path": path})).await?;
        let entries = answer.get("entries").and_then(Value::as_array);
        entries
            .context("entries")?
            .iter()
            .map(|entry| {
                let name = entry.get("name").and_then(Value::as_str);
                Ok(name.context("a name")?.to_owned())
            })
            .collect()
    }
}
