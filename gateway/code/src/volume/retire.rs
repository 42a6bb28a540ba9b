//! Retiring what the session of a tombstone left: the reaper's part of the volume.
//!
//! Invariant: nothing in use is retired, because it is done under the session's lock and without waiting for it; and
//! nothing that a later incarnation has taken over, because the stamp is looked at there.

use std::os::fd::AsFd;
use std::time::Duration;

use super::directory::VolumeError;
use super::lock::{self, LockError, LockName};
use super::open::SessionOpenError;
use super::{Volume, directory, stamp, trash, unix_now_ms};
use crate::place::CodePlace;

/// The outcome of retiring a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetireOutcome {
    /// It is in the trash.
    Moved,
    /// It is locked, or was used while the store was away: look again later.
    InUse,
    /// It belongs to a later incarnation: nothing of this one is left.
    TakenOver,
    /// There is none.
    Absent,
}

impl Volume {
    /// Moves the directory of a session that is over into the trash, where it belongs to `generation` or an earlier one.
    ///
    /// # Errors
    /// Names the step; the directory is where it was.
    pub fn retire(
        &self,
        place: &CodePlace,
        generation: u64,
    ) -> Result<RetireOutcome, SessionOpenError> {
        let base = self.shared.base.as_fd();
        let _lock = match lock::take(base, LockName::of(place), Duration::ZERO) {
            Ok(lock) => lock,
            Err(LockError::Busy { .. }) => return Ok(RetireOutcome::InUse),
            Err(error) => return Err(error.into()),
        };
        let root = directory::open_directory(base, place.relative_path());
        let root = directory::existing(root).map_err(VolumeError::at(
            "the directory of an ended session could not be opened",
        ))?;
        let Some(root) = root else {
            return Ok(RetireOutcome::Absent);
        };
        // One without a stamp was never served: the process that was making it was killed.
        if let Some(stamp) = stamp::read(root.as_fd())? {
            if stamp.generation > generation {
                return Ok(RetireOutcome::TakenOver);
            }
            let idle_ms = unix_now_ms().saturating_sub(stamp.used_at_ms);
            let is_recent = idle_ms < stamp.ttl_ms.unwrap_or(self.shared.ttl_ms());
            if is_recent && (stamp.used_while_away || stamp.is_unread()) {
                return Ok(RetireOutcome::InUse);
            }
        }
        trash::discard_session(base, place, generation).map_err(VolumeError::at(
            "the directory of an ended session could not be moved into the trash",
        ))?;
        // What is above it goes too where nothing else is in it; what does not go now, the sweep finds.
        let path = place.relative_path();
        for above in path.ancestors().skip(1).take(2) {
            let _ = directory::remove_empty(base, above);
        }
        Ok(RetireOutcome::Moved)
    }
}
