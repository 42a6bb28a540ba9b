//! Finds sessions in the store: many by a query, or one by its place or digest.

use mooring_session::Refusal;
use mooring_session::view::RecordView;

use super::outcome::SessionsError;
use mooring_secrets::digest::SHORT_DIGITS;
use mooring_store::{Family, PAGE_MAX, SessionKey, SessionQuery, Store, StoreError};

/// Fewest digits of a digest prefix.
const DIGEST_DIGITS_MIN: usize = 4;
/// Number of digits of a digest.
const DIGEST_DIGITS: usize = SHORT_DIGITS;
/// Separates the parts of a place: server, user and language or parent.
const PART_SEPARATOR: char = ':';

/// A session in the store.
#[derive(Clone, Debug)]
pub(super) struct StoredSession {
    pub(super) key: SessionKey,
    pub(super) record: RecordView,
}

/// The result of a query.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    pub(super) sessions: Vec<StoredSession>,
    /// Whether the store's session index was complete.
    pub(super) is_complete: bool,
}

/// Every session that matches a query, page by page, up to `limit` sessions for which `is_wanted` is true.
pub(super) async fn select(
    store: &Store,
    mut query: SessionQuery,
    limit: usize,
    is_wanted: impl Fn(&SessionKey, &RecordView) -> bool,
) -> Result<Selection, SessionsError> {
    query.count = PAGE_MAX;
    let mut selection = Selection {
        is_complete: true,
        ..Selection::default()
    };
    loop {
        let page = store.list(&query).await?;
        selection.is_complete &= page.complete;
        let found = page
            .sessions
            .into_iter()
            .filter(|(key, record)| is_wanted(key, record))
            .map(|(key, record)| StoredSession { key, record });
        selection.sessions.extend(found);
        query.cursor = page.cursor;
        if query.cursor.is_none() || selection.sessions.len() >= limit {
            selection.sessions.truncate(limit);
            return Ok(selection);
        }
    }
}

/// The only session with this place, digest or prefix of a digest.
pub(super) async fn find_one(store: &Store, named: &str) -> Result<StoredSession, SessionsError> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_digest =
        (DIGEST_DIGITS_MIN..=DIGEST_DIGITS).contains(&named.len()) && named.bytes().all(is_hex);
    let mut found = if named.contains(PART_SEPARATOR) {
        at_place(store, named).await?
    } else if is_digest {
        by_digest(store, named).await?
    } else {
        return Err(SessionsError::Flag(format!(
            "a session is named by {DIGEST_DIGITS_MIN} to {DIGEST_DIGITS} hexadecimal digits, or by its place, as \
             `mooring sessions list` shows them"
        )));
    };
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (None, _) => Err(SessionsError::NoSuchSession),
        (Some(_), false) => Err(SessionsError::SeveralSessions),
    }
}

/// The sessions at a place; also ended ones, while the store has their tombstones.
async fn at_place(store: &Store, place: &str) -> Result<Vec<StoredSession>, SessionsError> {
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

async fn by_digest(store: &Store, digits: &str) -> Result<Vec<StoredSession>, SessionsError> {
    let mut found = Vec::new();
    for family in Family::ALL {
        let query = SessionQuery {
            family,
            ..SessionQuery::default()
        };
        let is_wanted = |key: &SessionKey, _: &RecordView| key.digest().starts_with(digits);
        let selection = select(store, query, 2, is_wanted).await?;
        if !selection.is_complete {
            return Err(SessionsError::Incomplete);
        }
        found.extend(selection.sessions);
    }
    Ok(found)
}
