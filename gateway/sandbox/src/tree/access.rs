//! What the policy of a run says of the entries that it wrote.
//!
//! Invariant: no file is kept at a place that the policy does not let the run write to, whatever the layer says.

use std::ffi::CStr;
use std::os::fd::AsFd as _;

use rustix::fs::Stat;

use super::commit_error::CommitError;
use super::existing::existing_kind;
use super::open::{self, FileKind};
use super::plan::Path;
use super::stage::{Level, Stager, Target};
use super::usage::is_empty;
use crate::paths::VirtualPath;

/// What the policy says of an entry.
pub(super) enum AccessVerdict {
    /// It is kept, if nothing else is against it.
    Allowed,
    /// It is no change: an empty directory at a denied place, which the sandbox made to cover it.
    Nothing,
    Denied,
}

impl Stager<'_> {
    /// What the policy says of an entry. The sandbox enforces the same while the run lasts; what it cannot prevent, such
    /// as a denied name in a directory that the run itself has made, is refused here.
    pub(super) fn verdict(
        &self,
        level: &Level,
        path: &Path,
        name: &CStr,
        stat: &Stat,
    ) -> Result<AccessVerdict, CommitError> {
        let access = &self.limits.access;
        // What has no such path is refused for that.
        let Some(shown) = self.shown_if_narrowed(path) else {
            return Ok(AccessVerdict::Allowed);
        };
        let is_directory = FileKind::of(stat) == FileKind::Directory;
        if access.allows_writing(&shown) {
            return Ok(match is_directory || !access.denies_below(&shown) {
                true => AccessVerdict::Allowed,
                false => AccessVerdict::Denied,
            });
        }
        if !is_directory {
            return Ok(AccessVerdict::Denied);
        }
        // The sandbox makes the directories of the policy, mount points to cover denied ones, and copies of the parents
        // of both.
        let is_kept = match &level.target {
            Target::Kept(lower) => existing_kind(lower.as_fd(), name)? == Some(FileKind::Directory),
            Target::Emptied | Target::Prepared(_) => false,
        };
        if is_kept || access.leads_to_named(&shown) {
            return Ok(AccessVerdict::Allowed);
        }
        let is_empty = is_empty(open::directory_made_ours(level.directory()?, name));
        Ok(match is_empty {
            true => AccessVerdict::Nothing,
            false => AccessVerdict::Denied,
        })
    }

    /// The path as agents see it, where the policy does not allow every path.
    fn shown_if_narrowed(&self, path: &Path) -> Option<VirtualPath> {
        if self.limits.access.is_whole() {
            return None;
        }
        VirtualPath::parse(&format!("/{}", path.text)).ok()
    }

    /// Whether a directory may take the place of one with all its content.
    pub(super) fn may_replace(&self, path: &Path) -> bool {
        let access = &self.limits.access;
        self.shown_if_narrowed(path)
            .is_none_or(|shown| access.allows_writing(&shown) && !access.denies_below(&shown))
    }
}
