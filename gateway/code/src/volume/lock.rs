//! The lock of one session: a `flock` on a file of its own, which the kernel releases at once when a process dies.
//!
//! Invariant: the file is never unlinked or replaced, so all callers wait for the same file.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{self, FlockOperation, OFlags};
use rustix::io::Errno;

use super::directory::{self, FILE_MODE, LOCKS, VolumeError};
use crate::place::CodePlace;
use mooring_secrets::digest;

/// The first pause between two looks at a lock that another holds.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest: pauses double until here. It is how late a waiter may notice that a lock is free.
const PAUSE_MAX: Duration = Duration::from_millis(16);

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process, or another thread of this one, held it for the whole wait.
    #[error("the session is busy: lock not acquired within {waited_ms} ms")]
    Busy {
        /// How long was waited.
        waited_ms: u64,
    },
    /// The lock's file could not be made, opened or locked.
    #[error(transparent)]
    File(#[from] VolumeError),
}

/// The lock of one session, held until it is dropped or the process ends.
pub struct SessionLock {
    of: LockName,
    taken_at: Instant,
    _file: FileLock,
}

impl SessionLock {
    /// How long it has been held.
    #[must_use]
    pub fn held(&self) -> Duration {
        self.taken_at.elapsed()
    }

    /// Whether it is the lock of this session.
    pub(super) fn is_of(&self, name: &LockName) -> bool {
        self.of == *name
    }
}

impl fmt::Debug for SessionLock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SessionLock({})", digest::short(&self.of.id))
    }
}

/// Which session's lock.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct LockName {
    /// The directory of its server.
    pub(super) server: String,
    /// The session's id.
    pub(super) id: String,
}

impl LockName {
    pub(super) fn of(place: &CodePlace) -> Self {
        Self {
            server: place.server.as_str().to_owned(),
            id: place.id.as_str().to_owned(),
        }
    }
}

/// Takes a session's lock, or waits for it at most this long; a wait of zero looks once.
pub(super) fn take(
    base: BorrowedFd<'_>,
    of: LockName,
    wait: Duration,
) -> Result<SessionLock, LockError> {
    let file = open_file(base, &of).map_err(VolumeError::at(
        "the session's lock file could not be opened",
    ))?;
    let started = Instant::now();
    let locked = FileLock::take(file, wait).map_err(VolumeError::at(
        "the session's lock file could not be locked",
    ))?;
    let Some(file) = locked else {
        return Err(LockError::Busy {
            waited_ms: directory::millis(started.elapsed()),
        });
    };
    Ok(SessionLock {
        of,
        taken_at: Instant::now(),
        _file: file,
    })
}

fn open_file(base: BorrowedFd<'_>, of: &LockName) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE;
    let LockName { server, id } = of;
    match directory::open(base, format!("{LOCKS}/{server}/{id}"), flags, FILE_MODE) {
        Err(Errno::NOENT) => {
            let locks = directory::make_directories(base, &[LOCKS, server])?;
            directory::open(locks.as_fd(), id, flags, FILE_MODE)
        }
        settled => settled,
    }
}

/// A file that is locked, until this is dropped.
///
/// Closing it would not be enough: a child that another thread has just forked shares the description until it
/// executes its program, and with it the lock.
#[derive(Debug)]
pub(crate) struct FileLock(OwnedFd);

impl FileLock {
    /// Locks a file, or waits for it at most this long; a wait of zero looks once. None if another held it all the time.
    pub(crate) fn take(file: OwnedFd, wait: Duration) -> Result<Option<Self>, Errno> {
        let started = Instant::now();
        let mut pause = PAUSE_MIN;
        loop {
            match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(Self(file))),
                Err(Errno::WOULDBLOCK) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            }
            let left = wait.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            thread::sleep(pause.min(left));
            pause = pause.saturating_mul(2).min(PAUSE_MAX);
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Where it fails, the lock goes with the last description of the file.
        let _ = fs::flock(&self.0, FlockOperation::Unlock);
    }
}
