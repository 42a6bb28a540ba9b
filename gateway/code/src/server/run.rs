//! One run: what is to be executed, and what came of it.

use std::sync::Arc;

use mooring_sandbox::tree::{CommitError, CommitReport};
use mooring_sandbox::{Layer, Limits, Output, Program, RefusedCall, RunEnd, RunLimit, Tier, Usage};

use super::long_output::SavedOutput;
use crate::bridge::BridgeSummary;
use crate::calls::LostStates;
use crate::proxy::RefusedRequest;
use crate::records::{NewRun, Recording};
use crate::replay::FromRecord;
use mooring_metrics::SandboxHelper;
use mooring_settings::{AnswerForm, Language};

/// A run to execute.
pub(super) struct Run {
    /// Selects the session: each language has its own.
    pub(super) language: Language,
    /// What runs.
    pub(super) program: Program,
    /// Its limits.
    pub(super) limits: Limits,
    /// How it is recorded. The session is filled in here.
    pub(super) record: NewRun,
    /// Answers the calls that its code makes.
    pub(super) calls: CallTarget,
    /// The servers that have lost the session's state, as reported by its calls.
    pub(super) lost: LostStates,
    /// Whether the files that it writes are kept.
    pub(super) files: WrittenFiles,
    /// How much its answer will have of its output.
    pub(super) answer: AnswerForm,
}

/// Where the nested calls of a run go.
#[derive(Clone, Debug)]
pub(super) enum CallTarget {
    /// The tools themselves.
    Tools,
    /// An earlier run's record; no tool is called.
    Record(Arc<FromRecord>),
}

/// Whether the files that a run writes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrittenFiles {
    /// They are the session's from then on.
    Kept,
    /// They are dropped: the run only repeats what was.
    Dropped,
}

/// The result of a run in the sandbox, with the commit of its files.
pub(super) struct RunResult {
    pub(super) ended: RunEnd,
    pub(super) stdout: Output,
    pub(super) stderr: Output,
    pub(super) usage: Usage,
    /// When its helper was started.
    pub(super) helper: SandboxHelper,
    pub(super) tier: Tier,
    pub(super) layers: Vec<Layer>,
    /// Limits at which the kernel refused something.
    pub(super) limits_reached: Vec<RunLimit>,
    /// The system calls that it was refused.
    pub(super) refused_calls: Vec<RefusedCall>,
    /// The result of the commit of its files; none if nothing was to be committed.
    pub(super) committed: Option<Result<CommitReport, CommitError>>,
    /// Where its output is, where that is too long for its answer.
    pub(super) saved_stdout: Option<SavedOutput>,
    /// The same of its error output.
    pub(super) saved_stderr: Option<SavedOutput>,
}

/// A run that has ended; its record is still open.
pub(super) struct CompletedRun {
    /// The digest of its session.
    pub(super) session: Arc<str>,
    pub(super) ran: RunResult,
    /// The summary of its bridge.
    pub(super) served: BridgeSummary,
    /// The requests that its proxy refused: see [`Traffic`](crate::proxy::Traffic).
    pub(super) refused_requests: Vec<RefusedRequest>,
    pub(super) recording: Recording,
}
