//! One child process: started with its output in a file, signalled by its own id, gone when dropped.
//!
//! Invariant: a signal is sent only before the child was reaped, so its id cannot belong to another process.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::wait;

/// How long a process may take to end after SIGTERM before it is killed, and to stop after SIGSTOP.
const STOPPED_WITHIN: Duration = Duration::from_secs(30);

/// How much of a log is shown in a failure.
const LOG_TAIL_LINES: usize = 60;

/// A running child, or one that has ended with a known status.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    ended: Option<ExitStatus>,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with standard output and error appended to `log`.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .context("open the log")?;
        let errors = output.try_clone().context("share the log")?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .with_context(|| format!("start {name} ({})", command.get_program().display()))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            ended: None,
            log: log.to_owned(),
        })
    }

    /// The child's process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How the child ended, or `None` while it runs.
    pub fn exit_status(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self
                .child
                .try_wait()
                .context("ask whether the child has ended")?;
        }
        Ok(self.ended)
    }

    /// SIGKILL, and waits until the kernel has taken the process away.
    pub fn kill_now(&mut self) -> anyhow::Result<()> {
        if self.exit_status()?.is_none() {
            self.signal(Signal::KILL)?;
            self.ended = Some(self.child.wait().context("wait for the killed child")?);
        }
        Ok(())
    }

    /// SIGTERM, without waiting for the end.
    pub fn begin_to_terminate(&mut self) -> anyhow::Result<()> {
        if self.exit_status()?.is_none() {
            self.signal(Signal::TERM)?;
        }
        Ok(())
    }

    /// SIGTERM, and waits for a clean end; how it ended.
    pub async fn terminate(&mut self) -> anyhow::Result<ExitStatus> {
        self.begin_to_terminate()?;
        self.ended(STOPPED_WITHIN).await
    }

    /// Waits until the process exits.
    pub async fn ended(&mut self, limit: Duration) -> anyhow::Result<ExitStatus> {
        let what = format!("the end of {}", self.name);
        wait::until(&what, limit, async || self.exit_status()).await
    }

    /// SIGSTOP, and waits until all threads have stopped: the process keeps its sockets and answers nothing.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)?;
        let asked = Instant::now();
        while asked.elapsed() < STOPPED_WITHIN {
            // The kernel reports a stop when the last thread has taken part in it (wait(2), WUNTRACED).
            let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
            let stopped = waitid(WaitId::Pid(self.process_id()?), options)
                .with_context(|| format!("wait until {} has stopped", self.name))?;
            if stopped.is_some() {
                return Ok(());
            }
            if let Some(status) = self.exit_status()? {
                bail!("{} ended while it was stopped: {status}", self.name);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        bail!("{} has not stopped within {STOPPED_WITHIN:?}", self.name)
    }

    /// SIGCONT.
    pub fn cont(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Everything the process wrote so far, of all its starts.
    #[must_use]
    pub fn log_text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until `probe` succeeds; fails at once if the process exits. A failure shows the last result of the probe,
    /// and the log.
    pub async fn ready(
        &mut self,
        mut probe: impl AsyncFnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let what = format!("{} to answer", self.name);
        let mut last_probe = None;
        let waited = wait::until_true(&what, wait::STARTED_WITHIN, async || {
            if let Some(status) = self.exit_status()? {
                bail!("{} ended while it was waited for: {status}", self.name);
            }
            last_probe = probe().await.err();
            Ok(last_probe.is_none())
        })
        .await;
        waited.with_context(|| {
            let last_probe = last_probe
                .map(|error| format!("{error:#}"))
                .unwrap_or_default();
            format!("last probe: {last_probe}\n{}", self.log_tail())
        })
    }

    fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        if let Some(status) = self.exit_status()? {
            bail!("{} has ended already: {status}", self.name);
        }
        kill_process(self.process_id()?, signal).with_context(|| format!("signal {}", self.name))
    }

    fn process_id(&self) -> anyhow::Result<Pid> {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        id.context("the child has an id")
    }

    fn log_tail(&self) -> String {
        let text = self.log_text();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines
            .get(lines.len().saturating_sub(LOG_TAIL_LINES)..)
            .unwrap_or_default();
        format!("log of {}:\n{}", self.name, tail.join("\n"))
    }

    /// SIGTERM, then SIGKILL; errors are of no use any more.
    fn end(&mut self) {
        if !matches!(self.exit_status(), Ok(None)) {
            return;
        }
        let _ = self.cont();
        let _ = self.signal(Signal::TERM);
        let asked = Instant::now();
        while asked.elapsed() < STOPPED_WITHIN {
            if !matches!(self.exit_status(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.kill_now();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
        // A test may also fail by an error that it returns. The harness, which names the thread after the test, captures
        // the output and shows it for failed tests only.
        let is_in_test = std::thread::current().name() != Some("main");
        if is_in_test || std::thread::panicking() {
            show(&self.log_tail());
        }
    }
}

#[expect(
    clippy::print_stderr,
    reason = "a failed test shows what its processes said"
)]
fn show(text: &str) {
    eprintln!("{text}");
}
