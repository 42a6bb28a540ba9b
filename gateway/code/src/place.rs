//! Where a code session is: its key in the store, its id, and its directory on the volume.
//!
//! Invariant: all three follow from server, principal, language and the name that a client may have alone, so every
//! process of a fleet derives the same ones without communication. Two principals never share a key or a path, whatever
//! their e-mail addresses look like.

mod client_name;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use mooring_session::names::{NameError, Principal, ServerName, SessionId};

use mooring_secrets::digest;
use mooring_settings::Language;
use mooring_store::{Family, Session, SessionKey, Store, UserSlug};

pub use client_name::{ClientName, ClientNameError};

/// Hexadecimal digits of a session id, as ContextForge's ADR-0042 has it.
const ID_DIGITS: usize = 24;

/// Why there is no such place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// A server's name is part of paths and in the material of ids, so that it must be read in one way only.
    #[error(
        "the name of a code server is made of letters, digits and . _ -, begins with a letter or digit, and has no \"__\""
    )]
    Server,
    /// What was derived is no key or id: a name is too long.
    #[error("no session key or id could be derived: {0}")]
    Name(#[from] NameError),
}

/// One code session: what its key, its id and its directory are derived from.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CodePlace {
    pub(crate) server: ServerName,
    principal: Principal,
    language: Language,
    /// Of a session that is a client's own; none for the session that all clients of the principal share.
    client: Option<ClientName>,
    /// The principal as keys and paths name it.
    pub(crate) slug: UserSlug,
    /// `sha256("<server>:<principal>:<language>")`, the first 24 hexadecimal digits. A client's own session has
    /// `<language>.<client>` in the place of the language, as its key has.
    pub(crate) id: SessionId,
}

impl CodePlace {
    /// The session of this principal at this server in this language, and of this client alone where one is named.
    ///
    /// # Errors
    /// The server's name is not one that a path may have.
    pub fn new(
        server: &ServerName,
        principal: &Principal,
        language: Language,
        client: Option<&ClientName>,
    ) -> Result<Self, PlaceError> {
        if !is_path_name(server.as_str()) {
            return Err(PlaceError::Server);
        }
        Ok(Self {
            slug: UserSlug::of(principal),
            id: id_of(server, principal, language, client)?,
            server: server.clone(),
            principal: principal.clone(),
            language,
            client: client.cloned(),
        })
    }

    /// The place whose record has this key: what a reaper is given of a tombstone. None if the key is not that of a code
    /// session, or does not belong to the record's id and principal.
    #[must_use]
    pub fn of_key(key: &SessionKey, id: &SessionId, principal: &Principal) -> Option<Self> {
        let (server, rest) = key.place().split_once(':')?;
        let (slug, rest) = rest.split_once(':')?;
        let (language, client) = match rest.split_once('.') {
            Some((language, client)) => {
                (language, Some(ClientName::parse(client.as_bytes()).ok()?))
            }
            None => (rest, None),
        };
        let server = ServerName::parse(server.as_bytes()).ok()?;
        let language = Language::ALL.into_iter().find(|l| l.as_str() == language)?;
        let place = Self::new(&server, principal, language, client.as_ref()).ok()?;
        let is_own = place.slug.as_str() == slug && place.id == *id;
        (key.family() == Family::Code && is_own).then_some(place)
    }

    /// The session, as a store with this prefix has it.
    ///
    /// # Errors
    /// Its key would be too long.
    pub fn session(&self, store: &Store) -> Result<Session, PlaceError> {
        let language = language_part(self.language, self.client.as_ref());
        let key = store.code_key(&self.server, self.slug.as_str(), &language, &self.id)?;
        Ok(Session::new(key, self.id.clone(), self.principal.clone()))
    }

    /// Its directory, relative to the base: `<server>/<user slug>/<id>`.
    #[must_use]
    pub fn relative_path(&self) -> PathBuf {
        Path::new(self.server.as_str())
            .join(self.slug.as_str())
            .join(self.id.as_str())
    }

    /// The language.
    #[must_use]
    pub fn language(&self) -> Language {
        self.language
    }

    /// Whether it is a client's own, not the one that all clients of the principal share.
    #[must_use]
    pub fn is_of_client(&self) -> bool {
        self.client.is_some()
    }

    /// The digest that identifies it in logs.
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
    UserSlug::has_form(name)
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

/// The last part of a key and of the material of an id: `<language>`, or `<language>.<client>`.
fn language_part(language: Language, client: Option<&ClientName>) -> Cow<'static, str> {
    match client {
        Some(client) => format!("{language}.{}", client.as_str()).into(),
        None => language.as_str().into(),
    }
}

fn id_of(
    server: &ServerName,
    principal: &Principal,
    language: Language,
    client: Option<&ClientName>,
) -> Result<SessionId, PlaceError> {
    let language = language_part(language, client);
    let material = format!("{server}:{}:{language}", principal.as_str());
    let hash = digest::hex(material.as_bytes());
    let id = hash.get(..ID_DIGITS).unwrap_or_default();
    Ok(SessionId::parse(id.as_bytes())?)
}

#[cfg(test)]
mod tests;
