//! One run of an agent's program.
//!
//! Invariant: after a run none of its processes is left, however it ended; if the gateway dies or the caller
//! disconnects during the run, the program is ended too: it is a child of the supervisor in
//! [`mooring_upstream::stdio`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use memchr::memmem;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::output::{Findings, OutputReader};
use mooring_settings::OutputRules;
use mooring_upstream::connection::link::{Link, LinkEnd};
use mooring_upstream::stdio::{
    Child, ChildLimits, ChildSpec, Children, Environment, Label, ProcessLimits, StartError, Traffic,
};

/// Longest prompt in bytes. Linux limits any single argument to less than 128 KiB (`MAX_ARG_STRLEN`), whatever the
/// total; the rest is for the text that a template puts around the prompt in the same argument.
pub const PROMPT_BYTES_MAX: usize = 100 * 1024;
/// Most queued lines: they are all that is held besides what was extracted.
const LINES_WAITING_MAX: usize = 2;

/// The program to run, and its limits.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// The program: a path, or a name that is searched in the `PATH` of its environment.
    pub program: String,
    /// Its arguments, without the program's name. Each is passed byte for byte; the longest has
    /// [`PROMPT_BYTES_MAX`].
    pub arguments: Vec<String>,
    /// Its working directory.
    pub directory: PathBuf,
    /// Its environment.
    pub environment: Environment,
    /// The kernel's limits for each of its processes.
    pub process_limits: ProcessLimits,
    /// Timeout for starting the process.
    pub start_within: Duration,
    /// Longest run; then it gets SIGTERM.
    pub time_limit: Duration,
    /// Time between SIGTERM and SIGKILL, also for processes that it leaves behind.
    pub terminate_grace: Duration,
    /// Most output in bytes; more ends the run.
    pub output_bytes_max: usize,
    /// Longest line of output in bytes. A longer one ends the run too: id and result could be in the missing part, and
    /// without its id the conversation could not be resumed.
    pub line_bytes_max: usize,
    /// Most bytes of the result that are kept.
    pub result_bytes_max: usize,
    /// Texts in its output that mean that it does not know the session to resume.
    pub unknown_session: Vec<String>,
}

/// A run that has ended: none of its processes is left.
#[derive(Clone, Debug)]
pub struct CompletedRun {
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
pub enum ProcessExit {
    /// It exited, or another process's signal ended it.
    Exited {
        /// Its exit code; `None` if a signal ended it.
        code: Option<i32>,
        /// The exit status as text.
        said: String,
    },
    /// It took longer than [`RunSpec::time_limit`].
    TimedOut,
    /// It printed more than [`RunSpec::output_bytes_max`], or a line longer than [`RunSpec::line_bytes_max`].
    OutputTooLong,
    /// It was stopped.
    Stopped,
    /// The connection to the process broke, for this reason.
    Broken(String),
}

impl ProcessExit {
    /// Whether it exited with success.
    #[must_use]
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Exited { code: Some(0), .. })
    }
}

impl RunSpec {
    fn child(&self) -> ChildSpec {
        ChildSpec {
            program: self.program.clone(),
            arguments: self.arguments.clone(),
            directory: Some(self.directory.clone()),
            environment: self.environment.clone(),
            traffic: Traffic::Output,
            limits: ChildLimits {
                process: self.process_limits,
                message_bytes_max: self.line_bytes_max,
                messages_waiting_max: LINES_WAITING_MAX,
                start_within: self.start_within,
                // The program has no open stdin that could be closed to end it, so SIGTERM is sent first.
                stop_grace: Duration::ZERO,
                terminate_grace: self.terminate_grace,
            },
        }
    }

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
pub async fn run(
    children: &Children,
    spec: &RunSpec,
    label: Label,
    rules: Arc<OutputRules>,
    on_progress: impl FnMut(String) + Send,
    stop: CancellationToken,
) -> Result<CompletedRun, StartError> {
    let Child { link, stderr, .. } = children.start(&spec.child(), label).await?;
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
pub struct OutputLimitExceeded;

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
