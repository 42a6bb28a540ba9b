//! Every session that matches a query of the store.

use mooring_session::view::RecordView;

use mooring_store::{PAGE_MAX, SessionKey, SessionQuery, Store, StoreError};

/// A session in the store.
#[derive(Clone, Debug)]
pub struct StoredSession {
    /// The key of its record.
    pub key: SessionKey,
    /// The record.
    pub record: RecordView,
}

/// The result of a query.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The sessions, in the order of the query.
    pub sessions: Vec<StoredSession>,
    /// Whether the store's session index was complete.
    pub is_complete: bool,
}

/// Every session that matches a query, page by page, up to `limit` sessions for which `is_wanted` is true.
///
/// # Errors
/// See [`Store::list`].
pub async fn select_sessions(
    store: &Store,
    mut query: SessionQuery,
    limit: usize,
    is_wanted: impl Fn(&SessionKey, &RecordView) -> bool,
) -> Result<Selection, StoreError> {
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
