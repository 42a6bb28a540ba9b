//! Whether the volume still works, for readyz: asked seldom, answered from memory in between.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs;

use super::probe;
use super::problem::VolumeProblem;

/// How long an answer holds.
const HOLDS: Duration = Duration::from_secs(5);
/// Fewest bytes that must be free: room for a few writes of the largest default file.
const FREE_BYTES_MIN: u64 = 64 * 1024 * 1024;
/// Fewest inodes that must be free.
const FREE_INODES_MIN: u64 = 1_000;

/// Free space on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeSpace {
    /// Bytes that the gateway's user may still write.
    pub free_bytes: u64,
    /// Inodes that it may still make; none where the file system does not count them.
    pub free_inodes: Option<u64>,
}

/// The last answer, and when it was given.
#[derive(Debug)]
pub(super) struct Cache {
    last: Mutex<(Instant, Result<VolumeSpace, VolumeProblem>)>,
}

impl Cache {
    pub(super) fn new(room: VolumeSpace) -> Self {
        Self {
            last: Mutex::new((Instant::now(), Ok(room))),
        }
    }

    /// The last answer, or a new one where that is too old.
    pub(super) fn answer(&self, base: &OwnedFd, path: &Path) -> Result<VolumeSpace, VolumeProblem> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0.elapsed() >= HOLDS {
            let answer = probe::is_in_place(base, path)
                .and_then(|()| probe::prove_here(base))
                .and_then(|()| measure(base));
            *last = (Instant::now(), answer);
        }
        last.1.clone()
    }
}

/// Bytes that the gateway's user may still write.
pub(super) fn free_bytes(base: &OwnedFd) -> io::Result<u64> {
    let stat = fs::fstatvfs(base)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Asks how much room there is, and refuses too little.
pub(super) fn measure(base: &OwnedFd) -> Result<VolumeSpace, VolumeProblem> {
    let stat = fs::fstatvfs(base).map_err(VolumeProblem::Measure)?;
    let room = VolumeSpace {
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        free_inodes: (stat.f_files > 0).then_some(stat.f_favail),
    };
    if room.free_bytes < FREE_BYTES_MIN {
        return Err(VolumeProblem::Space {
            free: room.free_bytes,
            least: FREE_BYTES_MIN,
        });
    }
    match room.free_inodes {
        Some(free) if free < FREE_INODES_MIN => Err(VolumeProblem::Inodes {
            free,
            least: FREE_INODES_MIN,
        }),
        _ => Ok(room),
    }
}
