//! The one session that a person names: by its digest or the beginning of it, or by its place.

use mooring_session::Refusal;

use super::select::{StoredSession, select_sessions};
use mooring_secrets::digest::SHORT_DIGITS;
use mooring_session::session_digest::DIGEST_DIGITS_MIN;
use mooring_store::{Family, SessionQuery, Store, StoreError};

/// Separates the parts of a place: server, user and language or parent.
const PART_SEPARATOR: char = ':';

/// Why no session was found.
#[derive(Debug, thiserror::Error)]
pub enum SessionFindError {
    /// A session cannot be named so.
    #[error("{0}")]
    Name(String),
    /// No session matches.
    #[error("the store has no such session")]
    NoSuchSession,
    /// Several sessions match.
    #[error("several sessions are named so; give more digits, or the place")]
    SeveralSessions,
    /// The store's session index is not complete yet.
    #[error("the store is still looking through its sessions; ask again in a moment")]
    Incomplete,
    /// The store failed.
    #[error("unexpected reply of the store")]
    Store(#[from] StoreError),
}

/// How a session is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionName<'a> {
    /// By its whole digest.
    Digest(&'a str),
    /// By the beginning of its digest.
    DigestPrefix(&'a str),
    /// By server, user and language or parent.
    Place(&'a str),
}

impl<'a> SessionName<'a> {
    /// Tells how this text names a session.
    ///
    /// # Errors
    /// It names none.
    pub fn parse(text: &'a str) -> Result<Self, SessionFindError> {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_digest = text.bytes().all(is_hex);
        match text.len() {
            _ if text.contains(PART_SEPARATOR) => Ok(Self::Place(text)),
            SHORT_DIGITS if is_digest => Ok(Self::Digest(text)),
            DIGEST_DIGITS_MIN..SHORT_DIGITS if is_digest => Ok(Self::DigestPrefix(text)),
            _ => Err(SessionFindError::Name(format!(
                "a session is named by {DIGEST_DIGITS_MIN} to {SHORT_DIGITS} hexadecimal digits, or by its place, as \
                 `mooring sessions list` shows them"
            ))),
        }
    }
}

/// The only session with this place, digest or prefix of a digest.
///
/// # Errors
/// See [`SessionFindError`].
pub async fn find_session(
    store: &Store,
    name: SessionName<'_>,
) -> Result<StoredSession, SessionFindError> {
    let mut found = match name {
        SessionName::Place(place) => at_place(store, place).await?,
        SessionName::Digest(digits) => by_digest(store, digits, 1).await?,
        SessionName::DigestPrefix(digits) => by_digest(store, digits, 2).await?,
    };
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (None, _) => Err(SessionFindError::NoSuchSession),
        (Some(_), false) => Err(SessionFindError::SeveralSessions),
    }
}

/// The sessions at a place; also ended ones, while the store has their tombstones.
async fn at_place(store: &Store, place: &str) -> Result<Vec<StoredSession>, SessionFindError> {
    let mut found = Vec::new();
    for family in [Family::Code, Family::Agent] {
        let Some(key) = store.key_at(family, place) else {
            continue;
        };
        match store.get(&key).await {
            Ok(record) => found.push(StoredSession { key, record }),
            Err(StoreError::Refused(Refusal::NoSession)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// The sessions whose digests begin so. Stops after `count` matches.
async fn by_digest(
    store: &Store,
    digits: &str,
    count: usize,
) -> Result<Vec<StoredSession>, SessionFindError> {
    let mut found = Vec::new();
    for family in Family::ALL {
        let query = SessionQuery {
            family,
            digest: Some(digits.into()),
            ..SessionQuery::default()
        };
        let selection = select_sessions(store, query, count, |_, _| true).await?;
        found.extend(selection.sessions);
        if found.len() >= count {
            break;
        }
        if !selection.is_complete {
            return Err(SessionFindError::Incomplete);
        }
    }
    Ok(found)
}
