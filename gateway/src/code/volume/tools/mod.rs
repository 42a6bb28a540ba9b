//! What is mounted at `/tools` and `/skills`: content-addressed trees that all sessions with the same tools share.
//!
//! Invariant: a tree is made in a directory of its own and renamed into place, so that nobody ever sees half of one; of
//! two that are made at once, one stays. A tree in place is never changed.

mod content;
mod moment;
mod mounted;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mooring_sandbox::tree;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

pub use mounted::{Mounted, MountedError, MountedSkill, MountedTool};

use super::directory::{self, DIRECTORY_MODE, TOOLS};
use super::open::TreeOrigin;
use super::{stamp, unix_now_ms};
use content::File;

/// What the names of directories begin with in which trees are made.
pub(super) const NEW_PREFIX: &str = ".new-";
/// The tree that is mounted at `/tools`.
const TOOLS_TREE: &str = "tools";
/// The tree that is mounted at `/skills`.
const SKILLS_TREE: &str = "skills";
/// Nobody writes to what is mounted.
const MOUNTED_DIRECTORY: Mode = Mode::from_raw_mode(0o555);
/// See [`MOUNTED_DIRECTORY`].
const MOUNTED_FILE: Mode = Mode::from_raw_mode(0o444);
/// How often a tree is looked for again that was there, and was swept the moment after.
const LOOKS_MAX: usize = 3;

/// Why the trees could not be mounted.
#[derive(Debug, thiserror::Error)]
pub enum ToolsError {
    /// A tree that is there could not be opened.
    #[error("the tree of tools could not be opened: {0}")]
    Open(Errno),
    /// The content could not be put into words.
    #[error("the content of the tree of tools could not be made")]
    Content(#[source] serde_json::Error),
    /// A directory of it could not be made.
    #[error("a directory of the tree of tools could not be made: {0}")]
    MakeDirectory(Errno),
    /// A file of it could not be written.
    #[error("a file of the tree of tools could not be written: {0}")]
    WriteFile(Errno),
    /// It could not be put into place.
    #[error("the tree of tools could not be put into place: {0}")]
    Place(Errno),
    /// What was made in vain could not be removed.
    #[error("a tree of tools that somebody else had made could not be removed")]
    Remove(#[source] std::io::Error),
    /// Its use could not be noted.
    #[error("the use of the tree of tools could not be noted: {0}")]
    Touch(Errno),
}

/// The two trees, open.
#[derive(Debug)]
pub(super) struct MountedTrees {
    pub(super) tools: OwnedFd,
    pub(super) skills: OwnedFd,
    pub(super) origin: TreeOrigin,
}

/// Opens the trees of what is mounted, and makes them where nobody has.
pub(super) fn ensure(base: BorrowedFd<'_>, mounted: &Mounted) -> Result<MountedTrees, ToolsError> {
    if let Some(trees) = find(base, mounted, TreeOrigin::Found)? {
        return Ok(trees);
    }
    for _ in 0..LOOKS_MAX {
        let origin = make(base, mounted)?;
        if let Some(trees) = find(base, mounted, origin)? {
            return Ok(trees);
        }
    }
    Err(ToolsError::Open(Errno::NOENT))
}

/// Notes that the trees are in use, before a stamp does: so they are not swept meanwhile.
pub(super) fn note_use(
    base: BorrowedFd<'_>,
    mounted: &Mounted,
    now_ms: u64,
) -> Result<(), ToolsError> {
    let path = format!("{TOOLS}/{}", mounted.content_hash());
    match directory::set_modified(base, &path, now_ms) {
        // Swept at this moment. Whoever has it open keeps it for a while, and the next to open it makes it anew.
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(ToolsError::Touch(errno)),
    }
}

fn find(
    base: BorrowedFd<'_>,
    mounted: &Mounted,
    origin: TreeOrigin,
) -> Result<Option<MountedTrees>, ToolsError> {
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
        (Err(errno), _) | (_, Err(errno)) => Err(ToolsError::Open(errno)),
    }
}

fn make(base: BorrowedFd<'_>, mounted: &Mounted) -> Result<TreeOrigin, ToolsError> {
    // It is there since the start, unless somebody has cleaned up since then.
    let all = directory::make_directories(base, &[TOOLS]).map_err(ToolsError::MakeDirectory)?;
    let name = directory::fresh_name(NEW_PREFIX);
    let made = fill(all.as_fd(), &name, mounted).and_then(|()| {
        match fs::renameat(&all, name.as_str(), &all, mounted.content_hash().as_str()) {
            Ok(()) => Ok(TreeOrigin::Made),
            // Somebody else was faster: theirs is the same, and stays.
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(TreeOrigin::Found),
            Err(errno) => Err(ToolsError::Place(errno)),
        }
    });
    if !matches!(made, Ok(TreeOrigin::Made)) {
        let removed = tree::remove(all.as_fd(), name.as_ref());
        if made.is_ok() {
            removed.map_err(ToolsError::Remove)?;
        }
    }
    made
}

fn fill(all: BorrowedFd<'_>, name: &str, mounted: &Mounted) -> Result<(), ToolsError> {
    let make = |parent: BorrowedFd<'_>, name: &str| {
        fs::mkdirat(parent, name, DIRECTORY_MODE)
            .and_then(|()| directory::open_directory(parent, name))
            .map_err(ToolsError::MakeDirectory)
    };
    let root = make(all, name)?;
    let (tools, skills) = (
        make(root.as_fd(), TOOLS_TREE)?,
        make(root.as_fd(), SKILLS_TREE)?,
    );
    let files = content::tools(mounted, unix_now_ms()).map_err(ToolsError::Content)?;
    for file in &files {
        write(tools.as_fd(), file).map_err(ToolsError::WriteFile)?;
    }
    for file in &content::skills(mounted) {
        write(skills.as_fd(), file).map_err(ToolsError::WriteFile)?;
    }
    for tree in [&tools, &skills] {
        fs::fchmod(tree, MOUNTED_DIRECTORY).map_err(ToolsError::MakeDirectory)?;
    }
    Ok(())
}

fn write(tree: BorrowedFd<'_>, file: &File) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let made = directory::open(tree, &file.name, flags, directory::FILE_MODE)?;
    stamp::write_all(made.as_fd(), file.text.as_bytes())?;
    fs::fchmod(&made, MOUNTED_FILE)
}
