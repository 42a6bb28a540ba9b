//! The log of the calls that the code of one run makes: a file that lines are appended to as calls begin and end, so
//! that the record of a run whose gateway was killed still has its calls.
//!
//! Two lines a call: `{seq, server, tool, arguments, started_at_ms}` before it is made, and `{seq, latency_ms, result}`
//! or `{seq, latency_ms, error: {kind, message}}` after. Where the log is full, or the volume nearly so, a line has `omitted_bytes` (and in the
//! place of arguments their hash), so that a replay can say what it lacks.
//!
//! Invariant: a line is written before the call or its result is forwarded. The log of one run has a bounded length.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::Value;

use super::call_lines::{
    BODIES_BYTES_MAX, BYTES_MAX, CallEndLine, CallMade, CallStartLine, ERROR_CHARS_MAX, ErrorLine,
    NAME_CHARS_MAX,
};
use super::calls_read::call_key;
use super::free_space::FreeSpace;
use super::id::RunId;
use super::versioned::head;
use crate::calls::{CallError, NestedCall};
use crate::volume::Area;
use mooring_metrics::{self as metrics, Record};
use mooring_store::unix_now_ms;

/// Most ends that a line is written with: its own, and that of a line before it that has none.
const LINE_ENDS_MAX: usize = 2;
/// Most calls that answers and records list.
pub(super) const LISTED_MAX: usize = 1_000;
/// The log of one run.
#[derive(Debug)]
pub(super) struct CallLog {
    area: Area,
    run: RunId,
    free_space: Arc<FreeSpace>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    file: Option<File>,
    bytes: u64,
    /// Whether the last line may have no end.
    is_torn: bool,
    is_incomplete: bool,
    is_closed: bool,
    total: u64,
    failed: u64,
    listed: Vec<LoggedCall>,
    latencies_ms: Vec<f64>,
}

#[derive(Debug)]
struct LoggedCall {
    began: Instant,
    is_open: bool,
    made: CallMade,
}

/// One call under way, by its number, which counts from 1.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) seq: u64,
    began: Instant,
}

/// A summary of a run's calls, for its answer and its record.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CallsMade {
    /// The calls, at most 1000 of them.
    pub(crate) calls: Vec<CallMade>,
    /// How many there were.
    pub(crate) total: u64,
    /// How many of them failed.
    pub(crate) failed: u64,
    /// Whether the log has all of them with all they returned.
    pub(crate) is_complete: bool,
    /// Latencies of those that ended, sorted, in milliseconds.
    latencies_ms: Vec<f64>,
}

impl CallLog {
    pub(super) fn new(area: Area, run: RunId, free_space: Arc<FreeSpace>) -> Self {
        Self {
            area,
            run,
            free_space,
            state: Mutex::default(),
        }
    }

    /// Notes that a call begins. Blocks.
    pub(super) fn began(&self, call: &NestedCall) -> OpenCall {
        let (began, started_at_ms) = (Instant::now(), unix_now_ms());
        // Before the others wait for this one.
        let key = call_key(call);
        let mut state = self.lock();
        state.total = state.total.saturating_add(1);
        let seq = state.total;
        let name = format!(
            "{}/{}",
            head(&call.server, NAME_CHARS_MAX),
            head(&call.tool, NAME_CHARS_MAX)
        );
        if state.listed.len() < LISTED_MAX {
            state.listed.push(LoggedCall {
                began,
                is_open: true,
                made: CallMade {
                    name,
                    started_at_ms,
                    latency_ms: 0.0,
                    success: false,
                    error: None,
                },
            });
        }
        let mut line = CallStartLine {
            seq,
            server: Cow::Borrowed(&call.server),
            tool: Cow::Borrowed(&call.tool),
            arguments: Some(Cow::Borrowed(&call.arguments)),
            omitted_bytes: None,
            key,
            started_at_ms,
        };
        self.append(&mut state, &serde_json::to_vec(&line), |bytes| {
            line.arguments = None;
            line.omitted_bytes = Some(bytes);
            line.server = head(&call.server, NAME_CHARS_MAX).into();
            line.tool = head(&call.tool, NAME_CHARS_MAX).into();
            serde_json::to_vec(&line)
        });
        OpenCall { seq, began }
    }

    /// Notes how it ended. Blocks.
    pub(super) fn ended(&self, open: &OpenCall, result: &Result<Value, CallError>) {
        let latency_ms = rounded_ms(open.began.elapsed());
        let mut line = CallEndLine {
            seq: open.seq,
            latency_ms,
            result: result.as_ref().ok().map(Cow::Borrowed),
            error: result.as_ref().err().map(|error| ErrorLine {
                kind: error.kind.into_str().to_owned(),
                message: error.message.clone(),
            }),
            omitted_bytes: None,
        };
        let mut state = self.lock();
        state.note_end(open, latency_ms, result.as_ref().err());
        self.append(&mut state, &serde_json::to_vec(&line), |bytes| {
            line.result = None;
            if let Some(error) = &mut line.error {
                error.message = head(&error.message, NAME_CHARS_MAX);
            }
            line.omitted_bytes = Some(bytes);
            serde_json::to_vec(&line)
        });
    }

