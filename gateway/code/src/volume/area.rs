//! The host's own files on the volume: records of runs and skills, a directory for each server.
//!
//! Invariants: every step stays beneath the base and follows no link. A file gets its name when all of it is written; of
//! two processes that publish one name, one does. A process that is killed leaves a file without a proper name, which
//! [`Area::remove_leftovers`] finds by its age.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use mooring_session::names::ServerName;
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::directory::{self, FILE_MODE};
use super::lock::FileLock;
use super::{Shared, Volume};
use crate::place;

/// The prefix of the names of files that are being written.
const NEW_PREFIX: &str = ".new-";
/// How often a directory is made again if a pruning gateway removes it, empty, in between.
const ATTEMPTS_MAX: usize = 100;

/// The content of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AreaKind {
    /// Records of runs and security events, at `.runs/<server>`.
    Runs,
    /// Skills, at `.skills/<server>`.
    Skills,
}

impl AreaKind {
    const fn directory(self) -> &'static str {
        match self {
            Self::Runs => directory::RUNS,
            Self::Skills => directory::SKILLS,
        }
    }
}

/// One server's directory of the host's own. Holds nothing open; paths are relative to it. Everything blocks, and every
/// error that is not described is the file system's.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    shared: Arc<Shared>,
    root: Box<str>,
}

impl Volume {
    /// The host's own directory for a server. It is made when something is first written there.
    ///
    /// # Errors
    /// The server's name cannot be part of a path.
    pub(crate) fn area(&self, kind: AreaKind, server: &ServerName) -> io::Result<Area> {
        if !place::is_server_directory(server.as_str()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Area {
            shared: Arc::clone(&self.shared),
            root: format!("{}/{server}", kind.directory()).into(),
        })
    }
}

