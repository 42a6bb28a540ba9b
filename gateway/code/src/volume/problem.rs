//! Why a volume cannot be used, and what to do about it.

use rustix::io::Errno;

/// A step of the volume's probe that failed. Each message ends with what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeProblem {
    /// The base is missing and could not be made.
    #[error(
        "the base directory could not be made: {0}; make it, or let the gateway's user write to its parent"
    )]
    Make(Errno),
    /// The base could not be opened.
    #[error(
        "the base directory could not be opened: {0}; it must be a directory itself, not a link to one, that the gateway's user may read"
    )]
    Open(Errno),
    /// The base's path names another directory than the one that was opened at the start, or none.
    #[error(
        "the base directory was removed, or another one was put or mounted in its place, after this gateway had opened it: restart the gateway"
    )]
    Replaced,
    /// The base belongs to a user who could put other directories in the place of sessions.
    #[error(
        "the base directory belongs to user {owner}; it must belong to user {expected}, as whom the gateway runs, or to root: chown it"
    )]
    Owner {
        /// The user id of its owner.
        owner: u32,
        /// The gateway's user.
        expected: u32,
    },
    /// Every user of the machine may write to the base.
    #[error(
        "the base directory may be written by everybody (mode {mode:o}), who could then replace sessions: chmod o-w it"
    )]
    WritableByAll {
        /// Its permission bits.
        mode: u32,
    },
    /// The file system is read-only.
    #[error(
        "the base directory is read-only: mount a writable volume there, or name another directory"
    )]
    ReadOnly,
    /// A directory could not be made in the base.
    #[error(
        "a directory could not be made in the base directory: {0}; the gateway's user must be able to write there"
    )]
    MakeDirectory(Errno),
    /// A file could not be made or written.
    #[error(
        "a file could not be written in the base directory: {0}; look at its permissions and quota"
    )]
    WriteFile(Errno),
    /// `openat2` does not work.
    #[error(
        "openat2 does not work in the base directory: {0}; it needs Linux 5.6 or later, and a container that lets the call through"
    )]
    Openat2(Errno),
    /// `openat2` followed a link out of its directory.
    #[error(
        "openat2 followed a link despite RESOLVE_NO_SYMLINKS; use another file system or kernel"
    )]
    Openat2Follows,
    /// A rename onto an existing file failed.
    #[error(
        "a file could not be renamed onto another: {0}; the file system must do this in one step"
    )]
    Rename(Errno),
    /// `flock` does not work.
    #[error(
        "flock does not work in the base directory: {0}; use a local disk, or NFS 4 without local_lock, or EFS"
    )]
    Lock(Errno),
    /// Two descriptions of one file were locked at once.
    #[error(
        "flock let two openings of one file lock it at once; use a file system that keeps locks, such as a local disk or NFS 4"
    )]
    LockIsShared,
    /// The process that proves locks between processes did not start, or did not say what it found.
    #[error(
        "the second process for proving locks did not answer: {reason}; /proc must be mounted, and the gateway's binary be executable"
    )]
    SecondProcess {
        /// The reason.
        reason: &'static str,
    },
    /// Two processes locked one file at once.
    #[error(
        "flock let two processes lock one file at once; use a file system that keeps locks between processes, such as a local disk or NFS 4"
    )]
    LockIsPrivate,
    /// The free room could not be asked for.
    #[error("the free space of the base directory could not be read: {0}")]
    Measure(Errno),
    /// Too few bytes are free.
    #[error(
        "{free} bytes are free in the base directory, and {least} are needed; delete something, or give it a larger volume"
    )]
    Space {
        /// How many are.
        free: u64,
        /// How many must be.
        least: u64,
    },
    /// Too few inodes are free.
    #[error(
        "{free} inodes are free in the base directory, and {least} are needed; delete something, or give it a larger volume"
    )]
    Inodes {
        /// How many are.
        free: u64,
        /// How many must be.
        least: u64,
    },
    /// The probe's files could not be removed.
    #[error("what the probe of the base directory made could not be removed: {0}")]
    Remove(Errno),
}
