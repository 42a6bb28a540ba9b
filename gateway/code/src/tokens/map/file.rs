//! The file of a map: `tokens` in the session's host directory. Lines are appended under its lock, and read without.
//!
//! Invariant: nothing is ever changed or taken back, so what was read once stays true. Half a line, which a killed process
//! or a full disk leaves at the end, is ended by the next one that writes, and is then a line that nobody believes.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{self, FileType, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::{self, Errno};

use super::form::Form;
use super::index::TokenIndex;
use super::{TokensError, header};
use crate::tokens::key::TokenKey;

/// The file's name.
const NAME: &str = "tokens";
/// It is the gateway's alone.
const MODE: Mode = Mode::from_raw_mode(0o600);
/// How it is opened: no link is followed.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// Longest wait for the lock. Whoever holds it reads and appends, and waits for nothing but the disk.
const LOCK_WITHIN: Duration = Duration::from_secs(10);
/// The first pause between two looks at a lock that another holds.
const PAUSE_MIN: Duration = Duration::from_micros(200);
/// The longest: pauses double until here.
const PAUSE_MAX: Duration = Duration::from_millis(16);
/// How much is read at once.
const READ_BYTES: usize = 256 * 1024;

/// The open file of a map.
#[derive(Debug)]
pub(super) struct MapFile {
    file: OwnedFd,
    form: Form,
    /// Up to where its lines were read; always behind a line's end.
    offset: u64,
}

/// The lock of the file, until it is dropped.
#[derive(Debug)]
pub(super) struct Lock(OwnedFd);

impl Drop for Lock {
    fn drop(&mut self) {
        // What is open still: only letting go of it by a call of its own ends the lock.
        let _ = fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl MapFile {
    /// Opens it, and begins it where it is not begun.
    pub(super) fn open(directory: &OwnedFd, key: Option<&TokenKey>) -> Result<Self, TokensError> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = fs::openat2(directory, NAME, flags, MODE, RESOLVE).map_err(TokensError::Open)?;
        let about = fs::fstat(&file).map_err(TokensError::Open)?;
        if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
            return Err(TokensError::NotAFile);
        }
        let mut first = first_line(&file)?;
        if first.is_none() {
            let lock = lock(&file)?;
            first = match first_line(&file)? {
                None => {
                    begin(&file, key)?;
                    first_line(&file)?
                }
                found => found,
            };
            drop(lock);
        }
        let first = first.ok_or(TokensError::Damaged)?;
        Ok(Self {
            form: header::read(&first, key)?,
            offset: bytes(first.len()) + 1,
            file,
        })
    }

    /// How its lines are written.
    pub(super) fn form(&self) -> &Form {
        &self.form
    }

    /// How much of it was read.
    pub(super) fn length(&self) -> u64 {
        self.offset
    }

    /// Takes its lock.
    pub(super) fn lock(&self) -> Result<Lock, TokensError> {
        lock(&self.file)
    }

    /// Reads what was appended since the last time. Costs one system call where nothing was.
    pub(super) fn read_appended(&mut self, index: &mut TokenIndex) -> Result<(), TokensError> {
        let length = length(&self.file)?;
        if length < self.offset {
            return Err(TokensError::Damaged);
        }
        let mut rest = Vec::new();
        let mut position = self.offset;
        while position < length {
            let from = rest.len();
            rest.resize(from + READ_BYTES, 0);
            let space = rest.get_mut(from..).unwrap_or_default();
            let count = io::retry_on_intr(|| io::pread(&self.file, &mut *space, position))
                .map_err(TokensError::Read)?;
            rest.truncate(from + count);
            if count == 0 {
                break;
            }
            position += bytes(count);
            let whole = memchr::memrchr(b'\n', &rest).map_or(0, |end| end + 1);
            self.note_lines(rest.get(..whole).unwrap_or_default(), index);
            rest.drain(..whole);
            self.offset += bytes(whole);
        }
        Ok(())
    }

    fn note_lines(&self, lines: &[u8], index: &mut TokenIndex) {
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            match self.form.read(line.strip_suffix(b"\n").unwrap_or(line)) {
                Some((number, value)) => index.note(number, value),
                None => {
                    tracing::warn!(
                        bytes = line.len(),
                        "damaged line in a session's token file skipped"
                    );
                    index.note_damage(line.len());
                }
            }
        }
    }

    /// Ends half a line that was left behind; says whether there was one. Under the lock, and with everything read.
    pub(super) fn end_half_line(&self) -> Result<bool, TokensError> {
        if length(&self.file)? <= self.offset {
            return Ok(false);
        }
        write_all(&self.file, b"\n").map_err(TokensError::Write)?;
        Ok(true)
    }

    /// Appends whole lines, and has them on the disk when it returns. Under the lock, and with everything read. Where it
    /// fails, lines that are whole stay, and nobody was told of them.
    pub(super) fn append(&self, lines: &[u8]) -> Result<(), TokensError> {
        write_all(&self.file, lines).map_err(TokensError::Write)?;
        fs::fdatasync(&self.file).map_err(TokensError::Write)
    }
}

/// The first line without its end; none where the file is empty, or a process was killed while it began it.
fn first_line(file: &OwnedFd) -> Result<Option<Vec<u8>>, TokensError> {
    let mut start = vec![0; header::BYTES_MAX];
    let count = read_at(file, &mut start, 0)?;
    start.truncate(count);
    match memchr::memchr(b'\n', &start) {
        Some(end) => {
            start.truncate(end);
            Ok(Some(start))
        }
        None if count == header::BYTES_MAX => Err(TokensError::Damaged),
        None => Ok(None),
    }
}

/// Writes the first line, in the place of half a one.
fn begin(file: &OwnedFd, key: Option<&TokenKey>) -> Result<(), TokensError> {
    fs::ftruncate(file, 0).map_err(TokensError::Write)?;
    write_all(file, header::new(key).as_bytes()).map_err(TokensError::Write)?;
    fs::fdatasync(file).map_err(TokensError::Write)
}

fn lock(file: &OwnedFd) -> Result<Lock, TokensError> {
    let started = Instant::now();
    let mut pause = PAUSE_MIN;
    loop {
        match fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(errno) => return Err(TokensError::Lock(errno)),
        }
        if started.elapsed() >= LOCK_WITHIN {
            return Err(TokensError::Busy {
                waited_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            });
        }
        thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
    match file.try_clone() {
        Ok(same) => Ok(Lock(same)),
        Err(error) => {
            let _ = fs::flock(file, FlockOperation::Unlock);
            Err(TokensError::Lock(
                Errno::from_io_error(&error).unwrap_or(Errno::MFILE),
            ))
        }
    }
}

fn length(file: &OwnedFd) -> Result<u64, TokensError> {
    let about = fs::fstat(file).map_err(TokensError::Read)?;
    Ok(u64::try_from(about.st_size).unwrap_or(0))
}

/// Fills as much of the buffer as the file has.
fn read_at(file: &OwnedFd, buffer: &mut [u8], from: u64) -> Result<usize, TokensError> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let count = io::retry_on_intr(|| io::pread(file, &mut *rest, from + bytes(filled)))
            .map_err(TokensError::Read)?;
        if count == 0 {
            break;
        }
        filled += count;
    }
    Ok(filled)
}

fn write_all(file: &OwnedFd, mut text: &[u8]) -> Result<(), Errno> {
    while !text.is_empty() {
        let count = io::retry_on_intr(|| io::write(file, text))?;
        text = text.get(count..).unwrap_or_default();
        if count == 0 {
            return Err(Errno::IO);
        }
    }
    Ok(())
}

fn bytes(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
