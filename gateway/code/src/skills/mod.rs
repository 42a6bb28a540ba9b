//! Skills: code that agents may import, mounted at `/skills`, made once and approved by those who may.
//!
//! ```text
//! base/.skills/<server>/<name>/<version>.py   its source (or .ts); never changes
//! base/.skills/<server>/.index.<revision>.json  all skills of the server, and what became of each
//! base/.skills/<server>/.revision             which index counts
//! base/.skills/<server>/.lock                 held during a change
//! ```
//!
//! A version is pending, approved, rejected or revoked. Mounted is the latest approved version of a name that a principal
//! may see: so a newer approved version takes the place of an older one, and where it is revoked, the one before it that
//! is still approved comes back. Who wants a name gone revokes every version of it.
//!
//! Invariants: a change is one rename, of `.revision`, under the lock: a process that is killed at any moment has
//! changed all or nothing. Every process reads `.revision` at every call, so that what is revoked is gone at the next
//! call everywhere.
//!
//! Everything here blocks: callers run it on threads of their own.

mod change;
mod index;
mod new_skill;
mod scope;
mod set;
mod skill;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use mooring_session::names::ServerName;

pub use change::ChangeError;
pub use new_skill::{CreateError, NewSkill};
pub use scope::{Scope, Viewer};
pub(crate) use set::{SkillSet, SkillSource};
pub use skill::{Skill, SkillStatus};

use self::index::SkillIndex;
use crate::volume::{Area, AreaKind, Volume};

/// Longest source, in bytes.
pub const SOURCE_BYTES_MAX: usize = 1024 * 1024;
/// Longest description, in characters.
pub(crate) const DESCRIPTION_CHARS_MAX: usize = 10_000;

/// Why skills could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum SkillsError {
    /// The server's name cannot be part of a path.
    #[error("this server cannot have skills")]
    Server(#[source] io::Error),
    /// They could not be read.
    #[error("the skills of this server could not be read")]
    Read(#[source] io::Error),
    /// The files were written by a later version, or are incomplete.
    #[error("the skills of this server cannot be read by this version of the gateway")]
    Unreadable,
    /// The lock was held by another process for the whole wait.
    #[error("the skills of this server are being changed; try again")]
    Busy,
    /// They could not be written.
    #[error("the skills of this server could not be written")]
    Write(#[source] io::Error),
}

/// The skills of all servers on a volume. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Skills(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    volume: Volume,
    /// The last index that was read of each server.
    read: Mutex<HashMap<ServerName, Arc<SkillIndex>>>,
}

impl Skills {
    /// The skills on this volume.
    pub(crate) fn new(volume: Volume) -> Self {
        Self(Arc::new(Shared {
            volume,
            read: Mutex::default(),
        }))
    }

    /// The skills that are mounted for this principal now. Cheap enough for every call: it reads one number, and the
    /// index where that has changed.
    ///
    /// # Errors
    /// They could not be read. Nothing may run then: what was revoked might still be there.
    pub(crate) fn visible(
        &self,
        server: &ServerName,
        viewer: &Viewer,
    ) -> Result<SkillSet, SkillsError> {
        let area = self.area(server)?;
        let index = self.index(server, &area)?;
        Ok(SkillSet::of(area, index, viewer))
    }

    /// Every version of every skill, by name and then by version.
    ///
    /// # Errors
    /// They could not be read.
    pub fn all(&self, server: &ServerName) -> Result<Vec<Skill>, SkillsError> {
        let area = self.area(server)?;
        let mut all = self.index(server, &area)?.skills.clone();
        all.sort_by(|a, b| (&a.name, a.version).cmp(&(&b.name, b.version)));
        Ok(all)
    }

    /// The source of a version.
    ///
    /// # Errors
    /// It could not be read, or is not what was stored.
    pub fn source(&self, server: &ServerName, skill: &Skill) -> Result<String, SkillsError> {
        set::source(&self.area(server)?, skill)
    }

    fn area(&self, server: &ServerName) -> Result<Area, SkillsError> {
        self.0
            .volume
            .area(AreaKind::Skills, server)
            .map_err(SkillsError::Server)
    }

    /// The index that counts: the one that was read last where its revision still does.
    fn index(&self, server: &ServerName, area: &Area) -> Result<Arc<SkillIndex>, SkillsError> {
        let known = {
            let read = self.0.read.lock().unwrap_or_else(PoisonError::into_inner);
            read.get(server).cloned()
        };
        let index = index::load(area, known.clone())?;
        if known.is_some_and(|known| Arc::ptr_eq(&known, &index)) {
            return Ok(index);
        }
        let mut read = self.0.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.insert(server.clone(), Arc::clone(&index));
        Ok(index)
    }
}
