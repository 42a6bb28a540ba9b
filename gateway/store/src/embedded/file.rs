//! The database file: its identity, the lock under which it is created or moved, and where a damaged one is moved to.
//!
//! Invariants: the file is created, migrated and moved aside under one lock between processes, so no process moves away
//! a file that another has just created; a connection to a file that is no longer in place deletes nothing of its
//! replacement.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;
use rusqlite::config::DbConfig;

/// Suffixes of the file itself and of the files that SQLite keeps beside it.
const PARTS: [&str; 3] = ["", "-wal", "-shm"];
/// Suffix of the lock file.
const LOCK: &str = "-lock";
/// Timeout for the lock. Its owner creates a few tables, and may wait for SQLite's own lock meanwhile.
const LOCK_WITHIN: Duration = Duration::from_secs(30);
/// Pause between attempts to lock.
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// Most names to try for a file that is moved aside.
const NAMES_TRIED: u128 = 100;

/// The identity of a file, independent of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file that is currently at this path.
    pub(super) fn at(path: &Path) -> Result<Self> {
        let found = fs::metadata(path)?;
        Ok(Self {
            device: found.dev(),
            inode: found.ino(),
        })
    }
}

/// The lock under which the file is created, migrated or moved aside; released on drop.
#[derive(Debug)]
pub(super) struct FileLock(#[expect(dead_code, reason = "held, never read")] File);

impl FileLock {
    /// Waits for the lock.
    pub(super) fn take(path: &Path) -> Result<Self> {
        let started = Instant::now();
        loop {
            match Self::try_take(path) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                taken => return taken,
            }
            if started.elapsed() >= LOCK_WITHIN {
                return Err(ErrorKind::TimedOut.into());
            }
            thread::sleep(LOCK_PAUSE);
        }
    }

    fn try_take(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(with_suffix(path, LOCK))?;
        file.try_lock().map_err(Error::from)?;
        Ok(Self(file))
    }
}

/// The role of a database in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryUse {
    /// A replacement for a file that cannot be written.
    Copy,
    /// The store itself.
    Store,
}

#[derive(Debug)]
enum Place {
    File(PathBuf, FileId),
    Memory(MemoryUse),
}

/// A connection, and the identity of its file.
#[derive(Debug)]
pub(super) struct FileConnection {
    /// Closed before the lock below is released.
    connection: Connection,
    lock: Option<FileLock>,
    place: Place,
}

impl FileConnection {
    /// A connection to the file that had this id both before and after connecting.
    pub(super) fn file(connection: Connection, path: &Path, id: FileId) -> rusqlite::Result<Self> {
        // Otherwise the last connection to a file deletes the log beside it by name, even if that belongs to another
        // file by then.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        Ok(Self {
            connection,
            lock: None,
            place: Place::File(path.to_owned(), id),
        })
    }

    pub(super) const fn memory(connection: Connection, memory_use: MemoryUse) -> Self {
        Self {
            connection,
            lock: None,
            place: Place::Memory(memory_use),
        }
    }

    /// The role of the database if it is in memory.
    pub(super) const fn memory_use(&self) -> Option<MemoryUse> {
        match self.place {
            Place::File(..) => None,
            Place::Memory(memory_use) => Some(memory_use),
        }
    }

    /// Whether its file is still the one at its path.
    pub(super) fn is_in_place(&self) -> bool {
        match &self.place {
            Place::File(path, id) => FileId::at(path).ok() == Some(*id),
            Place::Memory(_) => true,
        }
    }
}

impl Deref for FileConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for FileConnection {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

impl Drop for FileConnection {
    /// The last connection to close checkpoints and deletes the log, if no other file can be put in place meanwhile.
    /// Otherwise the log stays, and the next process that opens the file reads it.
    fn drop(&mut self) {
        let lock = match &self.place {
            Place::File(path, _) => FileLock::try_take(path).ok(),
            Place::Memory(_) => None,
        };
        if lock.is_some() && self.is_in_place() {
            let keeps_log = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            drop(self.connection.set_db_config(keeps_log, false));
        }
        self.lock = lock;
    }
}

/// Creates the directory, accessible to its owner only.
pub(super) fn make_directory(directory: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}

/// Creates the file before SQLite opens it, since SQLite would give it and its log the default permissions.
pub(super) fn make_private(path: &Path) -> Result<()> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        // A log without a file is from an earlier file and does not belong to this one.
        made => made.map(drop).and_then(|()| {
            let is_left = |part: &&&str| !part.is_empty() && with_suffix(path, part).exists();
            match PARTS.iter().find(is_left) {
                Some(_) => put_log_aside(path),
                None => Ok(()),
            }
        }),
    }
}

fn put_log_aside(path: &Path) -> Result<()> {
    let moved_to = move_parts(path, PARTS.get(1..).unwrap_or_default())?;
    tracing::error!(
        file = %path.display(),
        moved_to = %moved_to.display(),
        "session file missing but its log present: the log was moved aside and a new file created"
    );
    Ok(())
}

/// Moves the file, and those that SQLite keeps beside it, to `<name>.corrupt-<unix ms>` and returns that path. Called
/// under the lock.
pub(super) fn move_aside(path: &Path) -> Result<PathBuf> {
    move_parts(path, &PARTS)
}

fn move_parts(path: &Path, parts: &[&str]) -> Result<PathBuf> {
    let aside = free_name(path)?;
    for part in parts {
        match fs::rename(with_suffix(path, part), with_suffix(&aside, part)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            moved => moved?,
        }
    }
    Ok(aside)
}

fn free_name(path: &Path) -> Result<PathBuf> {
    let now_ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_millis());
    (now_ms..now_ms.saturating_add(NAMES_TRIED))
        .map(|ms| with_suffix(path, &format!(".corrupt-{ms}")))
        .find(|aside| PARTS.iter().all(|part| !with_suffix(aside, part).exists()))
        .ok_or_else(|| ErrorKind::AlreadyExists.into())
}

fn with_suffix(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}
