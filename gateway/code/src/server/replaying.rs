//! Running a recorded run again: in the session of who asks, within the same walls, and without keeping what it writes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::task::spawn_blocking;

use super::code_server::{CallContext, Caller, CodeServer};
use super::run::CallTarget;
use super::tools;
use super::tools::shell_exec::{Execution, execute};
use crate::calls::{RunClient, Upstreams};
use crate::records::{RecordsError, ReplayOf, RunId, RunStatus, WholeRun};
use crate::replay::{
    FromRecord, ReplayError, ReplayMode, ReplayReport, ReplayRequest, ReplayResult,
};
use mooring_settings::{AnswerForm, CodeTool, Language};

/// A server that can repeat its runs.
#[derive(Debug)]
pub struct Repeater {
    /// The server whose runs are replayed.
    pub server: Arc<CodeServer>,
    /// The way to the tools, for a replay that calls them.
    pub upstreams: Arc<dyn Upstreams>,
}

impl Repeater {
    /// The tool that made the run: only callers that may use it may replay its runs.
    pub const TOOL: &str = tools::name(CodeTool::ShellExec);

    /// Runs a recorded run again.
    ///
    /// # Errors
    /// See [`ReplayError`]; nothing was repeated.
    pub async fn replay(&self, request: ReplayRequest) -> Result<ReplayResult, ReplayError> {
        if !self.server.services.is_replay_enabled {
            return Err(ReplayError::Off);
        }
        let recorded = self.load_recorded_run(&request.run_id).await?;
        if recorded.record.status() == RunStatus::Running {
            return Err(ReplayError::Running);
        }
        let from = match request.mode {
            ReplayMode::Recorded => Some(Arc::new(FromRecord::new(recorded.calls.clone()))),
            ReplayMode::Live => None,
        };
        let execution = execution(&recorded, &request, from.as_ref())?;
        let again_id = execution.run_id.clone();
        let context = CallContext {
            caller: Caller {
                principal: request.principal,
                teams: request.teams.into(),
                // A record does not name the client.
                client: None,
            },
            upstreams: Arc::clone(&self.upstreams),
            client: RunClient::silent(),
        };
        let executed = execute(&self.server, &context, execution).await;
        if let Some(retry_after) = executed.is_rate_limited {
            return Err(ReplayError::RateLimited {
                retry_after_ms: retry_after.get(),
            });
        }
        let answer = executed.answer.into_content();
        let Some(record) = executed.record else {
            let error = answer.get("error").and_then(Value::as_str);
            return Err(ReplayError::Refused(error.unwrap_or_default().to_owned()));
        };
        let again = self.load_recorded_run(&again_id).await?;
        Ok(ReplayResult {
            answer,
            record,
            report: ReplayReport::compare(&recorded, &again, from.as_deref()),
        })
    }

    /// The arguments with which the replay calls [`Repeater::TOOL`]: what hooks are shown.
    ///
    /// # Errors
    /// See [`ReplayError`].
    pub async fn arguments(&self, run_id: &RunId) -> Result<Value, ReplayError> {
        let recorded = self.load_recorded_run(run_id).await?;
        let repeated = RepeatedCall::of(&recorded)?;
        let mut arguments = Map::from_iter([("code".to_owned(), repeated.code.into())]);
        if let Some(language) = repeated.language {
            arguments.insert("language".to_owned(), language.as_str().into());
        }
        if let Some(timeout_ms) = repeated.timeout_ms {
            arguments.insert("timeout_ms".to_owned(), timeout_ms.into());
        }
        Ok(arguments.into())
    }

    async fn load_recorded_run(&self, id: &RunId) -> Result<WholeRun, ReplayError> {
        const AWAY: ReplayError = ReplayError::Record("the volume cannot be used");
        let records = self
            .server
            .services
            .storage()
            .map_err(|_| AWAY)?
            .records
            .clone();
        let (server, id) = (self.server.id.clone(), id.clone());
        match spawn_blocking(move || records.whole_run(&server, &id)).await {
            Ok(Ok(run)) => Ok(run),
            Ok(Err(RecordsError::NoRun)) => Err(ReplayError::NoRun),
            Ok(Err(RecordsError::Unreadable)) => {
                Err(ReplayError::Record("another version wrote it"))
            }
            Ok(Err(RecordsError::Server(_) | RecordsError::Read(_))) | Err(_) => Err(AWAY),
        }
    }
}

/// The arguments of a recorded run.
struct RepeatedCall<'a> {
    code: &'a str,
    language: Option<Language>,
    timeout_ms: Option<u64>,
}

impl<'a> RepeatedCall<'a> {
    fn of(recorded: &'a WholeRun) -> Result<Self, ReplayError> {
        let begun = &recorded.record.begun;
        let code = recorded.code.as_deref();
        let code = code.ok_or(ReplayError::Record("its code was not recorded"))?;
        let language = Language::parse(&begun.language);
        Ok(Self {
            code,
            // A line of simple commands is what names no language.
            language: language.filter(|_| begun.runtime != "shell"),
            timeout_ms: begun.timeout_ms,
        })
    }
}

/// The same code, in the same language, within the same time.
fn execution(
    recorded: &WholeRun,
    request: &ReplayRequest,
    from: Option<&Arc<FromRecord>>,
) -> Result<Execution, ReplayError> {
    let repeated = RepeatedCall::of(recorded)?;
    let replay_of = ReplayOf {
        run_id: request.run_id.clone(),
        mode: request.mode,
    };
    let calls = from.map_or(CallTarget::Tools, |from| {
        CallTarget::Record(Arc::clone(from))
    });
    Ok(Execution {
        run_id: RunId::new(),
        code: repeated.code.into(),
        language: repeated.language,
        timeout: repeated.timeout_ms.map(Duration::from_millis),
        replay: Some((replay_of, calls)),
        // People read it, who want all of it.
        answer: AnswerForm::Full,
    })
}
