//! One call: resolves the conversation, runs the program in it, and stores the id that resumes it.
//!
//! Invariant: calls of one conversation run one after another, over the whole fleet. The id that the agent printed is
//! stored even if the run failed, since the agent's memory of the conversation is under it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::agent_server::{AgentServer, CallContext, Progress};
use super::answer::{CallNotes, is_success, refused, run_answer};
use super::failure::Failure;
use super::request::AgentRequest;
use crate::conversations::{ConversationState, SaveOutcome, is_argument};
use crate::folder;
use crate::lock::{LockError, ProcessLock};
use crate::parent::ParentSession;
use crate::process::{CompletedRun, ProcessExit, RunSpec, run};
use mooring_metrics::{self as metrics, AgentOutcome};
use mooring_session::time::Millis;
use mooring_store::{HistoryEvent, Session, SessionTurn, word};
use mooring_traces::{Span, SpanKind, attribute};
use mooring_upstream::stdio::{ChildLimits, ChildSpec, Environment, Label, ProcessLimits, Traffic};

/// Timeout for starting the program.
const START_WITHIN: Duration = Duration::from_secs(10);
/// Time between SIGTERM and SIGKILL, also for processes that the program leaves behind.
const TERMINATE_GRACE: Duration = Duration::from_secs(5);
/// Most queued lines of output: they are all that is held besides what was extracted.
const LINES_WAITING_MAX: usize = 2;
/// Largest result that is returned, in bytes.
const RESULT_BYTES_MAX: usize = 1024 * 1024;

/// Remark if the agent does not know the stored id.
const UNKNOWN: &str = "the agent did not know the conversation any more, so it started a new one";
/// Remark if the agent cannot resume in the folder of the call.
const OTHER_FOLDER: &str = "the agent resumes a conversation only in the folder of its last call, and this call names another, so it started a new one";
/// Remark if the store is unavailable, so that it is unknown whether the conversation exists.
const STORE_AWAY: &str = "the session store is away, so that an earlier conversation was not found, and the agent started a new one";
/// Remark if the agent printed another id than that of the conversation it was to resume. Some agents give each run a new
/// one, others do so when they start a new conversation without saying so.
const OTHER_ID: &str = "the agent answered under another id than that of the conversation it was to resume: it may have started a new one";
/// Remark if another run stored its id first.
const SUPERSEDED: &str =
    "another run of the conversation ended meanwhile: the next call resumes that run";
/// Remark if the id was not stored.
const NOT_KEPT: &str = "the conversation could not be stored: the next call may not resume it";

/// A call that is ready to run.
pub struct Call {
    server: Arc<AgentServer>,
    arguments: Option<Value>,
}

/// A conversation with its turn and lock, both released when dropped. Fields are dropped in this order.
struct LockedConversation {
    known: ConversationState,
    _lock: Option<ProcessLock>,
    _turn: SessionTurn,
}

impl Call {
    pub(super) const fn new(server: Arc<AgentServer>, arguments: Option<Value>) -> Self {
        Self { server, arguments }
    }

    /// Runs the call; returns its `result` as JSON text. From here on it can be cancelled.
    pub fn make(self, context: CallContext) -> impl Future<Output = String> + Send {
        let Self { server, arguments } = self;
        let running = server.running.begin(context.request.clone());
        async move {
            let request = match AgentRequest::read(arguments) {
                Ok(request) => request,
                Err(error) => return refused(&error.to_string()),
            };
            match server.serve(&request, &context, &running.stop).await {
                Ok(result) => result,
                Err(failure) => {
                    failure.log(server.id.as_str());
                    refused(&failure.to_string())
                }
            }
        }
    }
}