impl Area {
    fn base(&self) -> BorrowedFd<'_> {
        self.shared.base.as_fd()
    }

    fn path(&self, path: &str) -> String {
        format!("{}/{path}", self.root)
    }

    /// Opens a directory; none if it does not exist.
    fn open_existing(&self, path: &str) -> Result<Option<OwnedFd>, Errno> {
        directory::existing(directory::open_directory(self.base(), self.path(path)))
    }

    /// Takes the last step of a path in the directory above it: only a step to a single name follows no link.
    fn in_parent<T>(
        &self,
        path: &str,
        step: impl FnOnce(BorrowedFd<'_>, &str) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = directory::open_directory(self.base(), self.path(above))?;
        step(parent.as_fd(), name)
    }

    /// The whole content of a file; none if it does not exist.
    ///
    /// # Errors
    /// It has more than `bytes_max` bytes (`FileTooLarge`), is no file, or the file system refused.
    pub(crate) fn read(&self, path: &str, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let opened = directory::open(self.base(), self.path(path), flags, Mode::empty());
        let Some(file) = directory::existing(opened)?.map(File::from) else {
            return Ok(None);
        };
        let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
        let mut bytes = Vec::new();
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() > bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(Some(bytes))
    }

    /// The names in a directory, in no order; none if it does not exist. Files that are being written have no names
    /// yet.
    pub(crate) fn names(&self, path: &str) -> io::Result<Vec<String>> {
        let Some(directory) = self.open_existing(path)? else {
            return Ok(Vec::new());
        };
        let mut names = directory::names(directory.as_fd())?.collect::<Result<Vec<_>, _>>()?;
        names.retain(|name| !name.starts_with(NEW_PREFIX));
        Ok(names)
    }

    /// Whether there is something of this name.
    pub(crate) fn exists(&self, path: &str) -> io::Result<bool> {
        Ok(self.stat(path)?.is_some())
    }

    /// When a file was last modified, in milliseconds since 1970; none if it does not exist.
    pub(crate) fn modified_at_ms(&self, path: &str) -> io::Result<Option<u64>> {
        Ok(self.stat(path)?.map(|stat| directory::modified_ms(&stat)))
    }

    /// The length of a file in bytes; none if it does not exist.
    pub(crate) fn length(&self, path: &str) -> io::Result<Option<u64>> {
        let length = |stat: fs::Stat| u64::try_from(stat.st_size).unwrap_or(0);
        Ok(self.stat(path)?.map(length))
    }

    fn stat(&self, path: &str) -> io::Result<Option<fs::Stat>> {
        let stat = |parent: BorrowedFd<'_>, name: &str| {
            fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
        };
        match self.in_parent(path, stat) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sets when a file was last modified.
    ///
    /// # Errors
    /// There is no file, or the file system refused.
    pub(crate) fn set_modified(&self, path: &str, unix_ms: u64) -> io::Result<()> {
        Ok(self.in_parent(path, |parent, name| {
            directory::set_modified(parent, name, unix_ms)
        })?)
    }

    /// Puts a file in the place of one that may be there.
    ///
    /// # Errors
    /// The file system refused; what was there stays.
    pub(crate) fn replace(&self, directory: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.within(directory, |directory| {
            let fresh = write_fresh(directory, bytes)?;
            let renamed = fs::renameat(directory, fresh.as_str(), directory, name);
            if renamed.is_err() {
                remove_quietly(directory, &fresh);
            }
            Ok(renamed?)
        })
    }

    /// Makes a file where there is none; says whether it did. Of all who try, one does.
    ///
    /// # Errors
    /// The file system refused; nothing was added.
    pub(crate) fn publish(&self, directory: &str, name: &str, bytes: &[u8]) -> io::Result<bool> {
        self.within(directory, |directory| {
            let fresh = write_fresh(directory, bytes)?;
            // A link fails where the name is taken, on every file system that has links; a rename with that promise is
            // not to be had on NFS.
            let linked = fs::linkat(directory, fresh.as_str(), directory, name, AtFlags::empty());
            remove_quietly(directory, &fresh);
            match linked {
                Ok(()) => Ok(true),
                Err(Errno::EXIST) => Ok(false),
                Err(errno) => Err(errno.into()),
            }
        })
    }

    /// Opens a file of this process's own to append to it, and makes it where it is missing.
    pub(crate) fn append(&self, directory: &str, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        self.within(directory, |directory| {
            Ok(directory::open(directory, name, flags, FILE_MODE)?.into())
        })
    }

    /// Removes a file; says whether there was one.
    pub(crate) fn remove(&self, path: &str) -> io::Result<bool> {
        let unlink =
            |parent: BorrowedFd<'_>, name: &str| fs::unlinkat(parent, name, AtFlags::empty());
        Ok(directory::existing(self.in_parent(path, unlink))?.is_some())
    }

    /// Removes a directory where it is empty; says whether it did.
    pub(crate) fn remove_empty(&self, path: &str) -> io::Result<bool> {
        let removed = self.in_parent(path, |parent, name| directory::remove_empty(parent, name));
        match removed {
            // What is above it is not there either.
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            settled => Ok(settled?),
        }
    }

    /// Removes what killed processes were writing in a directory longer than `lies_ms` ago.
    ///
    /// # Errors
    /// The directory could not be read; single files are left for the next time.
    pub(crate) fn remove_leftovers(&self, path: &str, now_ms: u64, lies_ms: u64) -> io::Result<()> {
        let Some(directory) = self.open_existing(path)? else {
            return Ok(());
        };
        for name in directory::names(directory.as_fd())? {
            let name = name?;
            let is_old = |at_ms| now_ms.saturating_sub(at_ms) >= lies_ms;
            if name.starts_with(NEW_PREFIX)
                && directory::modified_at_ms(directory.as_fd(), &name).is_ok_and(is_old)
            {
                remove_quietly(directory.as_fd(), &name);
            }
        }
        Ok(())
    }

    /// Takes the lock of this name, which is a file that is never removed, or waits for it at most `wait`.
    ///
    /// # Errors
    /// `WouldBlock` if another process held it for the whole wait; or an error of the file system.
    pub(crate) fn lock(&self, name: &str, wait: Duration) -> io::Result<FileLock> {
        let flags = OFlags::RDWR | OFlags::CREATE;
        let file = self.within("", |directory| {
            Ok(directory::open(directory, name, flags, FILE_MODE)?)
        })?;
        FileLock::take(file, wait)?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// Works in a directory, which is made where it is missing; `""` is the area's own.
    fn within<T>(
        &self,
        path: &str,
        work: impl Fn(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for _ in 0..ATTEMPTS_MAX {
            let worked = self.open_or_make(path).and_then(|open| work(open.as_fd()));
            match worked {
                // Removed, empty, by a pruning gateway.
                Err(error) if error.kind() == io::ErrorKind::NotFound => last = error,
                settled => return settled,
            }
        }
        Err(last)
    }

    fn open_or_make(&self, path: &str) -> io::Result<OwnedFd> {
        let path = self.path(path);
        match directory::open_directory(self.base(), &path) {
            Err(Errno::NOENT) => {
                let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
                Ok(directory::make_directories(self.base(), &names)?)
            }
            settled => Ok(settled?),
        }
    }
}

/// Writes a file under a name that nothing else has.
fn write_fresh(directory: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<String> {
    let name = directory::fresh_name(NEW_PREFIX);
    match directory::write_file(directory, &name, OFlags::EXCL, bytes) {
        Ok(_) => Ok(name),
        Err(errno) => {
            remove_quietly(directory, &name);
            Err(errno.into())
        }
    }
}

/// Removes a file. If this fails, a sweep removes it later by its age.
fn remove_quietly(directory: BorrowedFd<'_>, name: &str) {
    let _ = fs::unlinkat(directory, name, AtFlags::empty());
}