    /// A summary of the calls so far.
    pub(super) fn made(&self) -> CallsMade {
        let state = self.lock();
        let of = |listed: &LoggedCall| {
            let mut made = listed.made.clone();
            if listed.is_open {
                made.latency_ms = rounded_ms(listed.began.elapsed());
                made.error = Some("the run ended before the call did".to_owned());
            }
            made
        };
        let mut latencies_ms = state.latencies_ms.clone();
        latencies_ms.sort_by(f64::total_cmp);
        CallsMade {
            calls: state.listed.iter().map(of).collect(),
            total: state.total,
            failed: state.failed,
            is_complete: !state.is_incomplete,
            latencies_ms,
        }
    }

    /// How long it is, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Nothing is written from now on: the run is over.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.file = None;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a line, or a shorter one where there is no room for it.
    fn append(
        &self,
        state: &mut State,
        line: &serde_json::Result<Vec<u8>>,
        shorten: impl FnOnce(u64) -> serde_json::Result<Vec<u8>>,
    ) {
        if state.is_closed {
            return;
        }
        let appended = match line {
            Ok(line)
                if state.has_room(line, BODIES_BYTES_MAX) && self.free_space.is_above_floor() =>
            {
                self.write(state, line)
            }
            Ok(line) => {
                state.is_incomplete = true;
                match shorten(length(line)) {
                    Ok(line) if state.has_room(&line, BYTES_MAX) => self.write(state, &line),
                    _ => Ok(()),
                }
            }
            Err(_) => Err(io::ErrorKind::InvalidData.into()),
        };
        if let Err(error) = appended {
            if !state.is_incomplete {
                tracing::warn!(%error, "tool calls of a run not recorded completely");
            }
            state.is_incomplete = true;
            metrics::code_record_failed(Record::Calls);
        }
    }

    fn write(&self, state: &mut State, line: &[u8]) -> io::Result<()> {
        if state.file.is_none() {
            state.file = Some(
                self.area
                    .append(&self.run.day(), &format!("{}.calls", self.run))?,
            );
        }
        let mut bytes = Vec::with_capacity(line.len().saturating_add(LINE_ENDS_MAX));
        if state.is_torn {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(line);
        bytes.push(b'\n');
        let Some(file) = &mut state.file else {
            return Err(io::ErrorKind::NotFound.into());
        };
        // Counted before it is written: how much of a torn line is in the file is unknown.
        state.bytes = state.bytes.saturating_add(length(&bytes));
        state.is_torn = true;
        file.write_all(&bytes)?;
        state.is_torn = false;
        Ok(())
    }
}

impl State {
    /// Whether a line, with the ends that it is written with, makes the log no longer than this.
    fn has_room(&self, line: &[u8], bytes_max: u64) -> bool {
        let ends = u64::try_from(LINE_ENDS_MAX).unwrap_or(u64::MAX);
        let bytes = length(line).saturating_add(ends);
        self.bytes.saturating_add(bytes) <= bytes_max
    }

    fn note_end(&mut self, open: &OpenCall, latency_ms: f64, error: Option<&CallError>) {
        if self.is_closed {
            return;
        }
        if error.is_some() {
            self.failed = self.failed.saturating_add(1);
        }
        if self.latencies_ms.len() < LISTED_MAX {
            self.latencies_ms.push(latency_ms);
        }
        let index = usize::try_from(open.seq)
            .unwrap_or(usize::MAX)
            .wrapping_sub(1);
        if let Some(listed) = self.listed.get_mut(index) {
            listed.is_open = false;
            listed.made.latency_ms = latency_ms;
            listed.made.success = error.is_none();
            listed.made.error = error.map(|error| head(&error.message, ERROR_CHARS_MAX));
        }
    }
}

impl CallsMade {
    /// The share of calls that failed; 0 without calls.
    pub(crate) fn error_rate(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "calls are far fewer than 2^52")]
        let rate = |failed: u64, total: u64| failed as f64 / total as f64;
        if self.total == 0 {
            0.0
        } else {
            rate(self.failed, self.total)
        }
    }

    /// The latency that this many of a hundred calls did not exceed, in milliseconds; none where no call ended.
    pub(crate) fn latency_ms(&self, percent: usize) -> Option<f64> {
        let count = self.latencies_ms.len();
        let rank = count.saturating_mul(percent).div_ceil(100).max(1);
        self.latencies_ms.get(rank.saturating_sub(1)).copied()
    }
}

/// Milliseconds with one digit after the point: a run or a call may take less than one.
pub(crate) fn rounded_ms(duration: std::time::Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
