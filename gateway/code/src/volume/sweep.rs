//! The sweep: directories that no record names any more are removed by their age.
//!
//! Invariants: a session's directory is swept only under its lock, when it was not used for twice the time that a
//! session may be idle, and after a second look. Directories above it are removed only if they are empty, by a call
//! that fails otherwise; the next session that needs them makes them again.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use mooring_sandbox::tree;
use mooring_session::names::ContentHash;
use rustix::fs;
use rustix::io::Errno;

use super::directory::{self, TOOLS, VolumeError};
use super::lock::{self, LockError, LockName};
use super::probe::PROBE_PREFIX;
use super::tools::NEW_PREFIX;
use super::{Volume, stamp, trash};
use crate::place;

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepOutcome {
    /// Directories of sessions that went to the trash.
    pub sessions: usize,
    /// Trees of tools that went to the trash, and what was left of making some.
    pub trees: usize,
    /// Directories of users and servers that were empty.
    pub directories: usize,
    /// Old directories that are still in use.
    pub in_use: usize,
    /// Entries that could not be inspected or moved. The next sweep tries again.
    pub failed: usize,
}

/// One sweep under way.
struct Sweep<'a> {
    base: BorrowedFd<'a>,
    now_ms: u64,
    retention_ms: u64,
    /// The trees that stamps name.
    named: HashSet<ContentHash>,
    swept: SweepOutcome,
}

impl Volume {
    /// Moves into the trash what was not used for twice the time to live, at `now_ms` (milliseconds since 1970). Safe in
    /// several processes at once.
    ///
    /// # Errors
    /// The base could not be read at all; single failures are counted.
    pub fn sweep(&self, now_ms: u64) -> Result<SweepOutcome, VolumeError> {
        let mut sweep = Sweep {
            base: self.shared.base.as_fd(),
            now_ms,
            retention_ms: retention_ms(self.shared.ttl_ms()),
            named: HashSet::new(),
            swept: SweepOutcome::default(),
        };
        let base = sweep.base;
        let unread = "the base directory could not be read";
        for name in directory::names(base).map_err(VolumeError::at(unread))? {
            let name = name.map_err(VolumeError::at(unread))?;
            if name.starts_with(PROBE_PREFIX) {
                sweep.remove_leftover(base, &name);
            } else if place::is_server_directory(&name) {
                sweep.server(&name);
            }
        }
        // After the stamps: a tree that is opened from now on is younger than what is swept.
        sweep.trees()?;
        Ok(sweep.swept)
    }
}

