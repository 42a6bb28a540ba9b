//! A page of the sessions that match a filter.
//!
//! Invariant: one page looks at a bounded number of the store's pages, so it may be short, even empty, and have a next one.

use schemars::JsonSchema;
use serde::Serialize;

use super::filter::SessionFilter;
use super::select::{StoredSession, select_sessions};
use super::views::SessionSummary;
use mooring_session::record::SessionState;
use mooring_session::view::RecordView;
use mooring_store::{Cursor, Family, Order, PAGE_MAX, SessionKey, SessionQuery, Store, StoreError};

/// Most pages of the store that one page looks at.
const STORE_PAGES_MAX: usize = 100;
/// Separates the kind and the store's cursor.
const SEPARATOR: char = '.';

/// Asks for a page.
#[derive(Clone, Debug)]
pub struct SessionListRequest {
    /// Which sessions.
    pub filter: SessionFilter,
    /// Within a kind, by the time of creation.
    pub order: Order,
    /// Most sessions on the page.
    pub limit: usize,
    /// Where the page before ended.
    pub cursor: Option<SessionCursor>,
}

impl Default for SessionListRequest {
    /// The newest active sessions.
    fn default() -> Self {
        Self {
            filter: SessionFilter {
                state: Some(SessionState::Active),
                ..SessionFilter::default()
            },
            order: Order::Newest,
            limit: 50,
            cursor: None,
        }
    }
}

/// Where a page ended: the kind of session, and the store's cursor within it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionCursor {
    family: Family,
    cursor: Option<Cursor>,
}

impl SessionCursor {
    /// Parses what [`SessionList::next_cursor`] had; none for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (family, cursor) = text.split_once(SEPARATOR)?;
        let family = Family::ALL.get(family.parse::<usize>().ok()?)?;
        Some(Self {
            family: *family,
            cursor: Cursor::parse(cursor),
        })
    }

    fn to_text(&self) -> String {
        let family = Family::ALL.iter().position(|one| *one == self.family);
        let cursor = self.cursor.as_ref().map_or("0", Cursor::as_str);
        format!("{}{SEPARATOR}{cursor}", family.unwrap_or_default())
    }
}

/// A page of sessions.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct SessionList {
    /// The sessions: those of MCP clients first, then those of code and of agents.
    pub sessions: Vec<SessionSummary>,
    /// The cursor of the next page; none after the last. A page with a next one may be short or empty.
    pub next_cursor: Option<String>,
    /// Whether the store's index is complete. One that is being rebuilt lists only the sessions that it has read.
    pub complete: bool,
    /// How many sessions the store has returned. The gateway compares them with the parts of the filter that the store does
    /// not know.
    pub examined: u64,
}

/// One page of the matching sessions. `note` is called with each session that is on it.
///
/// # Errors
/// See [`Store::list`].
pub async fn list_sessions(
    store: &Store,
    request: &SessionListRequest,
    mut note: impl FnMut(&StoredSession),
) -> Result<SessionList, StoreError> {
    if request.cursor.is_none()
        && let Some(list) = list_by_digest(store, request, &mut note).await?
    {
        return Ok(list);
    }
    let mut list = SessionList {
        complete: true,
        ..SessionList::default()
    };
    let mut pages_left = STORE_PAGES_MAX;
    let mut start = request.cursor.clone();
    for family in request.filter.families() {
        let mut query = match &start {
            Some(start) if start.family != family => continue,
            _ => request.filter.query(family, request.order),
        };
        query.cursor = start.take().and_then(|start| start.cursor);
        loop {
            if pages_left == 0 || list.sessions.len() >= request.limit {
                let next = SessionCursor {
                    family,
                    cursor: query.cursor,
                };
                list.next_cursor = Some(next.to_text());
                return Ok(list);
            }
            pages_left -= 1;
            take_page(store, request, &mut query, &mut list, &mut note).await?;
            if query.cursor.is_none() {
                break;
            }
        }
    }
    Ok(list)
}

/// The session with the digest that the text is; none if it is no digest or no session's: then it may be in a name.
async fn list_by_digest(
    store: &Store,
    request: &SessionListRequest,
    note: &mut impl FnMut(&StoredSession),
) -> Result<Option<SessionList>, StoreError> {
    let Some((filter, digest)) = request.filter.by_digest() else {
        return Ok(None);
    };
    for family in filter.families() {
        let query = SessionQuery {
            digest: Some(digest.clone()),
            ..filter.query(family, request.order)
        };
        let is_match = |key: &SessionKey, record: &RecordView| filter.matches(key, record);
        let selection = select_sessions(store, query, 1, is_match).await?;
        if let Some(found) = selection.sessions.first() {
            note(found);
            return Ok(Some(SessionList {
                sessions: vec![SessionSummary::of(found)],
                next_cursor: None,
                complete: selection.is_complete,
                examined: 1,
            }));
        }
    }
    Ok(None)
}

/// Adds the matching sessions of one page of the store, and moves the query to the next. A page with more matches than
/// there is room for is read again, shorter: the next one begins where a page of the store ends.
async fn take_page(
    store: &Store,
    request: &SessionListRequest,
    query: &mut SessionQuery,
    list: &mut SessionList,
    note: &mut impl FnMut(&StoredSession),
) -> Result<(), StoreError> {
    let room = request.limit.saturating_sub(list.sessions.len());
    query.count = match request.filter.needs_comparison() {
        true => PAGE_MAX,
        false => room,
    };
    let is_match = |(key, record): &(SessionKey, RecordView)| request.filter.matches(key, record);
    let mut page = store.list(query).await?;
    if page.sessions.iter().filter(|one| is_match(one)).count() > room {
        query.count = room;
        page = store.list(query).await?;
    }
    list.complete &= page.complete;
    list.examined += u64::try_from(page.sessions.len()).unwrap_or(u64::MAX);
    for (key, record) in page.sessions.into_iter().filter(is_match) {
        let found = StoredSession { key, record };
        note(&found);
        list.sessions.push(SessionSummary::of(&found));
    }
    query.cursor = page.cursor;
    Ok(())
}
