//! Opening a session's directory: without its lock where it is ready, under it where something is to be done.
//!
//! Invariant: what is done to a directory is decided from its stamp as read under the lock. The stamp is written last, so a
//! directory without one is made again.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use mooring_sandbox::SessionTrees;
use mooring_sandbox::tree::{self, CommitError, SessionDirectory, TreeError};
use mooring_session::names::ContentHash;
use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use super::decide::{Decision, decide};
use super::directory::{self, VolumeError};
use super::lock::{LockError, LockName, SessionLock};
use super::session::SessionHandle;
use super::stamp::{self, Stamp, StampError};
use super::tools::{self, MountManifest, MountedTrees, TreeOrigin};
use super::trash;
use super::{Incarnation, unix_now_ms};

/// The journal that a killed commit leaves in a session's directory.
const JOURNAL: &str = ".mooring/journal.json";
/// How often a directory is looked at again after the one before it was retired. Under the lock, once is enough.
const LOOKS_MAX: usize = 3;
/// The step that failed, in errors.
const NOT_OPENED: &str = "the session's directory could not be opened";
/// See [`NOT_OPENED`].
const NOT_TOUCHED: &str = "the session's last use could not be recorded";

/// Why a session could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SessionOpenError {
    /// Its lock was not taken.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The lock that was shown is another session's.
    #[error("the lock belongs to another session")]
    ForeignLock,
    /// The directory belongs to a later incarnation than the record that was read: read it again, and say which
    /// generation it has to outrank.
    #[error("the session was replaced by a newer generation")]
    Superseded {
        /// The directory's.
        generation: u64,
    },
    /// The file system refused a step.
    #[error(transparent)]
    File(#[from] VolumeError),
    /// The content of its directory could not be created or opened.
    #[error("the contents of the session's directory could not be opened")]
    Trees(#[source] TreeError),
    /// Its stamp could not be read.
    #[error(transparent)]
    Stamp(#[from] StampError),
    /// A commit that was killed could not be completed.
    #[error("an interrupted commit could not be completed")]
    Recover(#[source] CommitError),
    /// The directory changed although this call has its lock.
    #[error("the session's directory changed under its lock")]
    Contended,
}

/// What was found, and done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Opening {
    /// It was ready.
    Found,
    /// There was none: it was made.
    Initialised,
    /// Its session had ended: the directory was moved away, and a new one made.
    BegunAnew,
    /// Its session's record was lost, or it was used while the store was away: the session keeps its files.
    Adopted,
    /// Other tools are mounted than before.
    Remounted,
}

impl Opening {
    /// Whether the record's content hash is to be set.
    #[must_use]
    pub const fn sets_content_hash(self) -> bool {
        !matches!(self, Self::Found)
    }
}

/// A session's directory, open.
#[derive(Debug)]
pub struct OpenedSession {
    /// For runs, commits and writes.
    pub directory: SessionDirectory,
    /// For looking into it; the same trees a run sees.
    pub view: SessionTrees,
    /// The hash of the mounted content.
    pub content_hash: ContentHash,
    /// The incarnation on the disk; zero where it began while the store was away.
    pub generation: u64,
    /// What was found, and done about it.
    pub opening: Opening,
    /// Where the mounted trees came from.
    pub trees: TreeOrigin,
    /// How long the lock was held to open it; none if this call did not take it.
    pub lock_held: Option<Duration>,
}

impl OpenedSession {
    /// Notes a use: at the end of a run, and now and then while one lasts.
    ///
    /// # Errors
    /// The directory is not on the volume any more, or the file system refused.
    pub fn touch(&self) -> Result<(), VolumeError> {
        stamp::touch(self.directory.root(), unix_now_ms()).map_err(VolumeError::at(NOT_TOUCHED))
    }
}

impl SessionHandle {
    /// Opens the session's directory for this incarnation, with these tools. If it is initialized for both, no lock is
    /// taken; otherwise the lock is waited for at most `wait`, and the directory is checked again under it.
    ///
    /// A directory that was opened without the lock may be retired before something is written: runs and writes take
    /// the lock and open by [`SessionHandle::open_locked`].
    ///
    /// # Errors
    /// [`SessionOpenError`] names the step. [`SessionOpenError::Superseded`] asks for reading the record again.
    pub fn open(
        &self,
        incarnation: Incarnation,
        mounted: &MountManifest,
        wait: Duration,
    ) -> Result<OpenedSession, SessionOpenError> {
        if let Some(opened) = without_lock(self, incarnation, mounted)? {
            return Ok(opened);
        }
        let lock = self.lock(wait)?;
        let mut opened = under_lock(self, &lock, incarnation, mounted)?;
        opened.lock_held = Some(lock.held());
        Ok(opened)
    }

    /// Opens it under a lock that the caller keeps: completes what a killed commit left, and makes sure that it is this
    /// incarnation's directory that the caller is about to change.
    ///
    /// # Errors
    /// As [`SessionHandle::open`].
    pub fn open_locked(
        &self,
        lock: &SessionLock,
        incarnation: Incarnation,
        mounted: &MountManifest,
    ) -> Result<OpenedSession, SessionOpenError> {
        under_lock(self, lock, incarnation, mounted)
    }
}

/// The way of nearly every call: the stamp says that everything is in place, and no journal waits.
fn without_lock(
    handle: &SessionHandle,
    incarnation: Incarnation,
    mounted: &MountManifest,
) -> Result<Option<OpenedSession>, SessionOpenError> {
    let root = directory::existing(open_root(handle)).map_err(VolumeError::at(NOT_OPENED))?;
    let Some(root) = root else {
        return Ok(None);
    };
    let Some(stamp) = stamp::read(root.as_fd())? else {
        return Ok(None);
    };
    let now_ms = unix_now_ms();
    let is_kept = decide(&stamp, incarnation, now_ms, handle.ttl_ms) == Decision::Keep;
    if !is_kept
        || stamp != expected_stamp(handle, &stamp, incarnation, mounted)
        || has_journal(&root)?
    {
        return Ok(None);
    }
    let trees = tools::ensure(handle.shared.base.as_fd(), mounted)?;
    match stamp::touch(root.as_fd(), now_ms) {
        Ok(()) => {}
        // Retired at this moment: look again under the lock.
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(VolumeError::at(NOT_TOUCHED)(errno).into()),
    }
    let directory = SessionDirectory::open(root).map_err(SessionOpenError::Trees)?;
    build_opened_session(directory, trees, mounted, stamp.generation, Opening::Found).map(Some)
}

/// Everything else. The caller has the lock, so nothing else changes the directory.
fn under_lock(
    handle: &SessionHandle,
    lock: &SessionLock,
    incarnation: Incarnation,
    mounted: &MountManifest,
) -> Result<OpenedSession, SessionOpenError> {
    if !lock.is_of(&LockName::of(&handle.place)) {
        return Err(SessionOpenError::ForeignLock);
    }
    let mut was_retired = false;
    for _ in 0..LOOKS_MAX {
        let root = make_root(handle)
            .map_err(VolumeError::at("the session's directory could not be made"))?;
        let now_ms = unix_now_ms();
        let found = stamp::read(root.as_fd())?;
        let decision = found
            .as_ref()
            .map(|stamp| decide(stamp, incarnation, now_ms, handle.ttl_ms));
        match (&found, decision) {
            (Some(stamp), Some(Decision::Superseded)) => {
                return Err(SessionOpenError::Superseded {
                    generation: stamp.generation,
                });
            }
            (Some(stamp), Some(Decision::BeginAnew)) => {
                drop(root);
                retire(handle, stamp)?;
                was_retired = true;
            }
            _ => {
                let opening = opening(found.as_ref(), decision, mounted, was_retired);
                let before = found.clone().unwrap_or(Stamp::BLANK);
                let used_at_ms = now_ms;
                let stamp = expected_stamp(
                    handle,
                    &Stamp {
                        used_at_ms,
                        ..before
                    },
                    incarnation,
                    mounted,
                );
                let is_stamped = found.is_some_and(|found| {
                    Stamp {
                        used_at_ms,
                        ..found
                    } == stamp
                });
                return complete_directory(handle, root, &stamp, is_stamped, mounted, opening);
            }
        }
    }
    Err(SessionOpenError::Contended)
}

/// The result of the check under the lock, if the directory stays.
fn opening(
    found: Option<&Stamp>,
    decision: Option<Decision>,
    mounted: &MountManifest,
    was_retired: bool,
) -> Opening {
    match (found, decision) {
        (None, _) if was_retired => Opening::BegunAnew,
        (None, _) => Opening::Initialised,
        (Some(_), Some(Decision::Adopt)) => Opening::Adopted,
        (Some(stamp), _) if stamp.content_hash.as_ref() == Some(mounted.content_hash()) => {
            Opening::Found
        }
        (Some(_), _) => Opening::Remounted,
    }
}

/// The stamp that the opened directory must have, given the one it has.
fn expected_stamp(
    handle: &SessionHandle,
    stamp: &Stamp,
    incarnation: Incarnation,
    mounted: &MountManifest,
) -> Stamp {
    Stamp {
        generation: match incarnation {
            Incarnation::Recorded { generation, .. } => generation,
            Incarnation::StoreAway => stamp.generation,
        },
        content_hash: Some(mounted.content_hash().clone()),
        used_at_ms: stamp.used_at_ms,
        ttl_ms: Some(handle.ttl_ms),
        used_while_away: incarnation.is_away(),
    }
}

/// Makes what is missing, completes what was killed, and last stamps what has changed.
fn complete_directory(
    handle: &SessionHandle,
    root: OwnedFd,
    stamp: &Stamp,
    is_stamped: bool,
    mounted: &MountManifest,
    opening: Opening,
) -> Result<OpenedSession, SessionOpenError> {
    let base = handle.shared.base.as_fd();
    let directory = SessionDirectory::create(root).map_err(SessionOpenError::Trees)?;
    tree::recover(&directory).map_err(SessionOpenError::Recover)?;
    if opening == Opening::Adopted {
        // Turn numbers of another store cannot be compared with this one's.
        directory.forget_turn().map_err(SessionOpenError::Trees)?;
    }
    let trees = tools::ensure(base, mounted)?;
    if is_stamped {
        stamp::touch(directory.root(), stamp.used_at_ms).map_err(VolumeError::at(NOT_TOUCHED))?;
    } else {
        tools::note_use(base, mounted, stamp.used_at_ms)?;
        stamp::write(directory.root(), stamp)?;
    }
    build_opened_session(directory, trees, mounted, stamp.generation, opening)
}

fn build_opened_session(
    directory: SessionDirectory,
    trees: MountedTrees,
    mounted: &MountManifest,
    generation: u64,
    opening: Opening,
) -> Result<OpenedSession, SessionOpenError> {
    let view = SessionTrees {
        tools: trees.tools,
        skills: trees.skills,
        scratch: directory.open_scratch().map_err(SessionOpenError::Trees)?,
        results: directory.open_results().map_err(SessionOpenError::Trees)?,
    };
    Ok(OpenedSession {
        directory,
        view,
        content_hash: mounted.content_hash().clone(),
        generation,
        opening,
        trees: trees.origin,
        lock_held: None,
    })
}

fn open_root(handle: &SessionHandle) -> Result<OwnedFd, Errno> {
    let base = handle.shared.base.as_fd();
    directory::open_directory(base, handle.place.relative_path())
}

fn make_root(handle: &SessionHandle) -> Result<OwnedFd, Errno> {
    let place = &handle.place;
    let names = [
        place.server.as_str(),
        place.slug.as_str(),
        place.id.as_str(),
    ];
    directory::make_directories(handle.shared.base.as_fd(), &names)
}

fn retire(handle: &SessionHandle, stamp: &Stamp) -> Result<(), VolumeError> {
    let base = handle.shared.base.as_fd();
    trash::discard_session(base, &handle.place, stamp.generation).map_err(VolumeError::at(
        "files of an earlier session could not be moved to the trash",
    ))
}

fn has_journal(root: &OwnedFd) -> Result<bool, VolumeError> {
    let stat = directory::existing(fs::statat(root, JOURNAL, AtFlags::SYMLINK_NOFOLLOW));
    Ok(stat.map_err(VolumeError::at(NOT_OPENED))?.is_some())
}
