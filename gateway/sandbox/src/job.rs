//! What to run, and what it sees.

use std::fmt;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use crate::limits::Limits;

/// One run.
#[derive(Debug)]
pub struct Job {
    /// What runs.
    pub program: Program,
    /// What it sees.
    pub trees: SessionTrees,
    /// What it may use.
    pub limits: Limits,
    /// What the program has as descriptor 3: one end of a socket pair, whose other end the caller holds. A pipeline's
    /// tools have none.
    pub bridge: Option<OwnedFd>,
    /// What it reaches of the network.
    pub network: Network,
}

/// What a program reaches of the network.
#[derive(Debug, Default)]
pub enum Network {
    /// Nothing. It cannot create a socket.
    #[default]
    None,
    /// One port of its own loopback, [`PROXY_PORT`], where the host answers as an HTTP proxy. In the strict tier alone:
    /// without a network namespace, what is to be kept from it would be kept by the filter of system calls alone.
    Proxy(ListenerCallback),
}

/// Where the proxy of [`Network::Proxy`] is found, on 127.0.0.1.
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
    /// The tool's name, one of those that the shell knows.
    pub tool: String,
    /// Its arguments. Those with a pattern are expanded inside the sandbox.
    pub arguments: Vec<Argument>,
}

/// One argument of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Argument {
    /// Taken as it stands.
    Literal(String),
    /// A pattern of file names: `*`, `?` and `[...]`. Where nothing matches, it is taken as it stands.
    Pattern(String),
}

/// The trees that a run sees, each an open directory. None of them is ever changed: what a run writes to the last two
/// stands in a layer, or in the degraded tier in a copy.
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
