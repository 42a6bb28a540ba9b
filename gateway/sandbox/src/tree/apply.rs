//! Does the steps of a journal, each of which may have been done before.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use super::commit_error::Checkpoint;
use super::journal::JournalStep;
use super::open;
use super::staging::{new_name, old_name};

/// Performs the steps in order. `root` is the session's directory, `staging` the one with the prepared files.
pub(super) fn apply(
    root: BorrowedFd<'_>,
    staging: BorrowedFd<'_>,
    steps: &[JournalStep],
    checkpoint: &mut dyn Checkpoint,
) -> io::Result<()> {
    let mut parents = Parents { root, last: None };
    for step in steps {
        match step {
            JournalStep::Remove { path, slot } => {
                let old = old_name(*slot);
                // If it is in staging already, the step was performed before, and the one at the path is the new one.
                if !exists(staging, &old)? {
                    let (parent, name) = parents.of(path)?;
                    rename_if_there((parent, name), (staging, &old))?;
                }
            }
            JournalStep::Place { path, slot } => {
                let (parent, name) = parents.of(path)?;
                rename_if_there((staging, &new_name(*slot)), (parent, name))?;
            }
        }
        checkpoint.reached();
    }
    Ok(())
}

/// The directory that the last step was in: most are in the same one as the one before.
struct Parents<'a> {
    root: BorrowedFd<'a>,
    last: Option<(String, OwnedFd)>,
}

impl Parents<'_> {
    /// The directory of a path, and the path's last component.
    fn of<'p>(&mut self, path: &'p str) -> io::Result<(BorrowedFd<'_>, &'p str)> {
        let (parent, name) = path.rsplit_once('/').ok_or(io::ErrorKind::InvalidData)?;
        let opened = match self.last.take() {
            Some((last, opened)) if last == parent => opened,
            _ => open::directory(self.root, parent)?,
        };
        let (_, opened) = &*self.last.insert((parent.to_owned(), opened));
        Ok((opened.as_fd(), name))
    }
}

fn exists(at: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    match fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Renames; if nothing is there, it was renamed before.
fn rename_if_there(from: (BorrowedFd<'_>, &str), to: (BorrowedFd<'_>, &str)) -> io::Result<()> {
    match fs::renameat(from.0, from.1, to.0, to.1) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
