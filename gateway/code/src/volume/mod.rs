//! The shared volume: the directories of code sessions, found by every process of a fleet at the same path.
//!
//! ```text
//! base/<server>/<user slug>/<id>/   one session: scratch/, results/ and the host's own .mooring/
//! base/.locks/<server>/<id>         its lock; never unlinked, so that all who wait wait for one file
//! base/.tools/<hash>/               what is mounted at /tools and /skills, shared by all sessions with that hash
//! base/.trash/                      what is over, until it is deleted
//! base/.runs/<server>/              records of runs and security events
//! base/.skills/<server>/            skills
//! ```
//!
//! Invariants: a directory is served only by the incarnation that its stamp names; it is initialized, adopted, retired
//! and swept only under its lock, after a second check there; it leaves its path only by a rename into the trash. A
//! process that is killed at any moment leaves what the next one completes.
//!
//! Everything here blocks: callers run it on threads of their own.

mod area;
mod decide;
mod directory;
mod health;
mod lock;
mod open;
mod probe;
mod problem;
mod retire;
mod second_process;
mod session;
mod stamp;
mod sweep;
mod tools;
mod trash;

#[cfg(test)]
pub(crate) mod tests;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use area::{Area, AreaKind};
pub use decide::Incarnation;
pub use directory::VolumeError;
pub(crate) use directory::{errno, is_full};
pub use health::VolumeSpace;
pub(crate) use lock::FileLock;
pub use lock::{LockError, SessionLock};
pub use open::{OpenedSession, Opening, SessionOpenError};
pub use problem::VolumeProblem;
pub use retire::RetireOutcome;
pub use second_process::{SecondProcess, is_second_process, second_process};
pub use session::SessionHandle;
pub use stamp::StampError;
pub use sweep::SweepOutcome;
pub use tools::{ManifestError, MountManifest, MountedSkill, TreeOrigin};
pub use trash::TrashOutcome;

use mooring_store::unix_now_ms;

use super::place::CodePlace;

/// The options of the volume.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// The directory that all gateways of a fleet share. Made where it is missing.
    pub base_dir: PathBuf,
    /// How long a session may be idle. What was not used for twice as long is swept, even if no record names it.
    pub session_ttl: Duration,
    /// How to start the process that proves locks between processes.
    pub second_process: SecondProcess,
}

/// The shared volume, probed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Volume {
    shared: Arc<Shared>,
}

/// The state shared by all handles of one volume.
#[derive(Debug)]
struct Shared {
    base: OwnedFd,
    options: VolumeOptions,
    health: health::Cache,
}

impl Volume {
    /// Makes the base where it is missing, and proves that this file system does what sessions need: locks between two
    /// descriptions and between two processes, renames onto files, `openat2`, room for writing.
    ///
    /// # Errors
    /// Names the step that failed, the system's reason and what to do about it. Nothing is served from such a volume.
    pub fn open(options: VolumeOptions) -> Result<Self, VolumeProblem> {
        let base = probe::open_base(&options.base_dir)?;
        probe::prove(&base, &options.base_dir, &options.second_process)?;
        let room = health::measure(&base)?;
        Ok(Self {
            shared: Arc::new(Shared {
                base,
                options,
                health: health::Cache::new(room),
            }),
        })
    }

    /// The session at this place, opened or not.
    #[must_use]
    pub fn session(&self, place: &CodePlace) -> SessionHandle {
        SessionHandle::new(Arc::clone(&self.shared), place.clone())
    }

    /// Whether the volume still locks, renames and has room. An answer is used for five seconds; callers that come
    /// meanwhile wait for the new one.
    ///
    /// # Errors
    /// The step that failed, and what to do about it.
    pub fn health(&self) -> Result<VolumeSpace, VolumeProblem> {
        self.shared
            .health
            .answer(&self.shared.base, self.base_dir())
    }

    /// Bytes that the gateway's user may still write. Blocks.
    ///
    /// # Errors
    /// The file system did not answer.
    pub(crate) fn free_bytes(&self) -> std::io::Result<u64> {
        health::free_bytes(&self.shared.base)
    }

    /// The base directory, as it was configured.
    #[must_use]
    pub fn base_dir(&self) -> &Path {
        &self.shared.options.base_dir
    }
}

impl Shared {
    /// How long a session may be idle.
    fn ttl_ms(&self) -> u64 {
        directory::millis(self.options.session_ttl)
    }
}
