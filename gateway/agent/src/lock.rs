//! Serializes runs of a conversation between processes of one machine that share an embedded store. With Redis, the
//! session's turn does so for the whole fleet.
//!
//! Invariant: a held lock is on the file that currently has its name. The holder removes the file before releasing the
//! lock, so that no files pile up; a waiter that locked a removed file tries again.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

/// The first pause between attempts to lock.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// The longest pause; pauses double up to it. A waiter may notice a free lock this late.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// The locks of processes that share a directory.
#[derive(Clone, Debug)]
pub(crate) struct ProcessLocks {
    directory: PathBuf,
}

/// A lock, held until dropped or until the process ends.
#[derive(Debug)]
pub(crate) struct ProcessLock {
    path: PathBuf,
    _file: File,
}

/// Why a lock was not acquired.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// Another process held it until the timeout.
    #[error("another process held the lock")]
    Busy,
    /// The file system refused.
    #[error("the lock cannot be taken")]
    System(#[source] io::Error),
}

impl ProcessLocks {
    /// Locks in this directory, which is created if it is missing.
    pub(crate) const fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Acquires the lock of this name, which must be a valid file name, within `wait`.
    pub(crate) async fn take(&self, name: &str, wait: Duration) -> Result<ProcessLock, LockError> {
        let path = self.directory.join(name);
        let deadline = Instant::now() + wait;
        let mut pause = PAUSE_MIN;
        loop {
            let tried = path.clone();
            let attempt = spawn_blocking(move || attempt(&tried)).await;
            match attempt.map_err(|error| LockError::System(io::Error::other(error)))? {
                Ok(Some(lock)) => return Ok(lock),
                Ok(None) if Instant::now() < deadline => sleep(pause).await,
                Ok(None) => return Err(LockError::Busy),
                Err(error) => return Err(LockError::System(error)),
            }
            pause = pause.saturating_mul(2).min(PAUSE_MAX);
        }
    }
}

impl Drop for ProcessLock {
    fn drop(&mut self) {
        // If the file stays, the next process locks it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Tries to lock; none if another process has locked the file, or has just removed it.
fn attempt(path: &Path) -> io::Result<Option<ProcessLock>> {
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
    }
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    let (locked, standing) = (file.metadata()?, fs::metadata(path));
    let is_standing = match standing {
        Ok(standing) => (locked.dev(), locked.ino()) == (standing.dev(), standing.ino()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    // If the waiter is gone, dropping the lock removes its file.
    Ok(is_standing.then(|| ProcessLock {
        path: path.to_owned(),
        _file: file,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn one_holds_it_at_a_time_and_nothing_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let locks = ProcessLocks::new(directory.path().join("locks"));
        let inside = Arc::new(AtomicU32::new(0));
        let holders = (0..50).map(|_| {
            let (locks, inside) = (locks.clone(), Arc::clone(&inside));
            tokio::spawn(async move {
                let lock = locks.take("a", Duration::from_secs(60)).await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(lock);
            })
        });
        for holder in holders.collect::<Vec<_>>() {
            holder.await.unwrap();
        }
        let left = fs::read_dir(directory.path().join("locks")).unwrap();
        assert_eq!(left.count(), 0);
    }

    #[tokio::test]
    async fn who_waits_in_vain_is_told_and_others_are_not_in_the_way() {
        let directory = tempfile::tempdir().unwrap();
        let locks = ProcessLocks::new(directory.path().to_owned());
        let _held = locks.take("a", Duration::ZERO).await.unwrap();
        let refused = locks.take("a", Duration::ZERO).await;
        assert!(matches!(refused, Err(LockError::Busy)), "{refused:?}");
        locks.take("b", Duration::ZERO).await.unwrap();
    }

    #[tokio::test]
    async fn a_file_that_a_killed_process_left_locks_nobody_out() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a"), "").unwrap();
        let locks = ProcessLocks::new(directory.path().to_owned());
        assert!(locks.take("a", Duration::ZERO).await.is_ok());
    }
}
