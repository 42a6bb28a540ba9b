//! The file of a map: `tokens` in the session's host directory. Lines are appended under its lock, and read without.
//!
//! Invariant: nothing is ever changed or taken back, so what was read once stays true. Half a line, which a killed process
//! or a full disk leaves at the end, is ended by the next process that writes, and is then skipped.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use mooring_session::time::Millis;
use rustix::fs::{self, Mode, OFlags, ResolveFlags};

use super::error::TokensError;
use super::form::Form;
use super::header;
use super::index::TokenIndex;
use crate::tokens::key::TokenKey;
use crate::volume::{FileLock, errno};

/// The file's name.
const NAME: &str = "tokens";
/// It is the gateway's alone.
const MODE: Mode = Mode::from_raw_mode(0o600);
/// How it is opened: no link is followed.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// Longest wait for the lock. Its holder reads and appends, and waits for nothing but the disk.
const LOCK_WITHIN: Duration = Duration::from_secs(10);
/// How much is read at once.
const READ_BYTES: usize = 256 * 1024;

/// The open file of a map.
#[derive(Debug)]
pub(super) struct MapFile {
    file: File,
    form: Form,
    /// Up to where its lines were read; always behind a line's end.
    offset: u64,
}

impl MapFile {
    /// Opens it, and begins it where it is not begun.
    pub(super) fn open(directory: &OwnedFd, key: Option<&TokenKey>) -> Result<Self, TokensError> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = fs::openat2(directory, NAME, flags, MODE, RESOLVE).map_err(TokensError::Open)?;
        let file = File::from(file);
        let about = file
            .metadata()
            .map_err(|error| TokensError::Open(errno(&error)))?;
        if !about.is_file() {
            return Err(TokensError::NotAFile);
        }
        let mut first = first_line(&file)?;
        if first.is_none() {
            let _lock = lock(&file)?;
            first = first_line(&file)?;
            if first.is_none() {
                // In the place of half a line.
                file.set_len(0).map_err(not_written)?;
                append(&file, header::new(key).as_bytes())?;
                first = first_line(&file)?;
            }
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
    pub(super) fn lock(&self) -> Result<FileLock, TokensError> {
        lock(&self.file)
    }

    /// Reads what was appended since the last time. Costs one system call where nothing was.
    pub(super) fn read_appended(&mut self, index: &mut TokenIndex) -> Result<(), TokensError> {
        let length = length(&self.file)?;
        if length < self.offset {
            return Err(TokensError::Damaged);
        }
        if length == self.offset {
            return Ok(());
        }
        let mut reader = BufReader::with_capacity(READ_BYTES, &self.file);
        let start = SeekFrom::Start(self.offset);
        reader.seek(start).map_err(not_read)?;
        let mut line = Vec::new();
        loop {
            line.clear();
            let count = reader.read_until(b'\n', &mut line).map_err(not_read)?;
            let Some(whole) = line.strip_suffix(b"\n") else {
                return Ok(());
            };
            self.offset += bytes(count);
            match self.form.read(whole) {
                Some((number, value)) => index.note(number, value),
                None => {
                    tracing::warn!(
                        bytes = count,
                        "damaged line in a session's token file skipped"
                    );
                    index.note_damage(count);
                }
            }
        }
    }

    /// Ends half a line that was left behind; says whether there was one. Under the lock, and with everything read.
    pub(super) fn end_half_line(&self) -> Result<bool, TokensError> {
        if length(&self.file)? <= self.offset {
            return Ok(false);
        }
        (&self.file).write_all(b"\n").map_err(not_written)?;
        Ok(true)
    }

    /// Appends whole lines, and has them on the disk when it returns. Under the lock, and with everything read. If it
    /// fails, lines that are whole stay, and no caller was given their tokens.
    pub(super) fn append(&self, lines: &[u8]) -> Result<(), TokensError> {
        append(&self.file, lines)
    }
}

/// The first line without its end; none where the file is empty, or a process was killed while it began it.
fn first_line(mut file: &File) -> Result<Option<Vec<u8>>, TokensError> {
    let mut start = Vec::new();
    file.rewind().map_err(not_read)?;
    let most = bytes(header::BYTES_MAX);
    (file.take(most).read_to_end(&mut start)).map_err(not_read)?;
    match memchr::memchr(b'\n', &start) {
        Some(end) => {
            start.truncate(end);
            Ok(Some(start))
        }
        None if start.len() == header::BYTES_MAX => Err(TokensError::Damaged),
        None => Ok(None),
    }
}

fn append(mut file: &File, lines: &[u8]) -> Result<(), TokensError> {
    file.write_all(lines).map_err(not_written)?;
    file.sync_data().map_err(not_written)
}

fn lock(file: &File) -> Result<FileLock, TokensError> {
    let started = Instant::now();
    let same =
        (file.as_fd().try_clone_to_owned()).map_err(|error| TokensError::Lock(errno(&error)))?;
    let locked = FileLock::take(same, LOCK_WITHIN).map_err(TokensError::Lock)?;
    locked.ok_or_else(|| TokensError::Busy {
        waited_ms: Millis::from(started.elapsed()).get(),
    })
}

fn length(file: &File) -> Result<u64, TokensError> {
    Ok(file.metadata().map_err(not_read)?.len())
}

fn not_read(error: std::io::Error) -> TokensError {
    TokensError::Read(errno(&error))
}

fn not_written(error: std::io::Error) -> TokensError {
    TokensError::Write(errno(&error))
}

fn bytes(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
