//! A failed step, with its name: all that is reported of a refused run.
//!
//! Invariant: every step has its own variant, and the helper does not continue after an error.

use std::borrow::Cow;
use std::fmt;

use rustix::io::Errno;

use crate::protocol::{ProtocolError, StepFailure};

/// The operation of a step that failed.
#[derive(Debug)]
pub(super) struct Cause {
    what: Cow<'static, str>,
    errno: Option<Errno>,
}

impl Cause {
    /// A cause without an error number.
    pub(super) fn words(what: impl Into<Cow<'static, str>>) -> Self {
        Self {
            what: what.into(),
            errno: None,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errno {
            Some(errno) => write!(formatter, "{}: {errno}", self.what),
            None => formatter.write_str(&self.what),
        }
    }
}

/// For `map_err`: the call that failed, before its error number.
pub(super) fn at<E: Into<CallError>>(
    what: impl Into<Cow<'static, str>>,
) -> impl FnOnce(E) -> Cause {
    move |error| Cause {
        what: what.into(),
        errno: error.into().0,
    }
}

/// The error number of a failed call, from any library.
pub(super) struct CallError(Option<Errno>);

impl From<Errno> for CallError {
    fn from(errno: Errno) -> Self {
        Self(Some(errno))
    }
}

impl From<std::io::Error> for CallError {
    fn from(error: std::io::Error) -> Self {
        Self(Errno::from_io_error(&error))
    }
}

/// The steps of the helper.
#[derive(Debug, thiserror::Error)]
pub(super) enum StepError {
    /// To die with the parent.
    #[error("{0}")]
    Parent(Cause),
    /// Read the spec.
    #[error("{0}")]
    Spec(Cause),
    /// To speak with the host or with process 1.
    #[error("{0}")]
    Channel(#[from] ProtocolError),
    /// Create namespaces.
    #[error("{0}")]
    Namespaces(Cause),
    /// The user and group seen inside.
    #[error("{0}")]
    Identity(Cause),
    /// The host name seen inside.
    #[error("{0}")]
    HostName(Cause),
    /// A listening socket inside.
    #[error("{0}")]
    Network(Cause),
    /// Create a private root.
    #[error("{0}")]
    Root(Cause),
    /// The session's trees.
    #[error("{0}")]
    Trees(Cause),
    /// Writable layers over them.
    #[error("{0}")]
    Overlay(Cause),
    /// To change into the root.
    #[error("{0}")]
    EnterRoot(Cause),
    /// Fork process 1.
    #[error("{0}")]
    Fork(Cause),
    /// Into the run's control group.
    #[error("{0}")]
    ControlGroup(Cause),
    /// No descriptor of the host's.
    #[error("{0}")]
    Descriptors(Cause),
    /// How many processes there may be.
    #[error("{0}")]
    ProcessLimit(Cause),
    /// Limits per process.
    #[error("{0}")]
    Rlimits(Cause),
    /// No capability.
    #[error("{0}")]
    Capabilities(Cause),
    /// Access rules.
    #[error("{0}")]
    Landlock(Cause),
    /// The system call filter.
    #[error("{0}")]
    Seccomp(Cause),
    /// The program itself.
    #[error("{0}")]
    Exec(Cause),
}

impl StepError {
    /// The step's name in answers and logs.
    const fn step(&self) -> &'static str {
        match self {
            Self::Parent(_) => "parent",
            Self::Spec(_) => "spec",
            Self::Channel(_) => "channel",
            Self::Namespaces(_) => "namespaces",
            Self::Identity(_) => "identity",
            Self::HostName(_) => "host_name",
            Self::Network(_) => "network",
            Self::Root(_) => "root",
            Self::Trees(_) => "trees",
            Self::Overlay(_) => "overlay",
            Self::EnterRoot(_) => "enter_root",
            Self::Fork(_) => "fork",
            Self::ControlGroup(_) => "control_group",
            Self::Descriptors(_) => "descriptors",
            Self::ProcessLimit(_) => "process_limit",
            Self::Rlimits(_) => "rlimits",
            Self::Capabilities(_) => "capabilities",
            Self::Landlock(_) => "landlock",
            Self::Seccomp(_) => "seccomp",
            Self::Exec(_) => "exec",
        }
    }

    const fn errno(&self) -> Option<Errno> {
        match self {
            Self::Channel(_) => None,
            Self::Parent(cause)
            | Self::Spec(cause)
            | Self::Namespaces(cause)
            | Self::Identity(cause)
            | Self::HostName(cause)
            | Self::Network(cause)
            | Self::Root(cause)
            | Self::Trees(cause)
            | Self::Overlay(cause)
            | Self::EnterRoot(cause)
            | Self::Fork(cause)
            | Self::ControlGroup(cause)
            | Self::Descriptors(cause)
            | Self::ProcessLimit(cause)
            | Self::Rlimits(cause)
            | Self::Capabilities(cause)
            | Self::Landlock(cause)
            | Self::Seccomp(cause)
            | Self::Exec(cause) => cause.errno,
        }
    }
}

impl From<&StepError> for StepFailure {
    fn from(error: &StepError) -> Self {
        Self {
            step: error.step().to_owned(),
            errno: error.errno().map_or(0, Errno::raw_os_error),
            text: error.to_string(),
        }
    }
}