impl AgentServer {
    async fn serve(
        &self,
        request: &AgentRequest,
        context: &CallContext,
        stop: &CancellationToken,
    ) -> Result<String, Failure> {
        let folder = self.folder(request.work_folder.clone()).await?;
        let Some(parent) = &request.parent else {
            let ran = self
                .run(&request.prompt, None, &folder, "-", context, stop)
                .await?;
            return Ok(run_answer(&ran, &CallNotes::default()));
        };
        let session = (self.conversations).session(&context.principal, parent.as_str())?;
        // Keeps the record from expiring while the call waits and runs.
        let _in_flight = self.sessions.begin_call(&session, &self.id);
        let held = self.lock_conversation(&session, parent, stop).await?;
        let can_resume = self.settings.template.can_resume();
        let is_elsewhere = self.is_other_folder(&held.known, &folder);
        let resumed_by =
            (held.known.agent_session.as_deref()).filter(|_| can_resume && !is_elsewhere);
        let run = |id| self.run(&request.prompt, id, &folder, &session.digest, context, stop);
        let mut notes = CallNotes {
            parent: Some(parent.as_str().to_owned()),
            is_resumed: resumed_by.is_some(),
            ..CallNotes::default()
        };
        if is_elsewhere {
            notes.started_fresh = Some(OTHER_FOLDER);
        } else if resumed_by.is_none() && self.sessions.store().is_degraded() {
            notes.started_fresh = Some(STORE_AWAY);
        }
        let mut ran = run(resumed_by).await?;
        if notes.is_resumed && is_unknown(&ran) {
            (notes.is_resumed, notes.started_fresh) = (false, Some(UNKNOWN));
            ran = run(None).await?;
        }
        let told = ran.findings.session.as_deref();
        if notes.is_resumed && told.is_some() && told != resumed_by {
            notes.remarks.push(OTHER_ID);
        }
        let unkept = self.keep(&session, parent, &held.known, &ran).await;
        notes.remarks.extend(unkept);
        let outcome: &'static str = outcome(&ran).into();
        let noted = HistoryEvent::Ran {
            server: word(self.id.as_str()),
            run: None,
            outcome: outcome.into(),
            took_ms: Millis::from(ran.wall_time).get(),
        };
        self.sessions.store().note(&session.digest, noted);
        let folder = folder.to_string_lossy();
        self.conversations
            .note_run(&session, &folder, outcome)
            .await;
        Ok(run_answer(&ran, &notes))
    }

    /// Whether the conversation is in another folder than this call, and the agent cannot resume it from here.
    fn is_other_folder(&self, known: &ConversationState, folder: &Path) -> bool {
        let last = known.folder.as_deref();
        self.settings.is_bound_to_folder
            && last.is_some_and(|last| last != folder.to_string_lossy())
    }

    async fn folder(&self, asked: Option<String>) -> Result<PathBuf, Failure> {
        let (default, allowed) = (
            self.settings.directory.clone(),
            self.settings.work_folders.clone(),
        );
        let checked =
            spawn_blocking(move || folder::check(asked.as_deref(), &default, &allowed)).await?;
        Ok(checked?)
    }

    /// Creates or finds the conversation, and waits for its turn.
    async fn lock_conversation(
        &self,
        session: &Session,
        parent: &ParentSession,
        stop: &CancellationToken,
    ) -> Result<LockedConversation, Failure> {
        let holding = async {
            self.conversations.begin(session, parent).await?;
            let turn = self
                .sessions
                .take_turn(session, &self.id, self.turn_timeout())
                .await?;
            let lock = self.lock(session).await?;
            // Read only now, since only the turn's holder replaces it.
            let known = self.conversations.known(session).await?;
            Ok(LockedConversation {
                known,
                _lock: lock,
                _turn: turn,
            })
        };
        tokio::select! {
            held = holding => held,
            () = stop.cancelled() => Err(Failure::Cancelled),
        }
    }

