//! A failed step, with its name: all that is reported of a refused run.
//!
//! Invariant: the helper does not continue after an error.

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

/// A step of the helper, by its name in answers and logs.
#[derive(Debug, Clone, Copy)]
pub(super) struct HelperStep(&'static str);

impl HelperStep {
    /// To die with the parent.
    pub(super) const PARENT: Self = Self("parent");
    /// Read the spec.
    pub(super) const SPEC: Self = Self("spec");
    /// To speak with the host or with process 1.
    const CHANNEL: Self = Self("channel");
    /// Create namespaces.
    pub(super) const NAMESPACES: Self = Self("namespaces");
    /// The user and group seen inside.
    pub(super) const IDENTITY: Self = Self("identity");
    /// The host name seen inside.
    pub(super) const HOST_NAME: Self = Self("host_name");
    /// A listening socket inside.
    pub(super) const NETWORK: Self = Self("network");
    /// Create a private root.
    pub(super) const ROOT: Self = Self("root");
    /// The session's trees.
    pub(super) const TREES: Self = Self("trees");
    /// Writable layers over them.
    pub(super) const OVERLAY: Self = Self("overlay");
    /// To change into the root.
    pub(super) const ENTER_ROOT: Self = Self("enter_root");
    /// Fork process 1.
    pub(super) const FORK: Self = Self("fork");
    /// Into the run's control group.
    pub(super) const CONTROL_GROUP: Self = Self("control_group");
    /// No descriptor of the host's.
    pub(super) const DESCRIPTORS: Self = Self("descriptors");
    /// How many processes there may be.
    pub(super) const PROCESS_LIMIT: Self = Self("process_limit");
    /// Limits per process.
    pub(super) const RLIMITS: Self = Self("rlimits");
    /// No capability.
    pub(super) const CAPABILITIES: Self = Self("capabilities");
    /// Access rules.
    pub(super) const LANDLOCK: Self = Self("landlock");
    /// The system call filter.
    pub(super) const SECCOMP: Self = Self("seccomp");
    /// The program itself.
    pub(super) const EXEC: Self = Self("exec");

    /// For `map_err`: the call of this step that failed.
    pub(super) fn at<E: Into<CallError>>(
        self,
        what: impl Into<Cow<'static, str>>,
    ) -> impl FnOnce(E) -> StepError {
        let at = at(what);
        move |error| self.failed()(at(error))
    }

    /// For `map_err`: the cause why this step failed.
    pub(super) fn failed(self) -> impl FnOnce(Cause) -> StepError {
        move |cause| StepError { step: self, cause }
    }

    /// Fails without an error number.
    pub(super) fn words(self, what: impl Into<Cow<'static, str>>) -> StepError {
        self.failed()(Cause::words(what))
    }
}

/// A failed step, and why.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub(super) struct StepError {
    step: HelperStep,
    cause: Cause,
}

impl From<ProtocolError> for StepError {
    fn from(error: ProtocolError) -> Self {
        HelperStep::CHANNEL.words(error.to_string())
    }
}

impl From<&StepError> for StepFailure {
    fn from(error: &StepError) -> Self {
        Self {
            step: error.step.0.to_owned(),
            errno: error.cause.errno.map_or(0, Errno::raw_os_error),
            text: error.to_string(),
        }
    }
}
