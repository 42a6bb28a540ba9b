//! Steps within the base: every one relative to an open directory, beneath it, and through no link.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use mooring_session::time::Millis;
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// The locks of sessions.
pub(super) const LOCKS: &str = ".locks";
/// The trees of tools and skills.
pub(super) const TOOLS: &str = ".tools";
/// What is over.
pub(super) const TRASH: &str = ".trash";
/// The records of runs.
pub(super) const RUNS: &str = ".runs";
/// Skills.
pub(super) const SKILLS: &str = ".skills";

/// Directories of the volume are the gateway's alone.
pub(super) const DIRECTORY_MODE: Mode = Mode::RWXU;
/// So are its files.
pub(super) const FILE_MODE: Mode = Mode::from_raw_mode(0o600);

/// How often parent directories are made again if a sweeping gateway removes them, empty, in between.
const ATTEMPTS_MAX: usize = 100;

/// How every step resolves.
pub(super) const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// A step on the volume that the system refused.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {error}")]
pub struct VolumeError {
    what: &'static str,
    error: io::Error,
}

impl VolumeError {
    /// For `map_err`: `what` says what could not be done.
    pub(super) fn at<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self {
            what,
            error: error.into(),
        }
    }

    /// Whether there is no room on the volume, or none that the gateway's user may have.
    #[must_use]
    pub fn is_full(&self) -> bool {
        is_full(&self.error)
    }
}

/// Whether there is no room on the volume, or none that the gateway's user may have.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// A length of time in whole milliseconds; longer ones than 64 bits hold saturate.
pub(super) fn millis(duration: Duration) -> u64 {
    Millis::from(duration).get()
}

/// Opens a file or directory beneath `parent`.
pub(super) fn open(
    parent: BorrowedFd<'_>,
    path: impl AsRef<Path>,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    fs::openat2(parent, path.as_ref(), flags, mode, BENEATH)
}

/// Writes a file beneath `parent`, and creates it if it is missing; `flags` say how an existing one is treated.
pub(super) fn write_file(
    parent: BorrowedFd<'_>,
    path: impl AsRef<Path>,
    flags: OFlags,
    bytes: &[u8],
) -> Result<File, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | flags;
    let mut file = File::from(open(parent, path, flags, FILE_MODE)?);
    file.write_all(bytes).map_err(|error| errno(&error))?;
    Ok(file)
}

/// The opened file; none if the name does not exist.
pub(super) fn existing<T>(opened: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The error number of an I/O error.
pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Opens a directory beneath `parent`.
pub(super) fn open_directory(
    parent: BorrowedFd<'_>,
    path: impl AsRef<Path>,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    open(parent, path, flags, Mode::empty())
}

/// A second description of an open directory, of its own position.
pub(super) fn reopen(directory: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    open_directory(directory, ".")
}

/// Creates one directory, unless it exists.
pub(super) fn make_directory(parent: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    match fs::mkdirat(parent, name, DIRECTORY_MODE) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Makes a directory and those above it, and opens it.
pub(super) fn make_directories(parent: BorrowedFd<'_>, names: &[&str]) -> Result<OwnedFd, Errno> {
    let mut last = Errno::NOENT;
    for _ in 0..ATTEMPTS_MAX {
        match descend(parent, names) {
            Err(Errno::NOENT) => last = Errno::NOENT,
            settled => return settled,
        }
    }
    Err(last)
}

fn descend(parent: BorrowedFd<'_>, names: &[&str]) -> Result<OwnedFd, Errno> {
    let mut directory = reopen(parent)?;
    for name in names {
        make_directory(directory.as_fd(), name)?;
        directory = open_directory(directory.as_fd(), name)?;
    }
    Ok(directory)
}

/// Removes a directory where it is empty; says whether it did.
pub(super) fn remove_empty(parent: BorrowedFd<'_>, path: impl AsRef<Path>) -> Result<bool, Errno> {
    match fs::unlinkat(parent, path.as_ref(), AtFlags::REMOVEDIR) {
        Ok(()) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// The names in a directory, one by one as it is read, without `.` and `..`. Those that are not UTF-8 are nothing of
/// ours.
pub(super) fn names(
    directory: BorrowedFd<'_>,
) -> Result<impl Iterator<Item = Result<String, Errno>> + use<>, Errno> {
    let entries = fs::Dir::read_from(directory)?;
    Ok(entries.filter_map(|entry| match entry {
        Ok(entry) => entry
            .file_name()
            .to_str()
            .ok()
            .filter(|name| !matches!(*name, "." | ".."))
            .map(|name| Ok(name.to_owned())),
        Err(errno) => Some(Err(errno)),
    }))
}

/// When a file or directory was last modified, in milliseconds since 1970. Links are not followed.
pub(super) fn modified_at_ms(parent: BorrowedFd<'_>, name: &str) -> Result<u64, Errno> {
    fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| modified_ms(&stat))
}

/// The modification time of a file's state, in milliseconds since 1970.
pub(super) fn modified_ms(stat: &fs::Stat) -> u64 {
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    seconds
        .saturating_mul(1_000)
        .saturating_add(stat.st_mtime_nsec / 1_000_000)
}

/// Sets both times of a file to a moment in milliseconds since 1970.
pub(super) fn set_modified(parent: BorrowedFd<'_>, name: &str, unix_ms: u64) -> Result<(), Errno> {
    let moment = fs::Timespec {
        tv_sec: i64::try_from(unix_ms / 1_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(unix_ms % 1_000 * 1_000_000).unwrap_or(0),
    };
    let times = fs::Timestamps {
        last_access: moment,
        last_modification: moment,
    };
    fs::utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)
}

/// A name that nothing else has: `<prefix><16 random hexadecimal digits>`.
pub(super) fn fresh_name(prefix: &str) -> String {
    format!("{prefix}{:016x}", rand::random::<u64>())
}

/// The directory above all, opened by its path as the operator wrote it; the last step follows no link.
pub(super) fn open_base(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(CWD, path, flags, Mode::empty())
}
