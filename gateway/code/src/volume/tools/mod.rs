//! The trees at `/tools` and `/skills`: content-addressed, and shared by all sessions with the same tools.
//!
//! Invariant: a tree is made in a directory of its own and renamed into place, so that half of one is never visible; of
//! two that are made at once, one stays. A tree in place is never changed.

mod manifest;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mooring_sandbox::tree;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

pub use manifest::{ManifestError, MountManifest, MountedSkill};

use super::directory::{self, DIRECTORY_MODE, TOOLS, VolumeError};
use super::unix_now_ms;
use mooring_store::rfc3339;
use mooring_stubs::{StubFile, ToolTree};

/// The prefix of the names of directories in which trees are made.
pub(super) const NEW_PREFIX: &str = ".new-";
/// The tree that is mounted at `/tools`.
const TOOLS_TREE: &str = "tools";
/// The tree that is mounted at `/skills`.
const SKILLS_TREE: &str = "skills";
/// The mounted trees are read-only.
const MOUNTED_DIRECTORY: Mode = Mode::from_raw_mode(0o555);
/// See [`MOUNTED_DIRECTORY`].
const MOUNTED_FILE: Mode = Mode::from_raw_mode(0o444);
/// How often a tree is looked for again that was swept in between.
const LOOKS_MAX: usize = 3;

/// Where the trees of tools and skills came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeOrigin {
    /// They existed.
    Found,
    /// This call made them.
    Made,
}

/// The two trees, open.
#[derive(Debug)]
pub(super) struct MountedTrees {
    pub(super) tools: OwnedFd,
    pub(super) skills: OwnedFd,
    pub(super) origin: TreeOrigin,
}

/// Opens the trees of what is mounted, and makes them if they do not exist.
pub(super) fn ensure(
    base: BorrowedFd<'_>,
    mounted: &MountManifest,
) -> Result<MountedTrees, VolumeError> {
    if let Some(trees) = find(base, mounted, TreeOrigin::Found)? {
        return Ok(trees);
    }
    for _ in 0..LOOKS_MAX {
        let origin = make(base, mounted)?;
        if let Some(trees) = find(base, mounted, origin)? {
            return Ok(trees);
        }
    }
    Err(VolumeError::at("the tree of tools could not be opened")(
        Errno::NOENT,
    ))
}

/// Notes that the trees are in use, before a stamp does: so they are not swept meanwhile.
pub(super) fn note_use(
    base: BorrowedFd<'_>,
    mounted: &MountManifest,
    now_ms: u64,
) -> Result<(), VolumeError> {
    let path = format!("{TOOLS}/{}", mounted.content_hash());
    match directory::set_modified(base, &path, now_ms) {
        // Swept at this moment. Calls that have it open keep it for a while; the next to open it makes it again.
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(VolumeError::at(
            "the use of the tree of tools could not be noted",
        )(errno)),
    }
}

fn find(
    base: BorrowedFd<'_>,
    mounted: &MountManifest,
    origin: TreeOrigin,
) -> Result<Option<MountedTrees>, VolumeError> {
    let open = |tree: &str| {
        directory::open_directory(base, format!("{TOOLS}/{}/{tree}", mounted.content_hash()))
    };
    match (open(TOOLS_TREE), open(SKILLS_TREE)) {
        (Ok(tools), Ok(skills)) => Ok(Some(MountedTrees {
            tools,
            skills,
            origin,
        })),
        (Err(Errno::NOENT), _) | (_, Err(Errno::NOENT)) => Ok(None),
        (Err(errno), _) | (_, Err(errno)) => Err(VolumeError::at(
            "the tree of tools could not be opened",
        )(errno)),
    }
}

fn make(base: BorrowedFd<'_>, mounted: &MountManifest) -> Result<TreeOrigin, VolumeError> {
    // It was made at the start, and may have been removed since then.
    let all = directory::make_directories(base, &[TOOLS]).map_err(VolumeError::at(
        "a directory of the tree of tools could not be made",
    ))?;
    let name = directory::fresh_name(NEW_PREFIX);
    let made = fill(all.as_fd(), &name, mounted).and_then(|()| {
        match fs::renameat(&all, name.as_str(), &all, mounted.content_hash().as_str()) {
            Ok(()) => Ok(TreeOrigin::Made),
            // Another call was faster: its tree is the same, and stays.
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(TreeOrigin::Found),
            Err(errno) => Err(VolumeError::at(
                "the tree of tools could not be put into place",
            )(errno)),
        }
    });
    if !matches!(made, Ok(TreeOrigin::Made)) {
        let removed = tree::remove(all.as_fd(), name.as_ref());
        if made.is_ok() {
            removed.map_err(VolumeError::at(
                "a redundant tree of tools could not be removed",
            ))?;
        }
    }
    made
}

fn fill(all: BorrowedFd<'_>, name: &str, mounted: &MountManifest) -> Result<(), VolumeError> {
    let root = make_directory(all, name)?;
    let tools = mooring_stubs::tools(&ToolTree {
        server: mounted.server().as_str(),
        language: mounted.language,
        format: mounted.format,
        tools: &mounted.tools,
        generated_at: &rfc3339(unix_now_ms()),
    });
    let tools = tools.map_err(VolumeError::at(
        "the content of the tree of tools could not be made",
    ))?;
    let skills = mounted.skills.iter();
    let skills: Vec<_> = skills.map(|skill| (&*skill.name, &*skill.source)).collect();
    let skills = mooring_stubs::skills(&skills).map_err(VolumeError::at(
        "the content of the tree of tools could not be made",
    ))?;
    for (tree, files) in [(TOOLS_TREE, &tools), (SKILLS_TREE, &skills)] {
        let tree = make_directory(root.as_fd(), tree)?;
        fill_tree(tree.as_fd(), files)?;
    }
    Ok(())
}

/// Writes the files of one tree, directory by directory, so that few are open at once.
fn fill_tree(tree: BorrowedFd<'_>, files: &[StubFile]) -> Result<(), VolumeError> {
    let mut by_directory: BTreeMap<Option<&str>, Vec<(&str, &str)>> = BTreeMap::new();
    for file in files {
        let (directory, name) = match file.path.split_once('/') {
            Some((directory, name)) => (Some(directory), name),
            None => (None, file.path.as_str()),
        };
        let beside = by_directory.entry(directory).or_default();
        beside.push((name, &file.text));
    }
    for (directory, files) in by_directory {
        let made = directory
            .map(|name| make_directory(tree, name))
            .transpose()?;
        let directory = made.as_ref().map_or(tree, AsFd::as_fd);
        for (name, text) in files {
            write(directory, name, text).map_err(VolumeError::at(
                "a file of the tree of tools could not be written",
            ))?;
        }
        if let Some(made) = &made {
            fs::fchmod(made, MOUNTED_DIRECTORY).map_err(VolumeError::at(
                "a directory of the tree of tools could not be made",
            ))?;
        }
    }
    fs::fchmod(tree, MOUNTED_DIRECTORY).map_err(VolumeError::at(
        "a directory of the tree of tools could not be made",
    ))
}

fn make_directory(parent: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, VolumeError> {
    fs::mkdirat(parent, name, DIRECTORY_MODE)
        .and_then(|()| directory::open_directory(parent, name))
        .map_err(VolumeError::at(
            "a directory of the tree of tools could not be made",
        ))
}

fn write(directory: BorrowedFd<'_>, name: &str, text: &str) -> Result<(), Errno> {
    let made = directory::write_file(directory, name, OFlags::EXCL, text.as_bytes())?;
    fs::fchmod(&made, MOUNTED_FILE)
}
