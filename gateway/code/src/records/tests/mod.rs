//! Records on a real file system, with real processes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod calls;
mod events;
mod killed;
mod listing;
mod lost;
mod pruning;
mod recording;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mooring_session::names::{Principal, ServerName, WorkerId};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::calls::{CallError, CallErrorKind, Callee, NestedCall};
use crate::volume::Volume;
use crate::volume::tests::options;
use mooring_metrics::RunOutcome;
use mooring_settings::Language;

pub(super) const OUTPUT_CHARS_MAX: usize = 1_000;

/// Records of their own.
pub(super) struct Fixture {
    pub(super) records: Records,
    pub(super) server: ServerName,
    pub(super) base: PathBuf,
    _directory: TempDir,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().join("base");
        Self {
            records: records_at(&base, "w:1"),
            server: server(),
            base,
            _directory: directory,
        }
    }

    /// The same records, as another gateway has them.
    pub(super) fn as_gateway(&self, gateway: &str) -> Records {
        records_at(&self.base, gateway)
    }

    pub(super) fn begin(&self, user: &str) -> Recording {
        self.records.begin(&self.server, new_run(user))
    }

    pub(crate) fn list(&self, filter: &RunFilter) -> Vec<RunRecord> {
        self.records.runs(&self.server, filter).unwrap()
    }

    pub(super) fn whole(&self, id: &str) -> WholeRun {
        let id = RunId::parse(id).unwrap();
        self.records.whole_run(&self.server, &id).unwrap()
    }

    /// The files of one server's records, from its directory.
    pub(super) fn files(&self) -> Vec<String> {
        let root = self.base.join(".runs/sandbox");
        let mut pending = vec![root.clone()];
        let mut files = Vec::new();
        while let Some(directory) = pending.pop() {
            for entry in std::fs::read_dir(directory).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    pending.push(path);
                } else {
                    let path = path.strip_prefix(&root).unwrap();
                    files.push(path.to_str().unwrap().to_owned());
                }
            }
        }
        files.sort();
        files
    }
}

pub(super) fn server() -> ServerName {
    ServerName::parse(b"sandbox").unwrap()
}

pub(super) fn records_at(base: &Path, gateway: &str) -> Records {
    records_with(base, gateway, |_| ())
}

pub(super) fn records_with(
    base: &Path,
    gateway: &str,
    change: impl FnOnce(&mut RecordSettings),
) -> Records {
    let mut settings = RecordSettings {
        replay_enabled: true,
        persisted_output_chars_max: OUTPUT_CHARS_MAX,
        runs_kept_max: 5,
        runs_kept: Duration::from_secs(10 * 24 * 60 * 60),
        runs_kept_bytes: 1024 * 1024 * 1024,
        user_runs_kept_bytes: 1024 * 1024 * 1024,
        records_free_bytes_min: 0,
        catalog_ttl: Duration::ZERO,
    };
    change(&mut settings);
    let gateway = WorkerId::parse(gateway.as_bytes()).unwrap();
    Records::new(Volume::open(options(base)).unwrap(), settings, gateway)
}

pub(super) fn principal(user: &str) -> Principal {
    Principal::parse(user.as_bytes()).unwrap()
}

pub(super) fn new_run(user: &str) -> NewRun {
    new_run_with(user, RunId::new())
}

pub(super) fn new_run_with(user: &str, id: RunId) -> NewRun {
    NewRun {
        id,
        session_id: Some("0123456789abcdef01234567".into()),
        principal: principal(user),
        teams: vec!["red".to_owned()],
        team: None,
        language: Language::Python,
        runtime: "python",
        code: "print('hello')".into(),
        timeout_ms: Some(1_000),
        replay_of: None,
    }
}

pub(super) fn finished(output: &str) -> RunCompletion {
    let metrics = json!({"exit_code": 0, "cpu_time_ms": 3.5, "limits_hit": []});
    let Value::Object(metrics) = metrics else {
        panic!("metrics are an object");
    };
    RunCompletion {
        outcome: RunOutcome::Completed,
        output: output.to_owned(),
        error: None,
        metrics,
    }
}

pub(super) fn all() -> RunFilter {
    RunFilter {
        limit: 100,
        ..RunFilter::default()
    }
}

pub(super) fn call(tool: &str, arguments: Value) -> NestedCall {
    let Value::Object(arguments) = arguments else {
        panic!("arguments are an object");
    };
    NestedCall {
        server: "github".into(),
        tool: tool.into(),
        arguments,
    }
}

/// Tools that answer with what they are called with, but for `fail` and `hang`.
pub(super) struct Echo;

impl Callee for Echo {
    async fn call(&self, call: NestedCall) -> Result<Value, CallError> {
        match &*call.tool {
            "fail" => Err(CallErrorKind::ToolError.error("it failed")),
            "denied" => Err(CallErrorKind::Denied.error("the policy forbids it")),
            "hang" => std::future::pending().await,
            "null" => Ok(Value::Null),
            _ => Ok(Value::Object(call.arguments)),
        }
    }
}
