//! The private directory of one run of the degraded tier: copies of the session's trees, since nothing can be laid over
//! them, and room for the program's text and for temporary files.
//! It is in the system's directory for temporary files and not in the session's, because the run may have another user,
//! who cannot enter the gateway's directories.
//!
//! Invariant: a private directory is removed when its value is dropped, and those of a host process that was killed are
//! removed by the next probe of another process: their lock is free.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    CWD, Dir, FlockOperation, Mode, OFlags, fchmod, flock, fstat, fstatfs, mkdirat, openat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::job::SessionTrees;
use crate::limits::Limits;
use crate::outcome::{Changes, StopReason};
use crate::tree::{self, Mount};

/// Most bytes of `/tools` and `/skills` together, which are copied for every run.
const MOUNTED_BYTES_MAX: u64 = 64 * 1024 * 1024;
const MOUNTED_INODES_MAX: u64 = 10_000;

/// Files and directories in the run's directory for temporary files.
const TEMPORARY_INODES: u64 = 8192;

/// The type of a file system in memory.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Where the directories of runs are created if the usual directory is not writable.
const MEMORY: &str = "/dev/shm";

/// Other users may enter it, because runs may be theirs, and neither list nor change it.
const PARENT_MODE: Mode = Mode::from_raw_mode(0o711);

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The private directory of one run.
#[derive(Debug)]
pub(crate) struct PrivateDirectory {
    parent: OwnedFd,
    name: String,
    /// Locked for as long as it is open.
    _directory: OwnedFd,
    trees: SessionTrees,
    temporary: OwnedFd,
    temporary_bytes: u64,
}

impl PrivateDirectory {
    /// Creates one, with copies of `trees`. Anything but files and directories is left out.
    pub(super) fn make(
        trees: &SessionTrees,
        limits: &Limits,
        temporary_bytes: u64,
    ) -> io::Result<Self> {
        let parent = open_parent()?;
        let name = format!("{}-{}", std::process::id(), tree::unique_name()?);
        // This keeps other processes from sweeping it before it is locked.
        flock(&parent, FlockOperation::LockShared)?;
        let directory = make(&parent, &name)?;
        flock(&directory, FlockOperation::LockExclusive)?;
        flock(&parent, FlockOperation::Unlock)?;
        let filled = fill(&directory, trees, limits);
        let (trees, temporary) = match filled {
            Ok(filled) => filled,
            Err(error) => {
                // What cannot be removed now, the next probe removes.
                let _ = tree::remove(parent.as_fd(), OsStr::new(&name));
                return Err(error);
            }
        };
        Ok(Self {
            parent,
            name,
            _directory: directory,
            trees,
            temporary,
            temporary_bytes,
        })
    }

    /// The copies, for the run.
    pub(super) const fn trees(&self) -> &SessionTrees {
        &self.trees
    }

    /// The copies of the writable trees, for the commit.
    pub(super) fn changes(&self) -> io::Result<Changes> {
        Ok(Changes {
            scratch: self.trees.scratch.try_clone()?,
            results: self.trees.results.try_clone()?,
            is_copy: true,
        })
    }

    /// Whether files of it take memory.
    pub(super) fn is_in_memory(&self) -> bool {
        fstatfs(&self.temporary).is_ok_and(|system| system.f_type == TMPFS_MAGIC)
    }

    /// Whether the run has written too much. If it cannot be measured, that counts as too much: the run caused it.
    pub(super) fn excess(&self, limits: &Limits) -> Option<StopReason> {
        let usage = |tree: &OwnedFd| tree::usage(tree.as_fd());
        let is_within = || -> io::Result<bool> {
            let kept = usage(&self.trees.scratch)?.plus(usage(&self.trees.results)?);
            let temporary = usage(&self.temporary)?;
            Ok(kept.bytes <= limits.disk_bytes
                && kept.inodes <= limits.inodes
                && temporary.bytes <= self.temporary_bytes
                && temporary.inodes <= TEMPORARY_INODES)
        };
        (!is_within().unwrap_or(false)).then_some(StopReason::Disk)
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        // What cannot be removed now, the next probe removes.
        let _ = tree::remove(self.parent.as_fd(), OsStr::new(&self.name));
    }
}

/// Removes the directories that killed processes of this user left.
pub(super) fn sweep() -> io::Result<()> {
    let parent = open_parent()?;
    flock(&parent, FlockOperation::LockExclusive)?;
    for entry in Dir::read_from(&parent)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let Ok(directory) = openat(&parent, name, DIRECTORY, Mode::empty()) else {
            continue;
        };
        if flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok() {
            use std::os::unix::ffi::OsStrExt as _;
            tree::remove(parent.as_fd(), OsStr::from_bytes(name.to_bytes()))?;
        }
    }
    Ok(())
}

/// The directory for this user's runs, which no other user has prepared.
fn open_parent() -> io::Result<OwnedFd> {
    match open_parent_in(&std::env::temp_dir()) {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            open_parent_in(Path::new(MEMORY))
        }
        other => other,
    }
}

fn open_parent_in(place: &Path) -> io::Result<OwnedFd> {
    let user = geteuid();
    // Without a link in it, because the run finds its directory by this path.
    let place: PathBuf = fs::canonicalize(place)?;
    let path = place.join(format!("mooring-runs-{}", user.as_raw()));
    match mkdirat(CWD, &path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let parent = openat(CWD, &path, DIRECTORY, Mode::empty())?;
    if fstat(&parent)?.st_uid != user.as_raw() {
        return Err(io::Error::other(format!(
            "{} belongs to another user",
            path.display()
        )));
    }
    fchmod(&parent, PARENT_MODE)?;
    Ok(parent)
}

fn make(at: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    mkdirat(at, name, Mode::RWXU)?;
    Ok(openat(at, name, DIRECTORY, Mode::empty())?)
}

fn fill(
    directory: &OwnedFd,
    trees: &SessionTrees,
    limits: &Limits,
) -> io::Result<(SessionTrees, OwnedFd)> {
    let mounted = Limits {
        disk_bytes: MOUNTED_BYTES_MAX,
        inodes: MOUNTED_INODES_MAX,
        ..limits.clone()
    };
    let read_only = [
        (Mount::Tools, trees.tools.as_fd()),
        (Mount::Skills, trees.skills.as_fd()),
    ];
    let writable = [
        (Mount::Scratch, trees.scratch.as_fd()),
        (Mount::Results, trees.results.as_fd()),
    ];
    let copy = |trees, limits| {
        tree::copy_trees(trees, directory.as_fd(), limits).map_err(io::Error::other)
    };
    let [tools, skills] = copy(read_only, &mounted)?;
    let [scratch, results] = copy(writable, limits)?;
    let text = make(directory, "code")?;
    fchmod(&text, Mode::from_raw_mode(0o755))?;
    let temporary = make(directory, "tmp")?;
    let trees = SessionTrees {
        tools,
        skills,
        scratch,
        results,
    };
    Ok((trees, temporary))
}
