//! Files that hold a secret: who may be able to read one, how it is read, and how a change of it is noticed.
//!
//! Invariant: nothing of the secret is in an error.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Permission bits that only the owner may have.
const MODE_OF_OTHERS: u32 = 0o077;
/// The same for a file of root's, which its group may read, as orchestrators mount secrets for other users.
const MODE_OF_OTHERS_IF_ROOTS: u32 = 0o037;
const ROOT: u32 = 0;
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// Why a file cannot be used: a sentence that names it, and the cause if there is one. Callers only distinguish whether
/// the file exists.
#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
pub struct FileError {
    sentence: Box<str>,
    #[source]
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl FileError {
    /// An error without a cause.
    #[must_use]
    pub fn new(sentence: impl Into<Box<str>>) -> Self {
        Self {
            sentence: sentence.into(),
            cause: None,
        }
    }

    /// An error with this cause.
    pub fn because(
        sentence: impl Into<Box<str>>,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self {
            sentence: sentence.into(),
            cause: Some(cause.into()),
        }
    }

    /// Whether there is no such file.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        let cause = self.cause.as_ref();
        let cause = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
        cause.is_some_and(|cause| cause.kind() == io::ErrorKind::NotFound)
    }
}

/// Differs when the content, the owner or the mode of a file has changed, or when another file has its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    inode: u64,
    /// In seconds and nanoseconds (`st_ctim` of stat(2)).
    changed_at: (i64, i64),
    /// Tells two changes apart that were within one tick of the clock.
    bytes: u64,
}

impl FileVersion {
    /// The version of the file at this path; none if it cannot be looked at.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let about = std::fs::metadata(path).ok()?;
        Some(Self {
            inode: about.ino(),
            changed_at: (about.ctime(), about.ctime_nsec()),
            bytes: about.size(),
        })
    }
}

/// The user who owns a file that this process trusts only because it runs as root, and who can change it at any time; none
/// for other files.
#[must_use]
pub fn owner_below_root(path: &Path) -> Option<u32> {
    let owner = std::fs::metadata(path).ok()?.uid();
    (rustix::process::geteuid().is_root() && owner != ROOT).then_some(owner)
}

/// Whether a file of this user may hold a secret of a process of the user `own`. Root runs commands on the files of the
/// gateway's user, and can read every secret anyway.
const fn is_trusted(owner: u32, own: u32) -> bool {
    owner == ROOT || owner == own || own == ROOT
}

/// Reads the whole file. It must belong to root or to the user of this process, unless that is root. Only its owner may
/// be able to read it; if it is root's, its group may too.
///
/// # Errors
/// The file is not there, is not a regular file, can be changed or read by others, or is larger than `bytes_max`.
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, FileError> {
    let shown = path.display();
    let failed_to_read =
        |error: io::Error| FileError::because(format!("cannot read the key file {shown}"), error);
    // A pipe would be waited for, so it is opened without waiting and refused below.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(NONBLOCK)
        .open(path)
        .map_err(|error| FileError::because(format!("cannot open the key file {shown}"), error))?;
    let about = file.metadata().map_err(failed_to_read)?;
    if !about.is_file() {
        let sentence = format!("the key file {shown} is not a regular file");
        return Err(FileError::new(sentence));
    }
    let (owner, own) = (about.uid(), rustix::process::geteuid().as_raw());
    if !is_trusted(owner, own) {
        return Err(FileError::new(format!(
            "the key file {shown} belongs to the user {owner}: it must be root's or of the user of this process, {own}"
        )));
    }
    let of_others = if owner == ROOT {
        MODE_OF_OTHERS_IF_ROOTS
    } else {
        MODE_OF_OTHERS
    };
    let mode = about.mode() & 0o7777;
    if mode & of_others != 0 {
        return Err(FileError::new(format!(
            "the key file {shown} has mode {mode:04o}: only its owner may read it (0600 or 0400; 0640 where it is root's)"
        )));
    }
    let content = read_at_most(file, bytes_max).map_err(failed_to_read)?;
    content.ok_or_else(|| {
        FileError::new(format!(
            "the key file {shown} is larger than {bytes_max} bytes"
        ))
    })
}

/// The whole content; none if it is too large.
fn read_at_most(file: File, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let read = file
        .take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes)?;
    let is_within = u64::try_from(read).is_ok_and(|read| read <= bytes_max);
    Ok(is_within.then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_of_another_user_is_refused() {
        for (owner, own, is_read) in [
            (ROOT, ROOT, true),
            (ROOT, 1000, true),
            (1000, 1000, true),
            (1001, 1000, false),
            (1000, ROOT, true),
        ] {
            assert_eq!(is_trusted(owner, own), is_read, "{owner} {own}");
        }
    }
}
