//! Copying one file into a tree of the host's.
//!
//! Invariant: the copy is a new inode that holds the bytes of the original and nothing else of it: not its owner, its
//! extended attributes, its access lists, nor its set-user-id bits. Of its mode only the owner's execute bit is kept,
//! and the time of its last change. At most as many bytes are copied as the caller saw the file to have, and holes
//! stay holes.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::{self, Errno, Result};
use rustix::path::Arg;

/// The mode of directories that are kept.
pub(super) const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);

/// Bytes copied at a time.
const CHUNK_BYTES: usize = 256 * 1024;

/// A file shorter than this is copied in one piece, holes or not.
const SMALL_BYTES: u64 = 64 * 1024;

/// Copies files, one after the other, through one buffer.
#[derive(Debug)]
pub(super) struct Copier {
    buffer: Vec<u8>,
    kernel: KernelCopy,
}

/// Whether the kernel can copy between the two file systems, sharing blocks where they support that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KernelCopy {
    Untried,
    Impossible,
}

impl Copier {
    pub(super) fn new() -> Self {
        Self {
            buffer: Vec::new(),
            kernel: KernelCopy::Untried,
        }
    }

    /// Copies a regular file, which is open for reading and was inspected, to a new name.
    pub(super) fn copy<P: Arg>(
        &mut self,
        source: &OwnedFd,
        stat: &Stat,
        to: impl AsFd,
        name: P,
    ) -> Result<()> {
        let copy = create(to, name)?;
        let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
        if size_bytes < SMALL_BYTES {
            self.copy_segment(source, &copy, 0, size_bytes)?;
        } else {
            self.copy_data(source, &copy, size_bytes)?;
            // Setting the length creates a hole at the end.
            fs::ftruncate(&copy, size_bytes)?;
        }
        fs::futimens(&copy, &modified_like(stat))?;
        fs::fchmod(&copy, kept_mode(stat))
    }

    /// Copies the data segments of a file.
    fn copy_data(&mut self, source: &OwnedFd, copy: &OwnedFd, size_bytes: u64) -> Result<()> {
        let mut offset = 0;
        while offset < size_bytes {
            let start = match fs::seek(source, SeekFrom::Data(offset)) {
                Ok(start) if start < size_bytes => start,
                Ok(_) | Err(Errno::NXIO) => return Ok(()),
                // A file system without holes has data everywhere.
                Err(Errno::INVAL | Errno::OPNOTSUPP) => offset,
                Err(errno) => return Err(errno),
            };
            let end = match fs::seek(source, SeekFrom::Hole(start)) {
                Ok(end) => end.min(size_bytes),
                Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NXIO) => size_bytes,
                Err(errno) => return Err(errno),
            };
            self.copy_segment(source, copy, start, end)?;
            offset = end.max(start.saturating_add(1));
        }
        Ok(())
    }

    /// Copies the bytes from `start` to `end`, or to the end of the file if that comes first.
    fn copy_segment(
        &mut self,
        source: &OwnedFd,
        copy: &OwnedFd,
        start: u64,
        end: u64,
    ) -> Result<()> {
        let mut offset = start;
        while offset < end
            && self.kernel == KernelCopy::Untried
            && end.saturating_sub(start) >= SMALL_BYTES
        {
            let (mut from, mut to) = (offset, offset);
            let length = usize::try_from(end - offset).unwrap_or(usize::MAX);
            match fs::copy_file_range(source, Some(&mut from), copy, Some(&mut to), length) {
                Ok(0) => return Ok(()),
                Ok(copied) => offset = offset.saturating_add(copied as u64),
                Err(Errno::INTR) => {}
                Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => {
                    self.kernel = KernelCopy::Impossible;
                }
                Err(errno) => return Err(errno),
            }
        }
        self.buffer.resize(CHUNK_BYTES, 0);
        while offset < end {
            let length = usize::try_from(end - offset)
                .unwrap_or(CHUNK_BYTES)
                .min(CHUNK_BYTES);
            let Some(chunk) = self.buffer.get_mut(..length) else {
                return Err(Errno::INVAL);
            };
            let read = match io::pread(source, chunk, offset) {
                Ok(0) => return Ok(()),
                Err(Errno::INTR) => continue,
                other => other?,
            };
            write_all_at(copy, self.buffer.get(..read).unwrap_or_default(), offset)?;
            offset = offset.saturating_add(read as u64);
        }
        Ok(())
    }
}

/// Creates an empty file that only the owner can open for now.
pub(super) fn create<P: Arg>(at: impl AsFd, name: P) -> Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(at, name, flags, Mode::RUSR | Mode::WUSR)
}

/// Writes all of `bytes`.
pub(super) fn write_all_at(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<()> {
    while !bytes.is_empty() {
        match io::pwrite(file, bytes, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                bytes = bytes.get(written..).unwrap_or_default();
                offset = offset.saturating_add(written as u64);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The part of a file's mode that is kept: 0755 if its owner may execute it, else 0644.
pub(super) fn kept_mode(stat: &Stat) -> Mode {
    let is_executable = Mode::from_raw_mode(stat.st_mode).contains(Mode::XUSR);
    Mode::from_raw_mode(if is_executable { 0o755 } else { 0o644 })
}

fn modified_like(stat: &Stat) -> Timestamps {
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: stat.st_mtime,
            tv_nsec: nanoseconds,
        },
    }
}
