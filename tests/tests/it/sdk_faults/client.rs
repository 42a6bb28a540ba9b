//! A real client as a process of its own, and what its user sees.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use mooring_tests::{paths, wait};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

/// How long each call takes, in milliseconds: long enough that nearly every fault meets one.
const DELAY_MS: &str = "300";
/// How long Python may import on a busy machine.
const STARTED_WITHIN: Duration = Duration::from_secs(120);

/// A client, as it is started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sdk {
    /// What `docs/compatibility.md` calls it, followed by its version.
    pub(super) name: &'static str,
    interpreter: &'static str,
    script: &'static str,
    /// The value of `--sdk`.
    choice: &'static str,
}

const fn python(name: &'static str, interpreter: &'static str, choice: &'static str) -> Sdk {
    Sdk {
        name,
        interpreter,
        script: "clients/keep_calling.py",
        choice,
    }
}

const fn typescript(name: &'static str, choice: &'static str) -> Sdk {
    Sdk {
        name,
        interpreter: "node",
        script: "clients/keep_calling.mjs",
        choice,
    }
}

pub(super) const SDKS: [Sdk; 7] = [
    python("Python SDK `mcp`", "python-mcp-1", "mcp"),
    python("Python SDK `mcp`", "python", "mcp"),
    python("fastmcp", "python-fastmcp-2", "fastmcp"),
    python("fastmcp", "python-fastmcp-3", "fastmcp"),
    python("fastmcp", "python-fastmcp-4", "fastmcp"),
    typescript("TypeScript SDK v1", "v1"),
    typescript("TypeScript SDK v2", "v2"),
];

/// One line of a client.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Outcome {
    session: String,
    /// How long its user waited.
    pub(super) seconds: f64,
    pub(super) count: Option<u64>,
    #[serde(default)]
    pub(super) mark: Value,
    pub(super) error: Option<String>,
    /// The client was broken, and its user has opened it again.
    #[serde(default)]
    pub(super) is_reopened: bool,
}

/// A running client. It ends when it is dropped.
pub(super) struct Client {
    /// Its name and version.
    pub(super) title: String,
    outcomes: Arc<Mutex<Vec<Outcome>>>,
    /// How often sessions were opened. Their names have it: those before may not have ended.
    generation: usize,
    input: ChildStdin,
    _child: Child,
}

impl Client {
    pub(super) async fn start(sdk: Sdk) -> anyhow::Result<Self> {
        let mut child = Command::new(paths::tool(sdk.interpreter)?)
            .arg(paths::test_file(sdk.script)?)
            .args(["--sdk", sdk.choice, "--delay-ms", DELAY_MS])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {sdk:?}"))?;
        let input = child.stdin.take().context("its input")?;
        let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        let first = tokio::time::timeout(STARTED_WITHIN, lines.next_line()).await;
        let first = first.with_context(|| format!("{sdk:?} does not start"))??;
        let first: Value = serde_json::from_str(&first.context("a line with its version")?)?;
        let version = first["version"].as_str().context("a version")?;
        let outcomes = Arc::<Mutex<Vec<Outcome>>>::default();
        let collected = Arc::clone(&outcomes);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Ok(outcome) = serde_json::from_str(&line) {
                    lock(&collected).push(outcome);
                }
            }
        });
        Ok(Self {
            title: format!("{} {version}", sdk.name),
            outcomes,
            generation: 0,
            input,
            _child: child,
        })
    }

    /// Opens a session at a server of each kind, in place of those that were open.
    pub(super) async fn open(
        &mut self,
        kinds: &[&str],
        url: impl Fn(&str) -> String,
    ) -> anyhow::Result<()> {
        self.generation += 1;
        let urls: serde_json::Map<_, _> = (kinds.iter())
            .map(|kind| (self.session(kind), json!(url(kind))))
            .collect();
        let line = format!("{}\n", Value::Object(urls));
        Ok(self.input.write_all(line.as_bytes()).await?)
    }

    fn session(&self, kind: &str) -> String {
        format!("{kind} {}", self.generation)
    }

    /// What the user of the session at this kind of server has seen since it was opened.
    pub(super) fn outcomes(&self, kind: &str) -> Vec<Outcome> {
        let (session, all) = (self.session(kind), lock(&self.outcomes));
        all.iter()
            .filter(|outcome| outcome.session == session)
            .cloned()
            .collect()
    }

    /// Waits until the session has counted so often beyond its first `seen` outcomes. An error shows all of them.
    pub(super) async fn has_counted(
        &self,
        kind: &str,
        seen: usize,
        count: usize,
        within: Duration,
    ) -> anyhow::Result<()> {
        let waited = wait::until_true("calls", within, async || {
            let (session, all) = (self.session(kind), lock(&self.outcomes));
            let of_session = all.iter().filter(|outcome| outcome.session == session);
            let counted = of_session
                .skip(seen)
                .filter(|outcome| outcome.count.is_some());
            Ok(counted.count() >= count)
        });
        let waited = waited.await;
        waited.with_context(|| format!("{} at {kind}: {:#?}", self.title, self.outcomes(kind)))
    }
}

fn lock(outcomes: &Mutex<Vec<Outcome>>) -> std::sync::MutexGuard<'_, Vec<Outcome>> {
    outcomes.lock().unwrap_or_else(PoisonError::into_inner)
}
