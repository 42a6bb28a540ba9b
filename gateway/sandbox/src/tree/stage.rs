//! Examines each entry of a layer that a run wrote, copies what may be kept, and plans how it is put in place.
//!
//! Everything in the layer is the run's own word, the overlay's marks in it included: see `layer`.
//!
//! Invariant: nothing is copied but regular files, and nothing made but directories. What is refused is listed, and
//! what stood at its place before stays. The walk keeps at most three descriptors per level of a path's depth open.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{self, Dir, Mode, Stat};
use rustix::io::Errno;

use super::access::AccessVerdict;
use super::commit_error::{Checkpoint, CommitError};
use super::copy::{Copier, DIRECTORY_MODE};
use super::existing::{existing_kind, existing_usage};
use super::layer::{Marks, is_opaque, is_whiteout, special_name};
use super::open::{self, FileKind};
use super::plan::{Path, Plan, RefusalReason};
use super::usage::{TreeUsage, is_self_or_parent};
use crate::limits::Limits;
use crate::paths::{self, DEPTH_MAX, Mount, PATH_BYTES_MAX};
use crate::thread_time::thread_cpu_time;

/// The destination of a directory's entries.
pub(super) enum Target {
    /// An existing directory: each entry is placed separately, over the existing one.
    Kept(OwnedFd),
    /// Into a directory that is kept and will be empty by then.
    Emptied,
    /// Into a directory that is itself prepared.
    Prepared(OwnedFd),
}

/// A directory that is being walked.
pub(super) struct Level {
    source: Dir,
    pub(super) target: Target,
    path: Path,
}

impl Level {
    /// The directory itself.
    pub(super) fn directory(&self) -> Result<BorrowedFd<'_>, CommitError> {
        (self.source.fd()).map_err(CommitError::system("list a layer"))
    }
}

/// Walks layers.
pub(super) struct Stager<'a> {
    pub(super) limits: &'a Limits,
    pub(super) marks: Marks,
    /// Most that may be prepared: more could not be kept whatever else the commit does.
    pub(super) ceiling: TreeUsage,
    /// The directory with prepared files.
    pub(super) staging: BorrowedFd<'a>,
    pub(super) plan: Plan,
    pub(super) copier: Copier,
    pub(super) checkpoint: &'a mut dyn Checkpoint,
    /// Entries that may still be examined, kept or not.
    pub(super) looks_left: u64,
    /// The CPU time of this thread at which the commit is aborted.
    pub(super) cpu_until: Duration,
}

