//! What can go wrong when a caller looks into a tree or writes to it.

use std::io;

use super::path::VirtualPath;

/// Why a look into a tree, or a write to it, failed. The text is for the caller and names no place on the host; the
/// source of [`TreeError::System`] is for the log.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// Nothing has that path.
    #[error("{0}: no such file or directory")]
    NotFound(VirtualPath),
    /// A directory was asked for, or was needed on the way.
    #[error("{0}: not a directory")]
    NotADirectory(VirtualPath),
    /// A file was asked for.
    #[error("{0}: is a directory")]
    IsADirectory(VirtualPath),
    /// A link, pipe, socket or device, or a link on the way: these are never followed nor opened.
    #[error("{0}: neither a regular file nor a directory")]
    Special(VirtualPath),
    /// The file has more than one name, so what it holds may belong to somebody else.
    #[error("{0}: the file has more than one name")]
    Linked(VirtualPath),
    /// The file is longer than the caller may read.
    #[error("{path}: {size_bytes} bytes, of which at most {bytes_max} can be read")]
    TooLarge {
        /// What was asked for.
        path: VirtualPath,
        /// How long it is.
        size_bytes: u64,
        /// How long it may be.
        bytes_max: u64,
    },
    /// Agents write to `/scratch` and `/results` only.
    #[error("{0}: read-only; files can be written beneath /scratch and /results")]
    ReadOnly(VirtualPath),
    /// It would not fit.
    #[error("over the limit {limit}: {needed} needed, {allowed} allowed")]
    OverLimit {
        /// The name of the limit, as in [`Limits`](crate::Limits).
        limit: &'static str,
        /// What it would take.
        needed: u64,
        /// What is allowed.
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
    /// Turns the system's refusal of `step` on the way to `path` into what it means.
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
