//! What is to be run, and what it sees.

use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use crate::limits::Limits;

/// One run.
#[derive(Debug)]
pub struct Job {
    /// What runs.
    pub program: Program,
    /// What it sees.
    pub trees: Trees,
    /// What it may use.
    pub limits: Limits,
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
pub struct Trees {
    /// Mounted at `/tools`.
    pub tools: OwnedFd,
    /// Mounted at `/skills`.
    pub skills: OwnedFd,
    /// The lower layer of `/scratch`: what earlier runs left. Nothing may change it while the run lasts.
    pub scratch: OwnedFd,
    /// The lower layer of `/results`.
    pub results: OwnedFd,
}
