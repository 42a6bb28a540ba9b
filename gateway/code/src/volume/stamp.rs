//! The stamp of a session's directory: which incarnation it belongs to, and what was mounted when it was last opened.
//!
//! Invariant: a stamp is replaced in one step, under the session's lock, and last: a directory with a stamp is whole.
//! The time of the last use is the modification time of its file, so that recording a use is cheap.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};

use mooring_session::names::ContentHash;
use rustix::fs::{self, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::directory::{self, VolumeError};

/// The host's own directory within a session's.
const HOST: &str = ".mooring";
/// The stamp's file, within it.
const NAME: &str = "stamp.json";
/// Where the next stamp is written. One process writes at a time, and overwrites what a killed one left.
const NEXT: &str = "stamp.json.tmp";
/// The stamp's path within the session's directory.
const PATH: &str = ".mooring/stamp.json";
/// The newest version this gateway reads; it is the one it writes.
const VERSION: u32 = 1;
/// Longest stamp that is read, in bytes. One written here has less than 200.
const BYTES_MAX: u64 = 4_096;

/// Why a stamp could not be read.
#[derive(Debug, thiserror::Error)]
pub enum StampError {
    /// It was written by a later version of the gateway.
    #[error("the session's stamp has version {0}, which is newer than this gateway reads")]
    Newer(u32),
    /// The file system refused.
    #[error(transparent)]
    File(#[from] VolumeError),
}

/// The stamp in a session's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The incarnation; zero where the session began while the store was away, or where the stamp cannot be read.
    pub(super) generation: u64,
    /// The content that was mounted when it was last opened; none if the stamp cannot be read.
    pub(super) content_hash: Option<ContentHash>,
    /// The last use, in milliseconds since 1970.
    pub(super) used_at_ms: u64,
    /// How long the session may be idle; none where the stamp cannot be read.
    pub(super) ttl_ms: Option<u64>,
    /// Whether it was used after the store was last reachable.
    pub(super) used_while_away: bool,
}

impl Stamp {
    /// That of a directory that was just made.
    pub(super) const BLANK: Self = Self {
        generation: 0,
        content_hash: None,
        used_at_ms: 0,
        ttl_ms: None,
        used_while_away: false,
    };

    /// Whether the stamp is unreadable, for instance after a power failure.
    pub(super) const fn is_unread(&self) -> bool {
        self.content_hash.is_none()
    }
}

/// The stamp as it is stored.
#[derive(Serialize, Deserialize)]
struct StoredStamp {
    version: u32,
    #[serde(rename = "gen")]
    generation: u64,
    content_hash: String,
    used_at_ms: u64,
    ttl_ms: u64,
    used_while_away: bool,
}

/// The field that every version of a stamp has.
#[derive(Deserialize)]
struct StampVersion {
    version: u32,
}

/// Reads the stamp of a session's directory; none where it has none.
pub(super) fn read(session: BorrowedFd<'_>) -> Result<Option<Stamp>, StampError> {
    let unread = "the session's stamp could not be read";
    let read = read_file(session).map_err(VolumeError::at(unread))?;
    read.map(|(bytes, modified_at_ms)| parse(&bytes, modified_at_ms))
        .transpose()
}

/// The bytes of a stamp, and when it was modified.
fn read_file(session: BorrowedFd<'_>) -> io::Result<Option<(Vec<u8>, u64)>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let opened = directory::open(session, PATH, flags, fs::Mode::empty());
    let Some(file) = directory::existing(opened)? else {
        return Ok(None);
    };
    let modified_at_ms = directory::modified_ms(&fs::fstat(&file)?);
    let mut bytes = Vec::new();
    File::from(file).take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some((bytes, modified_at_ms)))
}

/// A stamp that does not parse still gives the time of the directory's last use.
fn parse(bytes: &[u8], modified_at_ms: u64) -> Result<Stamp, StampError> {
    if let Ok(StampVersion { version }) = serde_json::from_slice(bytes)
        && version > VERSION
    {
        return Err(StampError::Newer(version));
    }
    let stored: Option<StoredStamp> = serde_json::from_slice(bytes).ok();
    let read = stored.and_then(|stored| {
        Some(Stamp {
            generation: stored.generation,
            content_hash: Some(ContentHash::parse(stored.content_hash.as_bytes()).ok()?),
            used_at_ms: stored.used_at_ms.max(modified_at_ms),
            ttl_ms: Some(stored.ttl_ms),
            used_while_away: stored.used_while_away,
        })
    });
    Ok(read.unwrap_or(Stamp {
        used_at_ms: modified_at_ms,
        ..Stamp::BLANK
    }))
}

/// Replaces the stamp. The caller holds the session's lock.
///
/// Nothing is synced to disk: an empty stamp after a power failure counts as unreadable, which the rule for directories
/// handles.
pub(super) fn write(session: BorrowedFd<'_>, stamp: &Stamp) -> Result<(), VolumeError> {
    let hash = stamp.content_hash.as_ref().map(ContentHash::as_str);
    let stored = StoredStamp {
        version: VERSION,
        generation: stamp.generation,
        content_hash: hash.unwrap_or_default().to_owned(),
        used_at_ms: stamp.used_at_ms,
        ttl_ms: stamp.ttl_ms.unwrap_or_default(),
        used_while_away: stamp.used_while_away,
    };
    let write = || -> io::Result<()> {
        let bytes = serde_json::to_vec(&stored)?;
        let host = directory::open_directory(session, HOST)?;
        directory::write_file(host.as_fd(), NEXT, OFlags::TRUNC, &bytes)?;
        directory::set_modified(host.as_fd(), NEXT, stamp.used_at_ms)?;
        Ok(fs::renameat(&host, NEXT, &host, NAME)?)
    };
    write().map_err(VolumeError::at("the session's stamp could not be written"))
}

/// Notes a use. Costs one system call and no lock.
pub(super) fn touch(session: BorrowedFd<'_>, used_at_ms: u64) -> Result<(), Errno> {
    directory::set_modified(session, PATH, used_at_ms)
}
