//! Tools as a record remembers them.
//!
//! A call is answered by the first recorded one with the same server, tool and arguments that has not answered yet. So
//! the order of equal calls is kept, while different ones may come in any order: code may make them at the same time.
//!
//! Invariant: nothing is called. What the record does not have is an error of kind `diverged`.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::Value;

use crate::calls::{CallError, CallErrorKind, Callee, NestedCall};
use crate::records::{RecordedCall, RecordedCalls, RecordedOutcome, call_key};

/// Most divergences that are listed.
const LISTED_MAX: usize = 100;
/// Longest name of a tool or server in a list, in characters.
const NAME_CHARS_MAX: usize = 256;

/// How a call differs from the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DivergenceKind {
    /// The record has no such call, or all such calls have answered.
    UnknownCall,
    /// The record has the call, and had no room for its result.
    ResultNotRecorded,
    /// The call had not ended when the recorded run did.
    CallHadNotEnded,
    /// The recorded run made the call, and this one did not.
    CallNotMade,
}

/// One place where a replay is not what was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Divergence {
    /// The number of the call, from 1: in this run, or in the recorded one for a call that was not made.
    pub(crate) call: u64,
    /// The server's id.
    pub(crate) server: String,
    /// The tool's name.
    pub(crate) tool: String,
    /// The kind of difference.
    pub(crate) what: DivergenceKind,
}

/// A callee that answers from a record. Shared between a run and its report: an `Arc` of it is one too.
#[derive(Debug)]
pub(crate) struct FromRecord(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    answers: HashMap<String, VecDeque<RecordedCall>>,
    made: u64,
    divergences: Vec<Divergence>,
    total: u64,
}

impl FromRecord {
    /// The calls of a recorded run.
    pub(crate) fn new(calls: RecordedCalls) -> Self {
        let mut state = State::default();
        for call in calls.calls {
            let key = call.key.clone();
            state.answers.entry(key).or_default().push_back(call);
        }
        Self(Mutex::new(state))
    }

    /// Where the run was not what was recorded, and in how many places: to be asked when it has ended. Calls that were
    /// not made come last.
    pub(crate) fn divergences(&self) -> (Vec<Divergence>, u64) {
        let state = self.lock();
        let mut unmade: Vec<Divergence> = state
            .answers
            .values()
            .flatten()
            // A call that the first run did not wait for need not be made.
            .filter(|call| call.outcome != RecordedOutcome::Unended)
            .map(|call| {
                divergence(
                    call.seq,
                    &call.server,
                    &call.tool,
                    DivergenceKind::CallNotMade,
                )
            })
            .collect();
        unmade.sort_by_key(|divergence| divergence.call);
        let total = state
            .total
            .saturating_add(u64::try_from(unmade.len()).unwrap_or(u64::MAX));
        let mut all = state.divergences.clone();
        all.extend(unmade);
        all.truncate(LISTED_MAX);
        (all, total)
    }

    fn answer(&self, call: &NestedCall) -> Result<Value, CallError> {
        let key = call_key(call);
        let mut state = self.lock();
        state.made = state.made.saturating_add(1);
        let answer = state.answers.get_mut(&key).and_then(VecDeque::pop_front);
        let what = match answer.map(|answer| answer.outcome) {
            Some(RecordedOutcome::Result(result)) => return Ok(result),
            Some(RecordedOutcome::Error(error)) => return Err(error),
            Some(RecordedOutcome::Omitted) => DivergenceKind::ResultNotRecorded,
            Some(RecordedOutcome::Unended) => DivergenceKind::CallHadNotEnded,
            None => DivergenceKind::UnknownCall,
        };
        let found = divergence(state.made, &call.server, &call.tool, what);
        let error = CallErrorKind::Diverged.error(divergence_text(&found));
        state.total = state.total.saturating_add(1);
        if state.divergences.len() < LISTED_MAX {
            state.divergences.push(found);
        }
        Err(error)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Callee for FromRecord {
    async fn call(&self, call: NestedCall) -> Result<Value, CallError> {
        self.answer(&call)
    }
}

impl Callee for std::sync::Arc<FromRecord> {
    async fn call(&self, call: NestedCall) -> Result<Value, CallError> {
        self.answer(&call)
    }
}

fn divergence(call: u64, server: &str, tool: &str, what: DivergenceKind) -> Divergence {
    let name = |text: &str| text.chars().take(NAME_CHARS_MAX).collect();
    Divergence {
        call,
        server: name(server),
        tool: name(tool),
        what,
    }
}

/// The error message for the code and for the event.
fn divergence_text(found: &Divergence) -> String {
    let Divergence {
        call, server, tool, ..
    } = found;
    match found.what {
        DivergenceKind::UnknownCall | DivergenceKind::CallNotMade => format!(
            "replay diverged at call {call}: the record has no further call of {server}/{tool} with these arguments"
        ),
        DivergenceKind::ResultNotRecorded => format!(
            "replay stopped at call {call}: the record had no room for what {server}/{tool} returned"
        ),
        DivergenceKind::CallHadNotEnded => format!(
            "replay stopped at call {call}: the recorded call of {server}/{tool} had not ended"
        ),
    }
}
