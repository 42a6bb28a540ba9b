//! Starts children, up to the limit of the process.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::command::{ChildSpec, Traffic};
use super::course::RunningChild;
use super::error::StartError;
use super::label::Label;
use super::launcher::Launcher;
use super::output::Output;
use super::protocol::send_streams;
use super::reports::Reports;
use super::stderr::RecentLines;
use super::strays::MainProcess;
use crate::connection::link::{self, Link};
use mooring_traces::without_scope;
use mooring_usage::for_same_user;

/// An upper bound that no machine reaches and a semaphore accepts.
const CHILDREN_MAX: usize = 1 << 20;

/// A started child. Dropping the link's `stop` ends it: its stdin is closed, then SIGTERM, then SIGKILL.
#[derive(Debug)]
pub struct Child {
    /// The messages to and from it. `gone` is cancelled when none of its processes is left.
    pub link: Link,
    /// Its process id, which is also its process group.
    pub pid: i32,
    /// The process id of its guard, see [`super::supervisor`].
    pub guard_pid: i32,
    /// The last lines that it wrote to stderr.
    pub stderr: RecentLines,
}

/// The children of this process. Clones are cheap and share the limit.
#[derive(Clone, Debug)]
pub struct Children {
    slots: Arc<Semaphore>,
    children_max: usize,
    launcher: Launcher,
}

impl Children {
    /// No children yet. At most `children_max` run at a time (never more than 2^20); a child counts until all its
    /// processes are gone.
    #[must_use]
    pub fn new(children_max: usize, launcher: Launcher) -> Self {
        let children_max = children_max.min(CHILDREN_MAX);
        Self {
            slots: Arc::new(Semaphore::new(children_max)),
            children_max,
            launcher,
        }
    }

    /// The number of children, including those that are ending.
    #[must_use]
    pub fn running(&self) -> usize {
        self.children_max
            .saturating_sub(self.slots.available_permits())
    }

    /// Waits until there are none, and prevents new ones meanwhile. For the end of this process, after all links were
    /// dropped.
    pub async fn all_gone(&self) {
        let all = u32::try_from(self.children_max).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        let _ = self.slots.acquire_many(all).await;
    }

    /// Starts a child if a slot is free. Its process is running when this returns; the caller checks whether it speaks
    /// MCP.
    ///
    /// # Errors
    /// No child was started, and nothing of it is left.
    pub async fn start(&self, spec: &ChildSpec, label: Label) -> Result<Child, StartError> {
        self.start_in(self.try_reserve()?, spec, label).await
    }

    /// Starts a child in a reserved slot.
    ///
    /// # Errors
    /// No child was started, nothing of it is left, and the slot is free.
    pub async fn start_in(
        &self,
        ChildSlot(slot): ChildSlot,
        spec: &ChildSpec,
        label: Label,
    ) -> Result<Child, StartError> {
        let limits = &spec.limits;
        let (gateway_pipes, mut reports, guard) = self.launch(spec.traffic)?;
        let started = timeout(limits.start_within, reports.order(spec));
        let pid = started.await.map_err(|_| StartError::Late)??;

        let stderr = RecentLines::default();
        // A guard that has been waited for has no process id.
        let guard_pid = guard.id().and_then(|pid| i32::try_from(pid).ok());
        let guard_pid = guard_pid.unwrap_or(0);
        let Label { server, session } = &label;
        tracing::info!(%server, %session, pid, guard_pid, "started a server process");
        let (link, transport_end) = link::pair(limits.messages_waiting_max);
        let bytes_max = limits.message_bytes_max;
        let output = Output::new(gateway_pipes.output, bytes_max, spec.traffic, label.clone());
        let log = super::stderr::log(gateway_pipes.errors, label.clone(), stderr.clone());
        let running = RunningChild {
            transport_end,
            input: gateway_pipes.input,
            output,
            reports,
            guard,
            main: MainProcess::open(pid, guard_pid),
            traffic: spec.traffic,
            errors: tokio::spawn(for_same_user(without_scope(log))),
            message_bytes_max: bytes_max,
            label,
            recent: stderr.clone(),
            slot,
        };
        tokio::spawn(for_same_user(without_scope(running.run())));
        Ok(Child {
            link,
            pid,
            guard_pid,
            stderr,
        })
    }

    /// Reserves a slot, if one is free.
    ///
    /// # Errors
    /// `AllInUse`.
    pub fn try_reserve(&self) -> Result<ChildSlot, StartError> {
        let reserved = Arc::clone(&self.slots).try_acquire_owned();
        reserved.map(ChildSlot).map_err(|_| self.all_in_use())
    }

    /// Reserves a slot as soon as one is free, in the order of the calls.
    ///
    /// # Errors
    /// None in practice: the semaphore is never closed.
    pub async fn reserve(&self) -> Result<ChildSlot, StartError> {
        let reserved = Arc::clone(&self.slots).acquire_owned().await;
        reserved.map(ChildSlot).map_err(|_| self.all_in_use())
    }

    fn all_in_use(&self) -> StartError {
        StartError::AllInUse {
            children_max: self.children_max,
        }
    }

    /// Starts the supervisors and passes them the child's streams.
    fn launch(
        &self,
        traffic: Traffic,
    ) -> Result<(GatewayPipes, Reports, tokio::process::Child), StartError> {
        let (gateway_pipes, transport_end) = streams(traffic).map_err(StartError::Pipes)?;
        let (socket, theirs) = UnixStream::pair().map_err(StartError::Pipes)?;
        let guard = self.launcher.start(theirs);
        let guard = guard.map_err(StartError::Supervisor)?;
        send_streams(&socket, transport_end.each_ref().map(OwnedFd::as_fd))
            .map_err(StartError::Order)?;
        let reports = Reports::new(socket).map_err(StartError::Pipes)?;
        Ok((gateway_pipes, reports, guard))
    }
}

/// A slot for one child, released when dropped.
#[derive(Debug)]
pub struct ChildSlot(OwnedSemaphorePermit);

/// The gateway's side of a child's streams.
struct GatewayPipes {
    /// `None` if nothing is ever sent.
    input: Option<pipe::Sender>,
    output: pipe::Receiver,
    errors: pipe::Receiver,
}

/// A child's streams; the child's side in the order of its descriptors.
fn streams(traffic: Traffic) -> io::Result<(GatewayPipes, [OwnedFd; 3])> {
    let (stdin, input) = match traffic {
        Traffic::Messages => {
            let (stdin, input) = pipe_with(PipeFlags::CLOEXEC)?;
            (stdin, Some(pipe::Sender::from_owned_fd(input)?))
        }
        // Not a pipe: some programs read a piped stdin as a second prompt.
        Traffic::Output => {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            (rustix::fs::open("/dev/null", flags, Mode::empty())?, None)
        }
    };
    let (output, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (errors, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    let gateway_pipes = GatewayPipes {
        input,
        output: pipe::Receiver::from_owned_fd(output)?,
        errors: pipe::Receiver::from_owned_fd(errors)?,
    };
    Ok((gateway_pipes, [stdin, stdout, stderr]))
}
