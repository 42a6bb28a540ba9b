//! The file as it lies in its directory: which one it is, who may make or move it now, and where a damaged one goes.
//!
//! Invariants: the file is made, brought up to date and moved aside under one lock between processes, so no process moves
//! away what another has just made; a connection to a file that lies there no more deletes nothing of the one in its place.

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

/// What SQLite keeps beside a file, and the file itself.
const PARTS: [&str; 3] = ["", "-wal", "-shm"];
/// What the name of the lock ends with.
const LOCK: &str = "-lock";
/// Longest wait for the lock. Its holder makes a few tables, and may wait for SQLite's own lock meanwhile.
const LOCK_WITHIN: Duration = Duration::from_secs(30);
/// How long to wait before the lock is tried again.
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// How many names are tried for what is moved aside.
const NAMES_TRIED: u128 = 100;

/// Which file it is, whatever its name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file that lies there now.
    pub(super) fn at(path: &Path) -> Result<Self> {
        let found = fs::metadata(path)?;
        Ok(Self {
            device: found.dev(),
            inode: found.ino(),
        })
    }
}

/// The lock under which the file is made, brought up to date or moved aside; given back when dropped.
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
            .open(beside(path, LOCK))?;
        file.try_lock().map_err(Error::from)?;
        Ok(Self(file))
    }
}

/// What a database in memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryUse {
    /// It replaces a file that cannot be written.
    Copy,
    /// It is the store itself.
    Store,
}

#[derive(Debug)]
enum Place {
    File(PathBuf, FileId),
    Memory(MemoryUse),
}

/// A connection, and which file it is to.
#[derive(Debug)]
pub(super) struct FileConnection {
    /// Closed before the lock below it is given back.
    connection: Connection,
    lock: Option<FileLock>,
    place: Place,
}

impl FileConnection {
    /// A connection to the file that lay there with this id before and after it was made.
    pub(super) fn file(connection: Connection, path: &Path, id: FileId) -> rusqlite::Result<Self> {
        // The last connection to a file deletes the log beside it by its name, whosesoever that is by then.
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

    /// What the database is for, if it is in memory.
    pub(super) const fn memory_use(&self) -> Option<MemoryUse> {
        match self.place {
            Place::File(..) => None,
            Place::Memory(memory_use) => Some(memory_use),
        }
    }

    /// Whether its file is what lies under its name still.
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
    /// The last one that closes writes the log back and deletes it, if no other file can be put there meanwhile. Otherwise
    /// the log stays, and the next process that opens the file reads it.
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

/// Makes the directory, for its owner alone.
pub(super) fn make_directory(directory: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}

/// Makes the file before SQLite opens it, because SQLite gives it, and the log beside it, the usual permissions.
pub(super) fn make_private(path: &Path) -> Result<()> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        // A log without a file was left by an earlier file, and does not belong to this one.
        made => made.map(drop).and_then(|()| {
            let is_left = |part: &&&str| !part.is_empty() && beside(path, part).exists();
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
        "the sessions' file is gone, and its log is not: that was moved aside, and a new file is begun"
    );
    Ok(())
}

/// Moves the file and what is beside it to `<name>.corrupt-<unix ms>`, and answers where that is. Called under the lock.
pub(super) fn put_aside(path: &Path) -> Result<PathBuf> {
    move_parts(path, &PARTS)
}

fn move_parts(path: &Path, parts: &[&str]) -> Result<PathBuf> {
    let aside = free_name(path)?;
    for part in parts {
        match fs::rename(beside(path, part), beside(&aside, part)) {
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
        .map(|ms| beside(path, &format!(".corrupt-{ms}")))
        .find(|aside| PARTS.iter().all(|part| !beside(aside, part).exists()))
        .ok_or_else(|| ErrorKind::AlreadyExists.into())
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}
