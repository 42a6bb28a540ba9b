//! Draining one output stream of a run.
//!
//! Invariant: whatever is written is taken, so that no program ever waits for its reader; what is kept is bounded.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::outcome::Output;

/// Taken from one stream before anything else is looked at again.
const TURN_BYTES_MAX: usize = 1024 * 1024;
/// Taken at once: a whole pipe.
const CHUNK_BYTES: usize = 64 * 1024;

/// The reading end of a pipe, and what came out of it.
#[derive(Debug)]
pub(super) struct Pump {
    /// None at the end of the stream.
    pipe: Option<File>,
    kept: Output,
    keep_bytes_max: usize,
}

impl Pump {
    /// Reads without ever waiting.
    pub(super) fn new(pipe: OwnedFd, keep_bytes_max: usize) -> io::Result<Self> {
        let flags = fcntl_getfl(&pipe)?;
        fcntl_setfl(&pipe, flags | OFlags::NONBLOCK)?;
        Ok(Self {
            pipe: Some(File::from(pipe)),
            kept: Output::default(),
            keep_bytes_max,
        })
    }

    /// The descriptor to wait on; `None` at the end of the stream.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Reads what is available, at most `TURN_BYTES_MAX`.
    pub(super) fn take(&mut self, chunk: &mut [u8; Pump::CHUNK]) {
        let mut taken = 0;
        while taken < TURN_BYTES_MAX {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(chunk) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    taken += count;
                    self.keep(chunk.get(..count).unwrap_or_default());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // A pipe has no other errors; if there were one, it would be permanent.
                Err(_) => self.pipe = None,
            }
        }
    }

    /// Whether anything was written.
    pub(super) const fn has_taken(&self) -> bool {
        self.kept.written_bytes > 0
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = self.keep_bytes_max - self.kept.bytes.len();
        self.kept
            .bytes
            .extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        self.kept.written_bytes += bytes.len() as u64;
    }

    /// Reads the rest of the pipe and closes it. There are no writers any more: one turn reads more than any pipe
    /// contains.
    pub(super) fn finish(mut self, chunk: &mut [u8; Pump::CHUNK]) -> Output {
        self.take(chunk);
        self.kept
    }

    /// Length of the buffer that both streams share.
    pub(super) const CHUNK: usize = CHUNK_BYTES;
}

#[cfg(test)]
#[path = "pump_tests.rs"]
mod tests;
