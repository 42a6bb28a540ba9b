//! The volume on a real file system, with real processes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod adoption;
mod initialising;
mod killed;
mod locks;
mod mounting;
mod probing;
mod processes;
mod race;
mod stamps;
mod sweeping;
mod trash;

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mooring_session::names::{Principal, ServerName};
use tempfile::TempDir;

use super::{Incarnation, MountManifest, OpenedSession, SecondProcess, Volume, VolumeOptions};
use crate::place::CodePlace;
use mooring_settings::Language;

/// The time to live of the sessions here.
pub(super) const TTL: Duration = Duration::from_secs(900);
/// How long these tests wait for a lock that is let go of soon.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The options of a volume in a test: its second process is the test binary.
pub(crate) fn options(base: &Path) -> VolumeOptions {
    VolumeOptions {
        base_dir: base.to_owned(),
        session_ttl: TTL,
        second_process: SecondProcess {
            program: std::env::current_exe().unwrap(),
            arguments: processes::arguments("the_second_process"),
        },
    }
}

/// A volume of its own.
pub(super) struct Fixture {
    pub(super) volume: Volume,
    pub(super) base: PathBuf,
    directory: TempDir,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().join("base");
        Self {
            volume: Volume::open(options(&base)).unwrap(),
            base,
            directory,
        }
    }

    pub(super) fn open(&self, place: &CodePlace, incarnation: Incarnation) -> OpenedSession {
        let mounted = nothing(place);
        let handle = self.volume.session(place);
        handle.open(incarnation, &mounted, PATIENCE).unwrap()
    }

    pub(super) fn path(&self, place: &CodePlace) -> PathBuf {
        self.base.join(place.relative_path())
    }

    pub(super) fn in_trash(&self) -> Vec<String> {
        names(&self.base.join(".trash"))
    }
}

impl Drop for Fixture {
    /// Trees of tools are read-only, which an ordinary user's removal of a temporary directory stumbles over.
    fn drop(&mut self) {
        if let Ok(parent) = std::fs::File::open(self.directory.path()) {
            let _ = mooring_sandbox::tree::remove(parent.as_fd(), "base".as_ref());
        }
    }
}

/// The names in a directory, sorted.
pub(super) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let name =
        |entry: std::io::Result<std::fs::DirEntry>| -> OsString { entry.unwrap().file_name() };
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub(super) fn place_of(user: &str) -> CodePlace {
    let server = ServerName::parse(b"sandbox").unwrap();
    let principal = Principal::parse(user.as_bytes()).unwrap();
    CodePlace::new(&server, &principal, Language::Python, None).unwrap()
}

pub(super) fn nothing(place: &CodePlace) -> MountManifest {
    MountManifest::none(&place.server, place.language()).unwrap()
}

/// A record whose key was empty: its generation is the clock's.
pub(super) fn blank(at_ms: u64) -> Incarnation {
    recorded(at_ms, at_ms)
}

pub(super) fn recorded(generation: u64, created_at_ms: u64) -> Incarnation {
    Incarnation::Recorded {
        generation,
        created_at_ms,
        // Generations of these tests are in milliseconds.
        is_new_key: generation >= created_at_ms,
        outranks: None,
    }
}
