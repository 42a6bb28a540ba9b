//! The program to run, and its trees, limits and network.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use serde::{Deserialize, Serialize};

use crate::limits::Limits;
use crate::paths::Mount;

/// One run.
#[derive(Debug)]
pub struct Job {
    /// What runs.
    pub program: Program,
    /// The trees that the program sees.
    pub trees: SessionTrees,
    /// The limits of the run.
    pub limits: Limits,
    /// The program's descriptor 3: one end of a socket pair, whose other end the caller has. Tools of a pipeline do not
    /// get it.
    pub bridge: Option<OwnedFd>,
    /// The network access of the run.
    pub network: Network,
}

/// The network access of a program.
#[derive(Debug, Default)]
pub enum Network {
    /// Nothing. It cannot create a socket.
    #[default]
    None,
    /// One port of its private loopback, [`PROXY_PORT`], where the host serves as an HTTP proxy. In the strict tier
    /// only: without a network namespace, the system call filter would be the only barrier.
    Proxy(ListenerCallback),
}

/// The port of [`Network::Proxy`], on 127.0.0.1.
pub const PROXY_PORT: u16 = 3128;

/// Receives the socket that listens inside, before the program is started, on the thread of the run. The receiver
/// accepts on it and closes it at the end of the run: the run's network namespace lasts as long as the socket.
pub struct ListenerCallback(Box<dyn FnOnce(OwnedFd) + Send>);

impl ListenerCallback {
    /// A callback that runs this function. It must not block.
    pub fn new(take: impl FnOnce(OwnedFd) + Send + 'static) -> Self {
        Self(Box::new(take))
    }

    pub(crate) fn take(self, listener: OwnedFd) {
        (self.0)(listener);
    }
}

impl fmt::Debug for ListenerCallback {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ListenerCallback").finish()
    }
}

/// What runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// Source text for `python3`.
    Python {
        /// At most [`Limits::SOURCE_BYTES_MAX`] bytes.
        source: String,
    },
    /// Source text for `deno`.
    TypeScript {
        /// At most [`Limits::SOURCE_BYTES_MAX`] bytes.
        source: String,
    },
    /// Tools that read one another's output, without a shell. At least one stage.
    Pipeline {
        /// In the order of the pipe.
        stages: Vec<Stage>,
    },
}

/// One tool of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// The name of a tool that the shell supports.
    pub tool: String,
    /// Its arguments. Those with a pattern are expanded inside the sandbox.
    pub arguments: Vec<Argument>,
}

/// One argument of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Argument {
    /// Passed unchanged.
    Literal(String),
    /// A pattern of file names: `*`, `?` and `[...]`. Passed unchanged if nothing matches.
    Pattern(String),
}

/// The trees that a run and the `fs_*` tools see, each an open directory. A run never changes them directly: its writes
/// to the last two go to a layer, or in the degraded tier to a copy.
#[derive(Debug)]
pub struct SessionTrees {
    /// Mounted at `/tools`.
    pub tools: OwnedFd,
    /// Mounted at `/skills`.
    pub skills: OwnedFd,
    /// The lower layer of `/scratch`: what earlier runs left. Nothing may change it while the run lasts.
    pub scratch: OwnedFd,
    /// The lower layer of `/results`.
    pub results: OwnedFd,
}

impl SessionTrees {
    /// The directory of one mount.
    #[must_use]
    pub fn mount(&self, mount: Mount) -> BorrowedFd<'_> {
        match mount {
            Mount::Results => self.results.as_fd(),
            Mount::Scratch => self.scratch.as_fd(),
            Mount::Skills => self.skills.as_fd(),
            Mount::Tools => self.tools.as_fd(),
        }
    }

    /// The same trees, by descriptors of their own.
    ///
    /// # Errors
    ///
    /// The process has too many files open.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            tools: self.tools.try_clone()?,
            skills: self.skills.try_clone()?,
            scratch: self.scratch.try_clone()?,
            results: self.results.try_clone()?,
        })
    }
}
