//! Reading the log of a run's calls.
//!
//! Invariant: a log that was cut off anywhere is read as far as it goes, and says that it is not whole.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::call_lines::{
    BYTES_MAX, CallEndLine, CallMade, CallStartLine, ERROR_CHARS_MAX, NAME_CHARS_MAX,
};
use super::id::RunId;
use super::versioned::head;
use crate::calls::{CallError, CallErrorKind, NestedCall};
use crate::volume::Area;
use mooring_secrets::digest;

/// One call of a recorded run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RecordedCall {
    /// Its number within the run, from 1.
    pub(crate) seq: u64,
    /// The server's id.
    pub(crate) server: String,
    /// The tool's name.
    pub(crate) tool: String,
    /// The arguments of the call; none if they did not fit into the log.
    pub(crate) arguments: Option<Map<String, Value>>,
    /// The key by which a replay finds it: see [`call_key`].
    pub(crate) key: String,
    /// When it began, in milliseconds since 1970.
    pub(crate) started_at_ms: u64,
    /// How long it took, in milliseconds; none where it did not end.
    pub(crate) latency_ms: Option<f64>,
    /// Its outcome.
    pub(crate) outcome: RecordedOutcome,
}

/// The outcome of a recorded call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RecordedOutcome {
    /// The tool returned this.
    Result(Value),
    /// It failed with this error.
    Error(CallError),
    /// It ended, and there was no room to say how.
    Omitted,
    /// The run was over before it ended.
    Unended,
}

/// The calls of a recorded run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RecordedCalls {
    /// In the order in which they began.
    pub(crate) calls: Vec<RecordedCall>,
    /// Whether every line could be read, and nothing was left out.
    pub(crate) is_complete: bool,
}

/// The calls of a run; none where it made none.
pub(super) fn read(area: &Area, run: &RunId) -> std::io::Result<RecordedCalls> {
    let bytes_max = usize::try_from(BYTES_MAX).unwrap_or(usize::MAX);
    let bytes = area.read(&format!("{}/{run}.calls", run.day()), bytes_max)?;
    Ok(parse(&bytes.unwrap_or_default()))
}

fn parse(bytes: &[u8]) -> RecordedCalls {
    let mut calls: BTreeMap<u64, RecordedCall> = BTreeMap::new();
    let mut is_complete = bytes.is_empty() || bytes.ends_with(b"\n");
    let lines = bytes.split(|byte| *byte == b'\n');
    for line in lines.filter(|line| !line.is_empty()) {
        if let Ok(began) = serde_json::from_slice::<CallStartLine<'_>>(line) {
            is_complete &= began.omitted_bytes.is_none();
            calls.insert(began.seq, RecordedCall::from(began));
        } else if let Ok(ended) = serde_json::from_slice::<CallEndLine<'_>>(line)
            && let Some(call) = calls.get_mut(&ended.seq)
        {
            is_complete &= ended.omitted_bytes.is_none();
            call.latency_ms = Some(ended.latency_ms);
            call.outcome = outcome(ended);
        } else {
            is_complete = false;
        }
    }
    RecordedCalls {
        calls: calls.into_values().collect(),
        is_complete,
    }
}

fn outcome(line: CallEndLine<'_>) -> RecordedOutcome {
    match (line.result, line.error) {
        _ if line.omitted_bytes.is_some() => RecordedOutcome::Omitted,
        (Some(result), _) => RecordedOutcome::Result(result.into_owned()),
        (None, Some(error)) => {
            let kind = error.kind.parse().unwrap_or(CallErrorKind::Internal);
            RecordedOutcome::Error(kind.error(error.message))
        }
        (None, None) => RecordedOutcome::Omitted,
    }
}

/// The SHA-256 of server, tool and arguments, in hexadecimal digits: by it a call is found in a record. A JSON map keeps
/// its members in the order of their names.
///
/// Nesting is as deep as the bridge admits, well within a thread's stack.
pub(crate) fn call_key(call: &NestedCall) -> String {
    let material = (&*call.server, &*call.tool, &call.arguments);
    // Strings, numbers and maps of them can always be written.
    digest::hex(&serde_json::to_vec(&material).unwrap_or_default())
}

impl From<CallStartLine<'_>> for RecordedCall {
    fn from(line: CallStartLine<'_>) -> Self {
        Self {
            seq: line.seq,
            server: line.server.into_owned(),
            tool: line.tool.into_owned(),
            arguments: line.arguments.map(Cow::into_owned),
            key: line.key,
            started_at_ms: line.started_at_ms,
            latency_ms: None,
            outcome: RecordedOutcome::Unended,
        }
    }
}

impl RecordedCall {
    /// As answers and lists have it: cut as those of runs that end are.
    pub(super) fn made(&self) -> CallMade {
        let error = match &self.outcome {
            RecordedOutcome::Result(_) | RecordedOutcome::Omitted => None,
            RecordedOutcome::Error(error) => Some(head(&error.message, ERROR_CHARS_MAX)),
            RecordedOutcome::Unended => Some("the run ended before the call did".to_owned()),
        };
        CallMade {
            name: format!(
                "{}/{}",
                head(&self.server, NAME_CHARS_MAX),
                head(&self.tool, NAME_CHARS_MAX)
            ),
            started_at_ms: self.started_at_ms,
            latency_ms: self.latency_ms.unwrap_or_default(),
            success: matches!(self.outcome, RecordedOutcome::Result(_)),
            error,
        }
    }
}