impl Sweep<'_> {
    fn is_old(&self, used_at_ms: u64) -> bool {
        self.now_ms.saturating_sub(used_at_ms) >= self.retention_ms
    }

    fn server(&mut self, server: &str) {
        for slug in self.list_names(server) {
            if !place::is_slug_directory(&slug) {
                continue;
            }
            let parent = format!("{server}/{slug}");
            for id in self.list_names(&parent) {
                if place::is_session_path(server, &slug, &id)
                    && self.session(server, &parent, &id).is_err()
                {
                    self.swept.failed = self.swept.failed.saturating_add(1);
                }
            }
            self.remove_empty(&parent);
        }
        self.remove_empty(server);
    }

    /// The names in a directory of a server or a user, which has as many as that server has users, or that user
    /// languages; what cannot be read has none.
    fn list_names(&mut self, path: &str) -> Vec<String> {
        let names = directory::open_directory(self.base, path)
            .and_then(|directory| directory::names(directory.as_fd())?.collect());
        match names {
            Ok(names) => names,
            // Removed meanwhile, or a file that is not the gateway's, which is left alone.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Vec::new(),
            Err(_) => {
                self.swept.failed = self.swept.failed.saturating_add(1);
                Vec::new()
            }
        }
    }

    fn session(&mut self, server: &str, parent: &str, id: &str) -> Result<(), Errno> {
        let path = format!("{parent}/{id}");
        if !self.is_left(&path)? {
            return Ok(());
        }
        let name = LockName {
            server: server.to_owned(),
            id: id.to_owned(),
        };
        let _lock = match lock::take(self.base, name, Duration::ZERO) {
            Ok(lock) => lock,
            Err(LockError::Busy { .. }) => {
                self.swept.in_use = self.swept.in_use.saturating_add(1);
                return Ok(());
            }
            Err(LockError::File(_)) => return Err(Errno::IO),
        };
        if self.is_left(&path)? {
            trash::discard(self.base, Path::new(&path), &format!("{id}.swept"))?;
            self.swept.sessions = self.swept.sessions.saturating_add(1);
        }
        Ok(())
    }

    /// Whether a session's directory exists and is expired. One without a stamp is as old as its modification time.
    fn is_left(&mut self, path: &str) -> Result<bool, Errno> {
        let session = match directory::open_directory(self.base, path) {
            Ok(session) => session,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
            Err(errno) => return Err(errno),
        };
        match stamp::read(session.as_fd()) {
            Ok(Some(stamp)) => {
                let retention_ms = stamp.ttl_ms.map_or(self.retention_ms, retention_ms);
                let is_old = self.now_ms.saturating_sub(stamp.used_at_ms) >= retention_ms;
                self.named.extend(stamp.content_hash.filter(|_| !is_old));
                Ok(is_old)
            }
            Ok(None) => {
                let stat = fs::fstat(&session)?;
                Ok(self.is_old(directory::modified_ms(&stat)))
            }
            // Of a later version, or unreadable: a gateway that can read it sweeps it.
            Err(_) => Err(Errno::IO),
        }
    }

    fn remove_empty(&mut self, path: &str) {
        match directory::remove_empty(self.base, path) {
            Ok(true) => self.swept.directories = self.swept.directories.saturating_add(1),
            Ok(false) => {}
            Err(_) => self.swept.failed = self.swept.failed.saturating_add(1),
        }
    }

    fn trees(&mut self) -> Result<(), VolumeError> {
        let unread = "the trees of tools could not be read";
        let all = directory::make_directories(self.base, &[TOOLS]);
        let all = all.map_err(VolumeError::at(unread))?;
        for name in directory::names(all.as_fd()).map_err(VolumeError::at(unread))? {
            let name = name.map_err(VolumeError::at(unread))?;
            if name.starts_with(NEW_PREFIX) {
                self.remove_leftover(all.as_fd(), &name);
            } else if !self.named.iter().any(|hash| hash.as_str() == name) {
                self.tree(all.as_fd(), &name);
            }
        }
        Ok(())
    }

    fn tree(&mut self, all: BorrowedFd<'_>, hash: &str) {
        match directory::modified_at_ms(all, hash) {
            Ok(used_at_ms) if self.is_old(used_at_ms) => {}
            Ok(_) | Err(Errno::NOENT) => return,
            Err(_) => return self.swept.failed = self.swept.failed.saturating_add(1),
        }
        let path = Path::new(TOOLS).join(hash);
        match trash::discard_tools(self.base, &path, hash) {
            Ok(()) => self.swept.trees = self.swept.trees.saturating_add(1),
            Err(Errno::NOENT) => {}
            Err(_) => self.swept.failed = self.swept.failed.saturating_add(1),
        }
    }

    /// Removes an incomplete directory that a killed process left.
    fn remove_leftover(&mut self, parent: BorrowedFd<'_>, name: &str) {
        let is_old = directory::modified_at_ms(parent, name).is_ok_and(|ms| self.is_old(ms));
        if !is_old {
            return;
        }
        match tree::remove(parent, name.as_ref()) {
            Ok(()) => self.swept.trees = self.swept.trees.saturating_add(1),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(_) => self.swept.failed = self.swept.failed.saturating_add(1),
        }
    }
}

/// For how long something must have been unused to be swept.
const fn retention_ms(ttl_ms: u64) -> u64 {
    ttl_ms.saturating_mul(2)
}
