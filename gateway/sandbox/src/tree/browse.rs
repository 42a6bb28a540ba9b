//! Listing one directory of a session.
//!
//! Invariant: memory is bounded by the requested number of entries, however large the directory is, and only returned
//! entries are inspected.

use std::collections::BinaryHeap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{AtFlags, Dir, Stat, fstat, statat};
use rustix::io::Errno;

use super::error::TreeError;
use super::open::{self, FileKind};
use super::read::modified_at_ms;
use super::usage::is_self_or_parent;
use crate::job::SessionTrees;
use crate::paths::{self, Mount, TreeAccess, VirtualPath};

/// Whether names that begin with a dot are listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Hidden {
    /// They are left out, and do not count.
    #[default]
    LeftOut,
    /// They are listed like all others.
    Listed,
}

/// How a directory is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrowseOptions {
    /// Names that begin with a dot.
    pub hidden: Hidden,
    /// Most entries returned, taken as 1 to [`BrowseOptions::ENTRIES_MAX`].
    pub entries_max: usize,
}

impl BrowseOptions {
    /// Default number of entries.
    pub const ENTRIES_DEFAULT: usize = 200;
    /// Most entries that a caller may request.
    pub const ENTRIES_MAX: usize = 1000;
}

impl Default for BrowseOptions {
    fn default() -> Self {
        Self {
            hidden: Hidden::default(),
            entries_max: Self::ENTRIES_DEFAULT,
        }
    }
}

/// A directory's entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The first ones, sorted by the bytes of their names.
    pub entries: Vec<Entry>,
    /// Whether there are more.
    pub is_truncated: bool,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name, [escaped](super::escaped) if session files may not have such a name.
    pub name: String,
    /// Its kind.
    pub kind: FileKind,
    /// The length of a regular file; 0 for anything else.
    pub size_bytes: u64,
    /// When it was last written, in milliseconds since 1970.
    pub modified_at_ms: i64,
}

impl Entry {
    fn new(name: String, stat: &Stat) -> Self {
        let kind = FileKind::of(stat);
        let size_bytes = if kind == FileKind::File {
            u64::try_from(stat.st_size).unwrap_or(0)
        } else {
            0
        };
        Self {
            name,
            kind,
            size_bytes,
            modified_at_ms: modified_at_ms(stat),
        }
    }
}

/// Lists a directory; `/` contains the four mounts. Of what the policy withholds nothing is listed.
///
/// # Errors
///
/// See [`TreeError`]; nothing is followed, and nothing but the directory itself is opened.
pub fn browse(
    view: &SessionTrees,
    path: &VirtualPath,
    options: &BrowseOptions,
    access: &TreeAccess,
) -> Result<Listing, TreeError> {
    if !access.shows(path) {
        return Err(TreeError::Denied(path.clone(), "read"));
    }
    let entries_max = options.entries_max.clamp(1, BrowseOptions::ENTRIES_MAX);
    let Some(mount) = path.mount() else {
        return browse_root(view, entries_max, access);
    };
    let directory = open::directory(view.mount(mount), path.beneath().as_str())
        .map_err(|errno| not_listed(view, path, errno))?;
    let mut directory = Dir::new(directory).map_err(TreeError::system("list a directory"))?;
    let is_shown = |name: &CStr| match path.entry(name.to_bytes()) {
        Some(entry) => access.shows(&entry),
        None => access.allows_reading(path),
    };
    let (names, is_truncated) = first_names(&mut directory, options.hidden, entries_max, is_shown)?;
    let at = directory
        .fd()
        .map_err(TreeError::system("list a directory"))?;
    let entries = names
        .into_iter()
        .map(|name| entry(at, name))
        .filter_map(Result::transpose);
    Ok(Listing {
        entries: entries.collect::<Result<_, _>>()?,
        is_truncated,
    })
}

fn browse_root(
    view: &SessionTrees,
    entries_max: usize,
    access: &TreeAccess,
) -> Result<Listing, TreeError> {
    let is_shown = |mount: &Mount| access.shows(&VirtualPath::of(*mount));
    let shown: Vec<Mount> = Mount::ALL.into_iter().filter(is_shown).collect();
    let mut entries = Vec::with_capacity(shown.len());
    for mount in shown.iter().copied().take(entries_max) {
        let stat = fstat(view.mount(mount)).map_err(TreeError::system("look at a directory"))?;
        entries.push(Entry::new(mount.name().to_owned(), &stat));
    }
    Ok(Listing {
        is_truncated: entries.len() < shown.len(),
        entries,
    })
}

/// The smallest names, in order, and whether there are more. The heap has the greatest of them at its top, where a
/// smaller one replaces it.
fn first_names(
    directory: &mut Dir,
    hidden: Hidden,
    entries_max: usize,
    is_shown: impl Fn(&CStr) -> bool,
) -> Result<(Vec<CString>, bool), TreeError> {
    let mut kept: BinaryHeap<CString> = BinaryHeap::with_capacity(entries_max.saturating_add(1));
    let mut is_truncated = false;
    for listed in directory {
        let listed = listed.map_err(TreeError::system("list a directory"))?;
        let name = listed.file_name();
        let is_left_out = hidden == Hidden::LeftOut && name.to_bytes().starts_with(b".");
        if is_self_or_parent(name) || is_left_out || !is_shown(name) {
            continue;
        }
        if kept.len() == entries_max {
            is_truncated = true;
            if kept
                .peek()
                .is_some_and(|greatest| greatest.as_c_str() <= name)
            {
                continue;
            }
            kept.pop();
        }
        kept.push(name.to_owned());
    }
    Ok((kept.into_sorted_vec(), is_truncated))
}

/// One entry, or none if it has vanished.
fn entry(at: BorrowedFd<'_>, name: CString) -> Result<Option<Entry>, TreeError> {
    match statat(at, &name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(Entry::new(shown(name), &stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(TreeError::system("look at a file")(errno)),
    }
}

fn shown(name: CString) -> String {
    match paths::checked(name.to_bytes()) {
        Ok(text) => text.to_owned(),
        Err(_) => paths::escaped(name.to_bytes()),
    }
}

/// Distinguishes a file from a link, pipe or device, all of which the kernel calls "not a directory".
fn not_listed(view: &SessionTrees, path: &VirtualPath, errno: Errno) -> TreeError {
    if errno == Errno::NOTDIR
        && let Some(mount) = path.mount()
        && let Ok(held) = open::hold(view.mount(mount), path.beneath().as_str())
        && let Ok(stat) = fstat(held.as_fd())
        && FileKind::of(&stat) == FileKind::Other
    {
        return TreeError::Special(path.clone());
    }
    TreeError::on(path, "open a directory")(errno)
}
