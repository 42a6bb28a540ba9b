//! Errors of reading or writing a tree for a caller.

use std::io;

use crate::paths::VirtualPath;

/// Why reading or writing a tree failed. The text is for the caller and contains no path of the host; the source of
/// [`TreeError::System`] is for the log.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// Nothing has that path.
    #[error("{0}: no such file or directory")]
    NotFound(VirtualPath),
    /// The path, or one of its parents, is not a directory.
    #[error("{0}: not a directory")]
    NotADirectory(VirtualPath),
    /// The path is a directory, not a file.
    #[error("{0}: is a directory")]
    IsADirectory(VirtualPath),
    /// A link, pipe, socket or device, or a link in the path: these are never followed or opened.
    #[error("{0}: neither a regular file nor a directory")]
    Special(VirtualPath),
    /// The file has several names, so its content may belong to another tree.
    #[error("{0}: the file has more than one name")]
    Linked(VirtualPath),
    /// The file is longer than the caller may read.
    #[error("{path}: {size_bytes} bytes, of which at most {bytes_max} can be read")]
    TooLarge {
        /// The path.
        path: VirtualPath,
        /// How long it is.
        size_bytes: u64,
        /// How long it may be.
        bytes_max: u64,
    },
    /// Agents write to `/scratch` and `/results` only.
    #[error("{0}: read-only; files can be written beneath /scratch and /results")]
    ReadOnly(VirtualPath),
    /// The policy of the server withholds it.
    #[error("{0}: the server's policy does not allow to {1} this path")]
    Denied(VirtualPath, &'static str),
    /// It would not fit.
    #[error("over the limit {limit}: {needed} needed, {allowed} allowed")]
    OverLimit {
        /// The name of the limit, as in [`Limits`](crate::Limits).
        limit: &'static str,
        /// The required amount.
        needed: u64,
        /// The limit.
        allowed: u64,
    },
    /// The system refused a step.
    #[error("could not {step}")]
    System {
        /// Which.
        step: &'static str,
        /// How.
        #[source]
        source: io::Error,
    },
}

impl TreeError {
    /// Maps the system's error of `step` on `path` to one of these.
    pub(super) fn on(
        path: &VirtualPath,
        step: &'static str,
    ) -> impl FnOnce(rustix::io::Errno) -> Self {
        use rustix::io::Errno;

        let path = path.clone();
        move |errno| match errno {
            Errno::NOENT => Self::NotFound(path),
            Errno::NOTDIR => Self::NotADirectory(path),
            Errno::LOOP | Errno::XDEV => Self::Special(path),
            other => Self::System {
                step,
                source: other.into(),
            },
        }
    }

    /// The system's refusal of `step`, whatever it was.
    pub(super) fn system<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System {
            step,
            source: source.into(),
        }
    }
}
