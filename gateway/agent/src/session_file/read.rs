//! Reads the file: first as a whole, then entry by entry.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::value::RawValue;

use super::FILE_BYTES_MAX;
use super::entry::{self, Entry, EntryClock, SkipReason, SkippedEntry};
use super::members::Members;

/// Opening a pipe would block, so a file is opened with this flag.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The entries of a session file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFileContents {
    /// The usable entries, in the order of the file, each parent once.
    pub entries: Vec<Entry>,
    /// The unusable entries, in the order of the file.
    pub skipped: Vec<SkippedEntry>,
}

impl SessionFileContents {
    /// The number of skipped entries that are valid but too old.
    #[must_use]
    pub fn expired(&self) -> usize {
        let is_expired = |skipped: &&SkippedEntry| matches!(skipped.reason, SkipReason::Expired(_));
        self.skipped.iter().filter(is_expired).count()
    }
}

/// Why nothing of a file is used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is a directory, a pipe or similar.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// It cannot be read.
    #[error("the sessions cannot be read")]
    Read(#[source] io::Error),
    /// It is too large.
    #[error("the file is larger than {FILE_BYTES_MAX} bytes")]
    TooLarge,
    /// It is empty.
    #[error("the file is empty; one without sessions holds {{}}")]
    Empty,
    /// It ends in the middle of a value.
    #[error(
        "the file is cut off: it ends in line {line}, column {column}, in the middle of a value"
    )]
    CutOff {
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
    },
    /// It is not JSON.
    #[error("the file is not JSON: {0}")]
    Syntax(String),
    /// It is JSON, but not an object.
    #[error("the file holds {0}; an object with a session in each member is expected")]
    NotAnObject(&'static str),
}

/// Reads the file at `path`, with the sessions that were used within `ttl` before `now_ms`.
///
/// # Errors
/// The file as a whole is unusable. See [`ReadError`].
pub fn read(path: &Path, now_ms: u64, ttl: Duration) -> Result<SessionFileContents, ReadError> {
    let opened = |source| ReadError::Open {
        path: path.to_owned(),
        source,
    };
    let file: File = OpenOptions::new()
        .read(true)
        .custom_flags(NONBLOCK)
        .open(path)
        .map_err(opened)?;
    if !file.metadata().map_err(ReadError::Read)?.is_file() {
        return Err(ReadError::NotAFile {
            path: path.to_owned(),
        });
    }
    read_from(file, now_ms, ttl)
}

/// Reads from any reader.
///
/// # Errors
/// See [`read`].
pub fn read_from(
    source: impl Read,
    now_ms: u64,
    ttl: Duration,
) -> Result<SessionFileContents, ReadError> {
    let mut bytes = Vec::new();
    let read = source
        .take(FILE_BYTES_MAX.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(ReadError::Read)?;
    if u64::try_from(read).is_ok_and(|read| read > FILE_BYTES_MAX) {
        return Err(ReadError::TooLarge);
    }
    parse(&bytes, now_ms, ttl)
}

/// Parses the file's bytes. Invalid UTF-8 is replaced, so that it only affects the entries that contain it.
///
/// # Errors
/// See [`read`].
pub fn parse(bytes: &[u8], now_ms: u64, ttl: Duration) -> Result<SessionFileContents, ReadError> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text);
    let behind_spaces = text.trim_start();
    if behind_spaces.is_empty() {
        return Err(ReadError::Empty);
    }
    if !behind_spaces.starts_with('{') {
        // A text that is not JSON at all gets that error.
        let _: &RawValue = serde_json::from_str(text).map_err(|error| syntax(&error))?;
        return Err(ReadError::NotAnObject(entry::kind(behind_spaces)));
    }
    let Members(members) = serde_json::from_str(text).map_err(|error| syntax(&error))?;
    Ok(classify_entries(&members, EntryClock { now_ms, ttl }))
}

fn syntax(error: &serde_json::Error) -> ReadError {
    if error.is_eof() {
        return ReadError::CutOff {
            line: error.line(),
            column: error.column(),
        };
    }
    ReadError::Syntax(error.to_string())
}

fn classify_entries(members: &[(&RawValue, &RawValue)], moment: EntryClock) -> SessionFileContents {
    let keys: Vec<Result<String, Cow<'_, str>>> =
        members.iter().map(|(key, _)| text(key)).collect();
    let last: HashMap<&str, usize> = keys
        .iter()
        .enumerate()
        .filter_map(|(at, key)| Some((key.as_deref().ok()?, at)))
        .collect();
    let mut reading = SessionFileContents::default();
    for (at, ((_, value), key)) in members.iter().zip(&keys).enumerate() {
        let taken = match key {
            Err(_) => Err(SkipReason::KeyNotText),
            Ok(key) if last.get(key.as_str()) != Some(&at) => Err(SkipReason::Repeated),
            Ok(key) => entry::parent(key).and_then(|()| entry::value(value.get(), moment)),
        };
        let key = match key {
            Ok(key) => key.clone(),
            Err(written) => written.clone().into_owned(),
        };
        match taken {
            Ok((agent_session, updated_at_ms)) => reading.entries.push(Entry {
                parent: key,
                agent_session,
                updated_at_ms,
            }),
            Err(reason) => reading.skipped.push(SkippedEntry { key, reason }),
        }
    }
    reading
}

/// The content of a key; its text as written if it is not Unicode.
fn text<'a>(key: &'a RawValue) -> Result<String, Cow<'a, str>> {
    serde_json::from_str(key.get()).map_err(|_| Cow::Borrowed(key.get()))
}
