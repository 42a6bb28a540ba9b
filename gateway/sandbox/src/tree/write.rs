//! Writes one file of a session.
//!
//! Invariant: a write is one rename. The file is prepared in staging, with the missing directories of its path, and the
//! topmost of these is moved into place: a process that is killed before that leaves the old tree.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, Mode, Stat, fstat};
use rustix::io::Errno;

use super::commit_error::CommitError;
use super::copy::{self, DIRECTORY_MODE};
use super::error::TreeError;
use super::existing::measure;
use super::open::{self, FileKind};
use super::read::modified_at_ms;
use super::recover::recover;
use super::session::SessionDirectory;
use super::staging::Staging;
use super::usage::TreeUsage;
use crate::limits::Limits;
use crate::paths::VirtualPath;

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteReport {
    /// Length of the file.
    pub size_bytes: u64,
    /// When it was written, in milliseconds since 1970.
    pub modified_at_ms: i64,
    /// The usage of the session's trees.
    pub usage: TreeUsage,
}

/// Writes a file beneath `/scratch` or `/results`, replacing an existing one, and creates missing directories. The
/// caller has the session's lock; the work of a killed commit is completed first.
///
/// # Errors
///
/// See [`TreeError`]; then nothing was changed.
pub fn write(
    session: &SessionDirectory,
    path: &VirtualPath,
    content: &[u8],
    limits: &Limits,
) -> Result<WriteReport, TreeError> {
    recover(session).map_err(unrecovered)?;
    let tree = path.mount().and_then(|mount| session.tree(mount));
    let tree = tree.ok_or_else(|| TreeError::ReadOnly(path.clone()))?;
    if !limits.access.allows_writing(path) {
        return Err(TreeError::Denied(path.clone(), "write"));
    }
    let place = WriteLocation::find(tree, path)?;
    let usage_after = fitting(session, &place, content, limits)?;
    let staging = Staging::begin(session).map_err(TreeError::system("make a staging directory"))?;
    let written = place.write(&staging, content);
    // If this fails, the next process that opens the session discards it.
    let _ = staging.discard(session);
    let stat = written?;
    Ok(WriteReport {
        size_bytes: content.len() as u64,
        modified_at_ms: modified_at_ms(&stat),
        usage: usage_after,
    })
}

/// The destination of a file.
struct WriteLocation<'a> {
    path: &'a VirtualPath,
    /// The deepest existing directory of the path.
    directory: OwnedFd,
    /// The missing components, the file's own name included. There is at least one.
    missing: &'a [String],
    /// The existing file.
    old: Option<Stat>,
}

impl<'a> WriteLocation<'a> {
    fn find(tree: BorrowedFd<'_>, path: &'a VirtualPath) -> Result<Self, TreeError> {
        let step = "open a directory";
        let mut directory = open::directory(tree, c".").map_err(TreeError::system(step))?;
        let mut missing = path.names();
        let Some((_, mut parents)) = missing.split_last() else {
            return Err(TreeError::IsADirectory(path.clone()));
        };
        while let Some((first, others)) = parents.split_first() {
            match open::directory(&directory, first.as_str()) {
                Ok(next) => directory = next,
                Err(Errno::NOENT) => break,
                Err(errno) => return Err(TreeError::on(path, step)(errno)),
            }
            parents = others;
            missing = missing.get(1..).unwrap_or_default();
        }
        let old = match missing {
            [name] => stat_existing_file(&directory, name, path)?,
            _ => None,
        };
        Ok(Self {
            path,
            directory,
            missing,
            old,
        })
    }

    /// Prepares the file and moves it into place.
    fn write(&self, staging: &Staging, content: &[u8]) -> Result<Stat, TreeError> {
        let Some((top, _)) = self.missing.split_first() else {
            return Err(TreeError::IsADirectory(self.path.clone()));
        };
        let stat = prepare(
            staging.directory(),
            self.missing,
            content,
            self.old.as_ref(),
        )
        .map_err(TreeError::system("prepare a file"))?;
        fs::renameat(
            staging.directory(),
            top.as_str(),
            &self.directory,
            top.as_str(),
        )
        .map_err(TreeError::system("put a file in place"))?;
        Ok(stat)
    }
}

/// Writes the file, and the directories above it that are missing, into the staging directory.
fn prepare(
    staging: BorrowedFd<'_>,
    names: &[String],
    content: &[u8],
    old: Option<&Stat>,
) -> rustix::io::Result<Stat> {
    let mut made: Option<OwnedFd> = None;
    let mut names = names.iter().peekable();
    while let Some(name) = names.next() {
        let at = made.as_ref().map_or(staging, |directory| directory.as_fd());
        if names.peek().is_some() {
            fs::mkdirat(at, name.as_str(), Mode::RWXU)?;
            let directory = open::directory(at, name.as_str())?;
            fs::fchmod(&directory, DIRECTORY_MODE)?;
            made = Some(directory);
            continue;
        }
        let file = copy::create(at, name.as_str())?;
        copy::write_all_at(&file, content, 0)?;
        // A rewritten script stays executable.
        fs::fchmod(
            &file,
            old.map_or(Mode::from_raw_mode(0o644), copy::kept_mode),
        )?;
        return fstat(&file);
    }
    Err(Errno::INVAL)
}

/// The file at a name, or nothing; anything else is refused.
fn stat_existing_file(
    directory: &OwnedFd,
    name: &str,
    path: &VirtualPath,
) -> Result<Option<Stat>, TreeError> {
    match fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(TreeError::system("look at a file")(errno)),
        Ok(stat) => match FileKind::of(&stat) {
            FileKind::File => Ok(Some(stat)),
            FileKind::Directory => Err(TreeError::IsADirectory(path.clone())),
            FileKind::Other => Err(TreeError::Special(path.clone())),
        },
    }
}

/// The resulting usage of the session's trees, if it is allowed.
fn fitting(
    session: &SessionDirectory,
    place: &WriteLocation<'_>,
    content: &[u8],
    limits: &Limits,
) -> Result<TreeUsage, TreeError> {
    let size_bytes = content.len() as u64;
    if size_bytes > limits.file_bytes {
        return Err(TreeError::OverLimit {
            limit: "file_bytes",
            needed: size_bytes,
            allowed: limits.file_bytes,
        });
    }
    let before = measure(session).map_err(unrecovered)?;
    let replaced = place
        .old
        .as_ref()
        .map_or(TreeUsage::default(), |stat| TreeUsage {
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            inodes: 1,
        });
    let after = before.minus(replaced).plus(TreeUsage {
        bytes: size_bytes,
        inodes: place.missing.len() as u64,
    });
    after.within(before.ceiling(limits)).map_err(unrecovered)?;
    Ok(after)
}

/// The same error, as one of a write.
fn unrecovered(error: CommitError) -> TreeError {
    match error {
        CommitError::OverLimit {
            limit,
            needed,
            allowed,
        } => TreeError::OverLimit {
            limit,
            needed,
            allowed,
        },
        CommitError::System { step, source } | CommitError::Unfinished { step, source } => {
            TreeError::System { step, source }
        }
        CommitError::Overtaken { .. } | CommitError::UnknownJournal => TreeError::System {
            step: "finish what a commit left",
            source: std::io::Error::other(error),
        },
    }
}