impl Stager<'_> {
    /// Walks a layer over the tree of `mount`, whose directory is `lower`.
    pub(super) fn merge(
        &mut self,
        layer: BorrowedFd<'_>,
        mount: Mount,
        lower: BorrowedFd<'_>,
    ) -> Result<(), CommitError> {
        let kept = open::directory(lower, c".").map_err(CommitError::system("open a tree"))?;
        self.walk(layer, mount, Target::Kept(kept))
    }

    /// Walks a whole tree that replaces the content of `lower`.
    pub(super) fn replace(
        &mut self,
        layer: BorrowedFd<'_>,
        mount: Mount,
        lower: BorrowedFd<'_>,
    ) -> Result<(), CommitError> {
        let listing = open::directory(lower, c".")
            .and_then(Dir::new)
            .map_err(CommitError::system("list a tree"))?;
        for entry in listing {
            let entry = entry.map_err(CommitError::system("list a tree"))?;
            if !is_self_or_parent(entry.file_name())
                && let Ok(name) = paths::checked(entry.file_name().to_bytes())
                && let Some((_, held)) = existing_usage(lower, entry.file_name())?
            {
                self.plan.remove(format!("{}/{name}", mount.name()), held);
            }
        }
        self.walk(layer, mount, Target::Emptied)
    }

    /// Copies a whole tree into a directory of the host's, without a plan.
    pub(super) fn copy_out(
        &mut self,
        tree: BorrowedFd<'_>,
        mount: Mount,
        into: BorrowedFd<'_>,
    ) -> Result<(), CommitError> {
        let prepared =
            open::directory(into, c".").map_err(CommitError::system("open a working copy"))?;
        self.walk(tree, mount, Target::Prepared(prepared))
    }

    fn walk(
        &mut self,
        layer: BorrowedFd<'_>,
        mount: Mount,
        target: Target,
    ) -> Result<(), CommitError> {
        let layer = open::root_made_ours(layer).map_err(CommitError::system("open a layer"))?;
        let source = Dir::new(layer).map_err(CommitError::system("list a layer"))?;
        let path = Path {
            text: mount.name().to_owned(),
            depth: 0,
        };
        let mut levels = vec![Level {
            source,
            target,
            path,
        }];
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.source.read() else {
                levels.pop();
                continue;
            };
            let entry = entry.map_err(CommitError::system("list a layer"))?;
            if is_self_or_parent(entry.file_name()) {
                continue;
            }
            if let Some(next) = self.entry(level, entry.file_name())? {
                levels.push(next);
            }
        }
        Ok(())
    }

    /// Counts a look at an entry, and fails where the commit takes more than it may.
    fn take_look(&mut self) -> Result<(), CommitError> {
        self.looks_left = self
            .looks_left
            .checked_sub(1)
            .ok_or(CommitError::OverLimit {
                limit: "inodes",
                needed: self.ceiling.inodes.saturating_add(1),
                allowed: self.ceiling.inodes,
            })?;
        if !self.plan.fits_journal() {
            return Err(CommitError::system("write the journal")(Errno::FBIG));
        }
        if thread_cpu_time() > self.cpu_until {
            let allowed = u64::try_from(self.limits.cpu_time.as_millis()).unwrap_or(u64::MAX);
            return Err(CommitError::OverLimit {
                limit: "cpu_time_ms",
                needed: allowed.saturating_add(1),
                allowed,
            });
        }
        Ok(())
    }

    /// Examines one entry; returns it if it is a directory to walk.
    fn entry(&mut self, level: &Level, raw_name: &CStr) -> Result<Option<Level>, CommitError> {
        self.take_look()?;
        let looked = open::hold(level.directory()?, raw_name)
            .and_then(|held| fs::fstat(&held).map(|stat| (held, stat)));
        let (held, stat) = match looked {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(None),
            Err(_) => return Ok(self.refuse(level, raw_name, RefusalReason::Unreadable)),
        };
        let is_deletion = self.marks == Marks::Overlay && is_whiteout(&stat);
        let name = match paths::checked(raw_name.to_bytes()) {
            Ok(name) => name,
            // No kept file has such a name, so there is nothing to delete.
            Err(_) if is_deletion => return Ok(None),
            Err(fault) => return Ok(self.refuse(level, raw_name, RefusalReason::Name(fault))),
        };
        let path = level.path.join(name);
        match self.verdict(level, &path, raw_name, &stat)? {
            AccessVerdict::Allowed => {}
            AccessVerdict::Nothing => return Ok(None),
            AccessVerdict::Denied => {
                return Ok(self.refuse(level, raw_name, RefusalReason::Denied));
            }
        }
        if is_deletion {
            self.delete(&level.target, path, raw_name)?;
            return Ok(None);
        }
        match self.refusal(&path, &stat) {
            Some(reason) => Ok(self.refuse(level, raw_name, reason)),
            None if FileKind::of(&stat) == FileKind::Directory => {
                self.keep_directory(level, path, raw_name)
            }
            None => self.keep_file(level, path, raw_name, (&held, &stat)),
        }
    }

    /// Lists an entry as refused. Nothing below it is looked at.
    fn refuse(&mut self, level: &Level, name: &CStr, reason: RefusalReason) -> Option<Level> {
        self.plan.refuse(&level.path, name, reason);
        None
    }

    /// Why an entry is refused, as far as its inode and path determine that.
    fn refusal(&self, path: &Path, stat: &Stat) -> Option<RefusalReason> {
        let size_bytes = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        let kind = FileKind::of(stat);
        if path.depth > DEPTH_MAX {
            Some(RefusalReason::TooDeep)
        } else if path.text.len() >= PATH_BYTES_MAX {
            Some(RefusalReason::PathTooLong)
        } else if kind == FileKind::Other {
            Some(RefusalReason::Special(special_name(stat)))
        } else if kind == FileKind::File && size_bytes > self.limits.file_bytes {
            Some(RefusalReason::TooLarge { size_bytes })
        } else {
            None
        }
    }

    fn delete(&mut self, target: &Target, path: Path, name: &CStr) -> Result<(), CommitError> {
        if let Target::Kept(lower) = target
            && let Some((_, held)) = existing_usage(lower.as_fd(), name)?
        {
            self.plan.remove(path.text, held);
            self.plan.deleted += 1;
        }
        Ok(())
    }

    fn keep_file(
        &mut self,
        level: &Level,
        path: Path,
        name: &CStr,
        (held, stat): (&OwnedFd, &Stat),
    ) -> Result<Option<Level>, CommitError> {
        let Ok(source) = open::reopen_made_ours(held) else {
            return Ok(self.refuse(level, name, RefusalReason::Unreadable));
        };
        let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
        self.count(TreeUsage {
            bytes: size_bytes,
            inodes: 1,
        })?;
        self.plan.files += 1;
        self.plan.is_file_limit_reached |= size_bytes == self.limits.file_bytes;
        let copied = match &level.target {
            Target::Prepared(directory) => self.copier.copy(&source, stat, directory, name),
            Target::Emptied => {
                let slot = self.plan.place(path.text);
                self.copier.copy(&source, stat, self.staging, slot)
            }
            Target::Kept(lower) => {
                match existing_usage(lower.as_fd(), name)? {
                    // A rename writes over a file in one step.
                    Some((FileKind::File, held)) => {
                        self.plan.removed = self.plan.removed.plus(held)
                    }
                    Some((_, held)) => self.plan.remove(path.text.clone(), held),
                    None => {}
                }
                let slot = self.plan.place(path.text);
                self.copier.copy(&source, stat, self.staging, slot)
            }
        };
        copied.map_err(CommitError::system("copy a file"))?;
        self.checkpoint.reached();
        Ok(None)
    }

    fn keep_directory(
        &mut self,
        level: &Level,
        path: Path,
        name: &CStr,
    ) -> Result<Option<Level>, CommitError> {
        let Ok(opened) = open::directory_made_ours(level.directory()?, name) else {
            return Ok(self.refuse(level, name, RefusalReason::Unreadable));
        };
        let target = match &level.target {
            Target::Prepared(parent) => self.prepare_directory(parent.as_fd(), name)?,
            Target::Emptied => {
                let slot = self.plan.place(path.text.clone());
                self.prepare_directory(self.staging, slot.as_str())?
            }
            Target::Kept(lower) => match existing_kind(lower.as_fd(), name)? {
                Some(FileKind::Directory) if !is_opaque(&opened) || !self.may_replace(&path) => {
                    Target::Kept(
                        open::directory(lower, name)
                            .map_err(CommitError::system("open a directory"))?,
                    )
                }
                _ => {
                    if let Some((_, held)) = existing_usage(lower.as_fd(), name)? {
                        self.plan.remove(path.text.clone(), held);
                    }
                    let slot = self.plan.place(path.text.clone());
                    self.prepare_directory(self.staging, slot.as_str())?
                }
            },
        };
        let source = Dir::new(opened).map_err(CommitError::system("list a layer"))?;
        Ok(Some(Level {
            source,
            target,
            path,
        }))
    }

    /// Creates a directory among the prepared files.
    fn prepare_directory<P: rustix::path::Arg + Copy>(
        &mut self,
        at: BorrowedFd<'_>,
        name: P,
    ) -> Result<Target, CommitError> {
        self.count(TreeUsage {
            bytes: 0,
            inodes: 1,
        })?;
        self.plan.directories += 1;
        fs::mkdirat(at, name, Mode::RWXU).map_err(CommitError::system("make a directory"))?;
        let made = open::directory(at, name).map_err(CommitError::system("open a directory"))?;
        fs::fchmod(&made, DIRECTORY_MODE).map_err(CommitError::system("make a directory"))?;
        self.checkpoint.reached();
        Ok(Target::Prepared(made))
    }

    /// Counts an entry that is about to be prepared, and fails if it could not be kept in any case.
    fn count(&mut self, added: TreeUsage) -> Result<(), CommitError> {
        self.plan.staged = self.plan.staged.plus(added);
        self.plan.staged.within(self.ceiling)
    }
}