    /// The lock against other processes of this machine. Without it, two concurrent runs cost one of them its
    /// continuation of the conversation, and nothing else.
    async fn lock(&self, session: &Session) -> Result<Option<ProcessLock>, Failure> {
        let Some(locks) = &self.locks else {
            return Ok(None);
        };
        match locks.take(session.id.as_str(), self.turn_timeout()).await {
            Ok(lock) => Ok(Some(lock)),
            Err(LockError::Busy) => Err(Failure::Locked),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(session = %session.digest, %error, cause, "conversation lock unavailable; runs by several gateways are not serialized");
                Ok(None)
            }
        }
    }

    async fn run(
        &self,
        prompt: &str,
        resumed_by: Option<&str>,
        folder: &Path,
        session: &str,
        context: &CallContext,
        stop: &CancellationToken,
    ) -> Result<CompletedRun, Failure> {
        let spec = self.spec(prompt, resumed_by, folder);
        let label = Label {
            server: self.id.as_str().into(),
            session: session.into(),
        };
        let mut count = 0_u64;
        let report = |text: String| {
            count = count.saturating_add(1);
            if let Some(progress) = &context.progress {
                progress.report(count, &text);
            }
        };
        let rules = Arc::clone(&self.settings.rules);
        let mut span = Span::begin("run agent", SpanKind::Internal);
        span.rename_to(&[attribute::INVOKE_AGENT, self.id.as_str()]);
        span.note(attribute::OPERATION_NAME, attribute::INVOKE_AGENT);
        span.note_text(attribute::SERVER, self.id.as_str());
        let ran = run(&self.children, &spec, label, rules, report, stop.clone()).await;
        let ended = ran.as_ref().map_or(AgentOutcome::Broken, outcome);
        if ended != AgentOutcome::Completed {
            span.fail(<&'static str>::from(ended));
        }
        let ran = ran?;
        metrics::agent_run(ended, ran.wall_time);
        if let ProcessExit::Broken(reason) = &ran.ending {
            tracing::warn!(server = %self.id, session, reason, "connection to the agent process failed");
        }
        Ok(ran)
    }

    fn spec(&self, prompt: &str, resumed_by: Option<&str>, folder: &Path) -> RunSpec {
        let settings = &self.settings;
        let mut arguments =
            (settings.template).arguments(prompt, resumed_by, &folder.to_string_lossy());
        // The first element is the program.
        let program = arguments.remove(0);
        RunSpec {
            child: ChildSpec {
                program,
                arguments,
                directory: Some(folder.to_owned()),
                environment: Environment {
                    inherited: settings.variables.inherited().to_vec(),
                    set: settings.variables.given().to_vec(),
                },
                traffic: Traffic::Output,
                limits: ChildLimits {
                    process: ProcessLimits::default(),
                    message_bytes_max: settings.output_bytes_max,
                    messages_waiting_max: LINES_WAITING_MAX,
                    start_within: START_WITHIN,
                    // The program has no open stdin that could be closed to end it, so SIGTERM is sent first.
                    stop_grace: Duration::ZERO,
                    terminate_grace: TERMINATE_GRACE,
                },
            },
            time_limit: settings.timeout,
            output_bytes_max: settings.output_bytes_max,
            result_bytes_max: RESULT_BYTES_MAX,
            unknown_session: settings.unknown_session.clone(),
        }
    }

    /// Stores the id that the run printed; returns a remark for the caller.
    async fn keep(
        &self,
        session: &Session,
        parent: &ParentSession,
        known: &ConversationState,
        ran: &CompletedRun,
    ) -> Option<&'static str> {
        let id = ran.findings.session.as_deref()?;
        if !is_argument(id) {
            return Some(NOT_KEPT);
        }
        match self.conversations.keep(session, parent, known, id).await {
            Ok(SaveOutcome::Now) => None,
            Ok(SaveOutcome::Superseded) => Some(SUPERSEDED),
            Err(error) => {
                tracing::error!(session = %session.digest, %error, "agent session id not stored");
                Some(NOT_KEPT)
            }
        }
    }
}

/// Whether the agent only reported that it does not know the conversation. A run that was stopped, or that answered,
/// has done more than that.
fn is_unknown(ran: &CompletedRun) -> bool {
    matches!(ran.ending, ProcessExit::Exited { .. })
        && !is_success(ran)
        && ran.findings.result.is_none()
        && ran.says_unknown_session
}

/// The outcome for the metrics and the conversation's record.
fn outcome(ran: &CompletedRun) -> AgentOutcome {
    match ran.ending {
        ProcessExit::Exited { .. } if is_success(ran) => AgentOutcome::Completed,
        ProcessExit::Exited { .. } => AgentOutcome::Failed,
        ProcessExit::TimedOut => AgentOutcome::TimedOut,
        ProcessExit::Stopped => AgentOutcome::Cancelled,
        ProcessExit::OutputTooLong | ProcessExit::Broken(_) => AgentOutcome::Broken,
    }
}

impl Progress {
    /// Reports progress to the client. Messages are dropped if the queue is full.
    fn report(&self, count: u64, text: &str) {
        let message = json!({
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {
                "progressToken": serde_json::from_str::<Value>(&self.token_json).unwrap_or_default(),
                "progress": count,
                "message": text,
            },
        });
        let _ = self.said.try_send(message.to_string().into());
    }
}
