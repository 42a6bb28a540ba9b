//! One run of an agent's program.
//!
//! Invariant: when a run is over, no process of it is left, however it ended; and where the gateway, or whoever waits
//! for the run, goes away in the middle, the program is ended likewise: it is a child as [`mooring_upstream::stdio`] has them.

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

/// Lines that wait to be read: what is held beside what was found is this many of the longest.
const LINES_WAITING_MAX: usize = 2;

/// What is run, and within which limits.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// The program: a path, or a name that is looked for in its own `PATH`.
    pub program: String,
    /// Its arguments, without the program's name. Each reaches it byte for byte; the longest is that of
    /// [`super::prompt::PROMPT_BYTES_MAX`].
    pub arguments: Vec<String>,
    /// Where it starts.
    pub directory: PathBuf,
    /// What it finds in its environment.
    pub environment: Environment,
    /// What the kernel holds each of its processes to.
    pub process_limits: ProcessLimits,
    /// Longest wait until its process exists.
    pub start_within: Duration,
    /// Longest run; then it is told to end.
    pub time_limit: Duration,
    /// How long it has after SIGTERM, before SIGKILL; so have processes that it leaves behind.
    pub terminate_grace: Duration,
    /// The most that it may print, in bytes; more ends it.
    pub output_bytes_max: usize,
    /// Longest line that it may print, in bytes. A longer one ends it too: half a line has neither id nor result, and a
    /// run that went on without them would be a conversation that nobody can take up again.
    pub line_bytes_max: usize,
    /// Most of its result that is kept, in bytes.
    pub result_bytes_max: usize,
    /// Texts by which it says that it does not know the session that it should resume.
    pub unknown_session: Vec<String>,
}

/// A run that has ended: none of its processes is left.
#[derive(Clone, Debug)]
pub struct CompletedRun {
    /// How it ended.
    pub ending: ProcessExit,
    /// What was found in its output, up to its end.
    pub findings: Findings,
    /// Whether a line of its output, or one of the last of its standard error, has a text of
    /// [`RunSpec::unknown_session`]. It means that only where the run failed: its result may well speak of sessions.
    pub says_unknown_session: bool,
    /// What it wrote to its standard error last: at most 20 lines of at most 4 KiB.
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
    /// What stands between it and the gateway broke, with the reason.
    Broken(String),
}

impl ProcessExit {
    /// Whether it ended by itself and said that all is well.
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
                // No input is closed by which it could know that it is to end: SIGTERM is the first word.
                stop_grace: Duration::ZERO,
                terminate_grace: self.terminate_grace,
            },
        }
    }
}

/// Runs the program once, its standard input at its end. Progress is passed on as it comes, and `stop` ends the run.
/// Where this is given up, the run is ended too, and counts among the children until it is gone.
///
/// # Errors
/// It was not started, and nothing of it is left.
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
    // Nobody wants it any more, nor what it still prints.
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

impl RunSpec {
    fn says_unknown(&self, line: &[u8]) -> bool {
        let mut texts = self.unknown_session.iter();
        texts.any(|text| memmem::find(line, text.as_bytes()).is_some())
    }
}

/// The run printed more than its output limit.
pub struct OutputLimitExceeded;

/// What is read of a run's output.
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

    /// Reads until there is no more.
    async fn read(
        &mut self,
        lines: &mut mpsc::Receiver<Bytes>,
        mut on_progress: impl FnMut(String) + Send,
    ) -> Result<(), OutputLimitExceeded> {
        while let Some(line) = lines.recv().await {
            // The last line may have no newline, for which one byte is counted all the same.
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

/// How it ended that there was no more to read.
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
        None => ProcessExit::Broken("nobody said how it ended".to_owned()),
    }
}

#[cfg(test)]
mod tests;
