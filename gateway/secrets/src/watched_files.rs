//! What is read from files, and read again when one of them has changed.
//!
//! Invariants: files that cannot be used change nothing: what was read before stays in use, and they are read again until
//! they can. A change while they are read is noticed, because their versions are taken before.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use crate::file::FileVersion;

/// Reads the files, given what was read before. An error is a text for operators.
type ReadFiles<T> = dyn Fn(&T) -> Result<T, String> + Send + Sync;

/// What was read from some files last.
pub struct WatchedFiles<T> {
    paths: Arc<[PathBuf]>,
    read: Arc<ReadFiles<T>>,
    current: RwLock<Arc<T>>,
    failure: RwLock<Option<Box<str>>>,
    /// The versions that were read last; none after a failure, or before the first time.
    seen: Mutex<Option<Vec<FileVersion>>>,
}

/// The outcome of an attempt to read the files again.
#[derive(Debug)]
pub enum Reread<T> {
    /// No file has changed.
    Unchanged,
    /// They were read.
    Replaced {
        /// What was in use before.
        before: Arc<T>,
        /// What is in use now.
        now: Arc<T>,
    },
    /// They cannot be used.
    Failed {
        /// Why.
        cause: Box<str>,
        /// Whether the last attempt did not fail for the same cause: each is to be logged once.
        is_new: bool,
    },
}

impl<T: Send + Sync + 'static> WatchedFiles<T> {
    /// Nothing is read yet, and `initial` is in use until then.
    pub fn unread(
        paths: impl Into<Arc<[PathBuf]>>,
        initial: T,
        read: impl Fn(&T) -> Result<T, String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            paths: paths.into(),
            read: Arc::new(read),
            current: RwLock::new(Arc::new(initial)),
            failure: RwLock::default(),
            seen: Mutex::default(),
        }
    }

    /// Reads the files now with `first`, and later with `read`.
    ///
    /// # Errors
    /// Those of `first`.
    pub fn open<E>(
        paths: impl Into<Arc<[PathBuf]>>,
        first: impl FnOnce() -> Result<T, E>,
        read: impl Fn(&T) -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        let paths = paths.into();
        let seen = versions(&paths);
        Ok(Self {
            seen: Mutex::new(seen),
            ..Self::unread(paths, first()?, read)
        })
    }

    /// What was read last.
    pub fn current(&self) -> Arc<T> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Why the files could not be used at the last attempt; none if they could.
    pub fn failure(&self) -> Option<Box<str>> {
        let failure = self.failure.read().unwrap_or_else(PoisonError::into_inner);
        failure.clone()
    }

    /// Reads the files if one has changed since they were read last, or they could not be used then.
    pub async fn read_if_changed(&self) -> Reread<T> {
        let mut seen = self.seen.lock().await;
        let (paths, read) = (Arc::clone(&self.paths), Arc::clone(&self.read));
        let (before, seen_before) = (self.current(), seen.take());
        let last = Arc::clone(&before);
        let reading = spawn_blocking(move || {
            let versions = versions(&paths);
            let is_unchanged = versions.is_some() && versions == seen_before;
            (versions, (!is_unchanged).then(|| read(&last)))
        });
        let (versions, outcome) = match reading.await {
            Ok(done) => done,
            Err(error) => (None, Some(Err(format!("reading was interrupted: {error}")))),
        };
        let (reread, failure) = match outcome {
            None => {
                *seen = versions;
                return Reread::Unchanged;
            }
            Some(Ok(now)) => {
                *seen = versions;
                let now = Arc::new(now);
                let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
                *current = Arc::clone(&now);
                (Reread::Replaced { before, now }, None)
            }
            Some(Err(cause)) => {
                let cause: Box<str> = cause.into();
                let is_new = self.failure().as_ref() != Some(&cause);
                let failure = Some(cause.clone());
                (Reread::Failed { cause, is_new }, failure)
            }
        };
        *self.failure.write().unwrap_or_else(PoisonError::into_inner) = failure;
        reread
    }

    /// Reads the files again whenever one has changed, until it is dropped. `note` gets the outcome of each attempt.
    pub async fn keep_current(&self, interval: Duration, note: impl Fn(Reread<T>)) {
        loop {
            tokio::time::sleep(interval).await;
            note(self.read_if_changed().await);
        }
    }
}

impl<T> std::fmt::Debug for WatchedFiles<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = formatter.debug_struct("WatchedFiles");
        debug.field("paths", &self.paths).finish_non_exhaustive()
    }
}

/// The version of each file; none if there is one that cannot be looked at.
fn versions(paths: &[PathBuf]) -> Option<Vec<FileVersion>> {
    paths.iter().map(|path| FileVersion::of(path)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::fs;

    use super::*;

    /// Two files with a number each, of which the sum is in use.
    fn watched(directory: &tempfile::TempDir) -> WatchedFiles<u32> {
        let paths = ["a", "b"].map(|name| directory.path().join(name));
        let read = paths.clone();
        WatchedFiles::unread(paths, 0, move |_| {
            let numbers = read.iter().map(|path| {
                let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
                text.parse::<u32>().map_err(|error| error.to_string())
            });
            numbers.sum()
        })
    }

    #[tokio::test]
    async fn files_are_read_again_when_one_changes_and_unusable_ones_change_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        let files = watched(&directory);
        let failed = async || match files.read_if_changed().await {
            Reread::Failed { is_new, .. } => Some(is_new),
            _ => None,
        };
        assert_eq!(failed().await, Some(true), "there is no file");
        assert_eq!(failed().await, Some(false), "it is known why");
        write("a", "1");
        write("b", "2");
        assert!(matches!(
            files.read_if_changed().await,
            Reread::Replaced { .. }
        ));
        assert_eq!((*files.current(), files.failure()), (3, None));
        assert!(matches!(files.read_if_changed().await, Reread::Unchanged));

        write("b", "two");
        assert_eq!(failed().await, Some(true), "for another cause");
        assert_eq!(*files.current(), 3);
        assert!(files.failure().is_some());
        assert_eq!(
            failed().await,
            Some(false),
            "it is read again without a change"
        );
        write("b", "20");
        let Reread::Replaced { before, now } = files.read_if_changed().await else {
            unreachable!("it has changed");
        };
        assert_eq!((*before, *now, files.failure()), (3, 21, None));
    }

    #[tokio::test]
    async fn what_was_opened_is_read_again_only_after_a_change() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        fs::write(&path, "1").unwrap();
        let files = WatchedFiles::open([path.clone()], || Ok::<_, ()>(1), |before| Ok(before + 1));
        let files = files.unwrap();
        assert!(matches!(files.read_if_changed().await, Reread::Unchanged));
        fs::remove_file(&path).unwrap();
        fs::write(&path, "1").unwrap();
        files.read_if_changed().await;
        assert_eq!(*files.current(), 2);
        let refused = WatchedFiles::open([path], || Err::<u32, _>("no"), |before| Ok(*before));
        assert_eq!(refused.err(), Some("no"));
    }
}
