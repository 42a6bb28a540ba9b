//! One run of an agent's program.
//!
//! Invariant: after a run none of its processes is left, however it ended; if the gateway dies or the caller
//! disconnects during the run, the program is ended too: it is a child of the supervisor in
//! [`mooring_upstream::stdio`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use memchr::memmem;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::output::{Findings, OutputReader};
use mooring_settings::OutputRules;
use mooring_upstream::connection::link::{Link, LinkEnd};
use mooring_upstream::stdio::{Child, ChildSpec, Children, Label, StartError};

/// Longest prompt in bytes. Linux limits any single argument to less than 128 KiB (`MAX_ARG_STRLEN`), whatever the
/// total; the rest is for the text that a template puts around the prompt in the same argument.
pub(crate) const PROMPT_BYTES_MAX: usize = 100 * 1024;

/// The program to run, and its limits.
#[derive(Clone, Debug)]
pub(crate) struct RunSpec {
    /// The program, with its arguments. A line longer than its messages may be ends the run: id and result could be in
    /// the missing part, and without its id the conversation could not be resumed.
    pub child: ChildSpec,
    /// Longest run; then it gets SIGTERM.
    pub time_limit: Duration,
    /// Most output in bytes; more ends the run.
    pub output_bytes_max: usize,
    /// Most bytes of the result that are kept.
    pub result_bytes_max: usize,
    /// Texts in its output that mean that it does not know the session to resume.
    pub unknown_session: Vec<String>,
}

/// A run that has ended: none of its processes is left.
#[derive(Clone, Debug)]
pub(crate) struct CompletedRun {
    /// How the program ended.
    pub ending: ProcessExit,
    /// What was extracted from its output.
    pub findings: Findings,
    /// Whether a line of its output, or one of the last on stderr, contains a text of [`RunSpec::unknown_session`].
    /// Only meaningful if the run failed: a result may well mention sessions.
    pub says_unknown_session: bool,
    /// The last output on stderr: at most 20 lines of at most 4 KiB.
    pub stderr: Vec<String>,
    /// From its start to the end of its last process.
    pub wall_time: Duration,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProcessExit {
    /// It exited, or another process's signal ended it.
    Exited {
        /// Its exit code; `None` if a signal ended it.
        code: Option<i32>,
        /// The exit status as text.
        said: String,
    },
    /// It took longer than [`RunSpec::time_limit`].
    TimedOut,
    /// It printed more than [`RunSpec::output_bytes_max`], or a line that is too long.
    OutputTooLong,
    /// It was stopped.
    Stopped,
    /// The connection to the process broke, for this reason.
    Broken(String),
}

impl ProcessExit {
    /// Whether it exited with success.
    pub(crate) fn is_success(&self) -> bool {
        matches!(self, Self::Exited { code: Some(0), .. })
    }
}

impl RunSpec {
    fn says_unknown(&self, line: &[u8]) -> bool {
        let mut texts = self.unknown_session.iter();
        texts.any(|text| memmem::find(line, text.as_bytes()).is_some())
    }
}

/// Runs the program once, with stdin closed. Progress is relayed as it arrives, and `stop` ends the run. Dropping the
/// future ends the run too; it counts among the children until it is gone.
///
/// # Errors
/// The program was not started, and nothing of it is left.
pub(crate) async fn run(
    children: &Children,
    spec: &RunSpec,
    label: Label,
    rules: Arc<OutputRules>,
    on_progress: impl FnMut(String) + Send,
    stop: CancellationToken,
) -> Result<CompletedRun, StartError> {
    let Child { link, stderr, .. } = children.start(&spec.child, label).await?;
    let began = Instant::now();
    let Link {
        mut from_server,
        end,
        stop: interest,
        gone,
        ..
    } = link;
    let mut output = Output::new(spec, rules);
    let ending = tokio::select! {
        biased;
        () = stop.cancelled() => ProcessExit::Stopped,
        () = tokio::time::sleep(spec.time_limit) => ProcessExit::TimedOut,
        read = output.read(&mut from_server, on_progress) => match read {
            Ok(()) => ending(&end),
            Err(OutputLimitExceeded) => ProcessExit::OutputTooLong,
        },
    };
    // Ends the connection: its output is not needed any more.
    drop((interest, from_server));
    gone.cancelled().await;
    let stderr = stderr.lines();
    let is_unknown = stderr.iter().any(|line| spec.says_unknown(line.as_bytes()));
    Ok(CompletedRun {
        ending,
        findings: output.reader.finish(),
        says_unknown_session: output.says_unknown_session || is_unknown,
        stderr,
        wall_time: began.elapsed(),
    })
}

/// The run printed more than its output limit.
pub(crate) struct OutputLimitExceeded;

/// Reads a run's output.
struct Output<'s> {
    spec: &'s RunSpec,
    reader: OutputReader,
    bytes_left: usize,
    says_unknown_session: bool,
}

impl<'s> Output<'s> {
    fn new(spec: &'s RunSpec, rules: Arc<OutputRules>) -> Self {
        Self {
            spec,
            reader: OutputReader::new(rules, spec.result_bytes_max),
            bytes_left: spec.output_bytes_max,
            says_unknown_session: false,
        }
    }

    /// Reads until the end.
    async fn read(
        &mut self,
        lines: &mut mpsc::Receiver<Bytes>,
        mut on_progress: impl FnMut(String) + Send,
    ) -> Result<(), OutputLimitExceeded> {
        while let Some(line) = lines.recv().await {
            // The last line may have no newline; one byte is counted for it anyway.
            let bytes = line.len().saturating_add(1);
            self.bytes_left = self
                .bytes_left
                .checked_sub(bytes)
                .ok_or(OutputLimitExceeded)?;
            self.says_unknown_session |= self.spec.says_unknown(&line);
            if let Some(progress) = self.reader.line(&line) {
                on_progress(progress);
            }
        }
        Ok(())
    }
}

/// How the process ended, after the end of its output.
fn ending(end: &watch::Receiver<Option<LinkEnd>>) -> ProcessExit {
    match &*end.borrow() {
        Some(LinkEnd::Exited(status)) => ProcessExit::Exited {
            code: status.code(),
            said: status.to_string(),
        },
        Some(LinkEnd::MessageTooLong { .. }) => ProcessExit::OutputTooLong,
        Some(other @ (LinkEnd::Closed | LinkEnd::Broken(_))) => {
            ProcessExit::Broken(other.to_string())
        }
        None => ProcessExit::Broken("no exit status".to_owned()),
    }
}

#[cfg(test)]
mod tests;
