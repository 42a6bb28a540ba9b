//! Whether the volume has room for the bodies of records: code, output, and what calls were made with and returned.
//!
//! Invariant: below the floor no body is written, by whichever run, and its record says so.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::volume::Volume;

/// How long one answer of the file system is used.
const USED_FOR: Duration = Duration::from_secs(1);

/// The free space of the volume, against the floor of the settings.
#[derive(Debug)]
pub(super) struct FreeSpace {
    volume: Volume,
    floor_bytes: u64,
    last: Mutex<Option<(Instant, bool)>>,
}

impl FreeSpace {
    pub(super) fn new(volume: Volume, floor_bytes: u64) -> Self {
        Self {
            volume,
            floor_bytes,
            last: Mutex::default(),
        }
    }

    /// Whether bodies may be written now. A file system that does not answer is full when it says so. Blocks.
    pub(super) fn is_above_floor(&self) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, is_above)) = *last
            && at.elapsed() < USED_FOR
        {
            return is_above;
        }
        let free = self.volume.free_bytes();
        let is_above = free.is_ok_and(|free| free >= self.floor_bytes) || self.floor_bytes == 0;
        let was_above = last.is_none_or(|(_, was_above)| was_above);
        if was_above && !is_above {
            tracing::warn!(
                floor_bytes = self.floor_bytes,
                "the volume has less free space than code.records_min_free_mb: runs are recorded without code, output and \
                 bodies of calls"
            );
        }
        *last = Some((Instant::now(), is_above));
        is_above
    }
}
