//! Where a code session is: its key in the store, its id, and its directory on the volume.
//!
//! Invariant: all three follow from server, principal and language alone, so every process of a fleet derives the same
//! ones, and nobody has to ask. Two principals never share a key or a path, whatever their e-mail addresses look like.

use std::fmt;
use std::path::{Path, PathBuf};

use mooring_session::names::{Principal, ServerName, SessionId};

use mooring_secrets::digest;
use mooring_settings::Language;

/// What stands between a store's prefix and the rest of the key of a code session.
const CODE_SESSIONS: &str = "code_exec_session:";
/// Hexadecimal digits of a session id, as ADR-0042 has it.
const ID_DIGITS: usize = 24;
/// Hexadecimal digits of the principal's SHA-256 that tell slugs apart which read the same.
const SLUG_DIGITS: usize = 16;
/// Longest readable part of a slug, in bytes.
const READABLE_BYTES_MAX: usize = 40;
/// The readable part where a principal has no letter or digit.
const READABLE_EMPTY: &str = "user";

/// A principal as keys and paths name it: what is readable of it, and the first 16 hexadecimal digits of its SHA-256, so
/// that `a.b@example.com` and `a-b@example.com` stay two. It still tells an e-mail address: no log and no label has it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserSlug(String);

impl UserSlug {
    /// The slug of a principal: at most 57 bytes of `[a-z0-9-]`.
    #[must_use]
    pub fn of(principal: &Principal) -> Self {
        let hash = digest::hex(principal.as_str().as_bytes());
        let distinct = hash.get(..SLUG_DIGITS).unwrap_or(&hash);
        Self(format!("{}-{distinct}", readable(principal.as_str())))
    }

    /// The slug as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for UserSlug {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "UserSlug({})", digest::short(&self.0))
    }
}

/// Lower-case ASCII letters and digits; one hyphen for every run of anything else, none at either end.
fn readable(text: &str) -> String {
    let mut slug = String::with_capacity(READABLE_BYTES_MAX);
    for letter in text.chars().map(|letter| letter.to_ascii_lowercase()) {
        if slug.len() >= READABLE_BYTES_MAX {
            break;
        }
        if letter.is_ascii_alphanumeric() {
            slug.push(letter);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() {
        READABLE_EMPTY.to_owned()
    } else {
        slug.to_owned()
    }
}

/// Why there is no such place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// A server's name stands in paths and in the material of ids, so that it must be read in one way only.
    #[error(
        "the name of a code server is made of letters, digits and . _ -, begins with a letter or digit, and has no \"__\""
    )]
    Server,
    /// The text derived is no session id. It cannot happen, and is no reason to panic.
    #[error("no session id could be derived")]
    Id,
}

/// One code session: what its key, its id and its directory are derived from.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CodePlace {
    server: ServerName,
    principal: Principal,
    language: Language,
    slug: UserSlug,
    id: SessionId,
}

impl CodePlace {
    /// The session of this principal at this server in this language.
    ///
    /// # Errors
    /// The server's name is not one that a path may have.
    pub fn new(
        server: &ServerName,
        principal: &Principal,
        language: Language,
    ) -> Result<Self, PlaceError> {
        if !is_path_name(server.as_str()) {
            return Err(PlaceError::Server);
        }
        Ok(Self {
            slug: UserSlug::of(principal),
            id: id_of(server, principal, language)?,
            server: server.clone(),
            principal: principal.clone(),
            language,
        })
    }

    /// The place whose record stands under `key`: what a reaper is told of a tombstone. None where the key is not that of
    /// a code session under `prefix`, or does not belong to the record's id and principal.
    #[must_use]
    pub fn of_key(prefix: &str, key: &str, id: &SessionId, principal: &Principal) -> Option<Self> {
        let rest = key.strip_prefix(prefix)?.strip_prefix(CODE_SESSIONS)?;
        let mut parts = rest.split(':');
        let (server, slug, language) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let server = ServerName::parse(server.as_bytes()).ok()?;
        let language = Language::ALL.into_iter().find(|l| l.as_str() == language)?;
        let place = Self::new(&server, principal, language).ok()?;
        (place.slug.as_str() == slug && place.id == *id).then_some(place)
    }

    /// What the keys of all code sessions under `prefix` start with; the prefix ends with a colon.
    #[must_use]
    pub fn key_head(prefix: &str) -> String {
        format!("{prefix}{CODE_SESSIONS}")
    }

    /// The key of its record: `<prefix>code_exec_session:<server>:<user slug>:<language>`. A secret, like every key.
    #[must_use]
    pub fn key(&self, prefix: &str) -> String {
        format!(
            "{prefix}{CODE_SESSIONS}{}:{}:{}",
            self.server,
            self.slug.as_str(),
            self.language
        )
    }

    /// `sha256("<server>:<principal>:<language>")`, the first 24 hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Its directory, relative to the base: `<server>/<user slug>/<id>`.
    #[must_use]
    pub fn relative_path(&self) -> PathBuf {
        Path::new(self.server.as_str())
            .join(self.slug.as_str())
            .join(self.id.as_str())
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &ServerName {
        &self.server
    }

    /// Whose session it is.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The language.
    #[must_use]
    pub fn language(&self) -> Language {
        self.language
    }

    /// The principal as keys and paths name it.
    #[must_use]
    pub fn slug(&self) -> &UserSlug {
        &self.slug
    }

    /// What logs call it.
    #[must_use]
    pub fn digest(&self) -> Box<str> {
        digest::short(self.id.as_str())
    }
}

impl fmt::Debug for CodePlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CodePlace({})", self.digest())
    }
}

/// Whether `server/slug/id` is what the path of a session looks like: nothing else in the base is the gateway's.
pub(super) fn is_session_path(server: &str, slug: &str, id: &str) -> bool {
    is_server_directory(server) && is_slug_directory(slug) && is_hex(id, ID_DIGITS)
}

/// Whether a directory of the base is named like that of a server.
pub(super) fn is_server_directory(name: &str) -> bool {
    is_path_name(name)
}

/// Whether a directory of a server is named like that of a user.
pub(super) fn is_slug_directory(name: &str) -> bool {
    name.rsplit_once('-')
        .is_some_and(|(readable, hash)| !readable.is_empty() && is_hex(hash, SLUG_DIGITS))
}

fn is_hex(text: &str, digits: usize) -> bool {
    let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == digits && text.bytes().all(lower)
}

/// Whether a server's name may be part of a path: then it is neither hidden nor a way out, and the material of an id has
/// its first colon right after it.
fn is_path_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(known)
        && !name.contains("__")
}

fn id_of(
    server: &ServerName,
    principal: &Principal,
    language: Language,
) -> Result<SessionId, PlaceError> {
    let material = format!("{server}:{}:{language}", principal.as_str());
    let hash = digest::hex(material.as_bytes());
    let id = hash.get(..ID_DIGITS).ok_or(PlaceError::Id)?;
    SessionId::parse(id.as_bytes()).map_err(|_| PlaceError::Id)
}

#[cfg(test)]
mod tests;
