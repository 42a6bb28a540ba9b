//! LIST: the query, and one page of its result.

use std::sync::Arc;

use mooring_session::DigestPrefix;
pub use mooring_session::index::Order;
use mooring_session::index::{Filter, Glob, SearchPart};
pub use mooring_session::limits::LIST_COUNT_MAX as PAGE_MAX;
use mooring_session::limits::PATTERN_BYTES_MAX;
use mooring_session::names::{InstanceName, NameError, Principal, Problem, ServerName, WorkerId};
use mooring_session::record::SessionState;
use mooring_session::refusal::Refusal;
use mooring_session::view::RecordView;

use super::key::{Family, SessionKey};

/// Default number of sessions per page.
const PAGE_USUAL: usize = 100;

/// Selects sessions to list. A filter that is not set matches every session; all set filters must match, and server,
/// instance and owner must match in the same binding.
#[derive(Clone, Debug)]
pub struct SessionQuery {
    /// The family; MCP sessions by default.
    pub family: Family,
    /// The owner of the sessions.
    pub principal: Option<Principal>,
    /// Sessions bound to this server.
    pub server: Option<ServerName>,
    /// Sessions with a binding on this instance.
    pub instance: Option<InstanceName>,
    /// Sessions with a binding that this worker owns.
    pub owner: Option<WorkerId>,
    /// Sessions in this state.
    pub state: Option<SessionState>,
    /// A Redis pattern for the part of the key after the family's prefix: the id of an MCP session,
    /// `<server>:<user_slug>:<language>` of a code session.
    pub id_pattern: Option<Box<str>>,
    /// The digest of the session, or the first digits of it, at least four.
    pub digest: Option<Box<str>>,
    /// A part of the names of the session, in any case; or the beginning of its digest.
    pub text: Option<Box<str>>,
    /// By the time of creation.
    pub order: Order,
    /// The cursor of the previous page; none for the first page.
    pub cursor: Option<Cursor>,
    /// Most sessions on the page, 1 to [`PAGE_MAX`]; more is answered with as many.
    pub count: usize,
}

impl Default for SessionQuery {
    fn default() -> Self {
        Self {
            family: Family::default(),
            principal: None,
            server: None,
            instance: None,
            owner: None,
            state: None,
            id_pattern: None,
            digest: None,
            text: None,
            order: Order::Newest,
            cursor: None,
            count: PAGE_USUAL,
        }
    }
}

impl SessionQuery {
    /// The rules' filter of the family's keys under `prefix`.
    ///
    /// # Errors
    /// `ERR` for a pattern or a text that is too long, or for a digest that is none.
    pub(super) fn filter(&self, prefix: &str) -> Result<Filter, Refusal> {
        let pattern = key_pattern(self.family, prefix, self.id_pattern.as_deref());
        let pattern = Glob::parse(pattern.as_bytes()).map_err(|_| {
            Refusal::Argument(NameError {
                what: "pattern",
                problem: Problem::TooLong(PATTERN_BYTES_MAX),
            })
        })?;
        Ok(Filter {
            principal: self.principal.clone(),
            server: self.server.clone(),
            instance: self.instance.clone(),
            owner: self.owner.clone(),
            driver: None,
            state: self.state,
            pattern: Some(pattern),
            digest: self.digest.as_deref().map(parse_digest).transpose()?,
            text: self.text.as_deref().map(parse_text).transpose()?,
        })
    }
}

fn parse_digest(text: &str) -> Result<DigestPrefix, Refusal> {
    DigestPrefix::parse(text.as_bytes()).map_err(Refusal::Argument)
}

fn parse_text(text: &str) -> Result<SearchPart, Refusal> {
    SearchPart::parse(text.as_bytes()).map_err(Refusal::Argument)
}

/// A page of sessions. It may be short, even empty, and still have a next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionPage {
    /// Whether the store's index is complete: one that is being rebuilt lists only the sessions that it has read.
    pub complete: bool,
    /// The cursor of the next page; none after the last.
    pub cursor: Option<Cursor>,
    /// The sessions, in the requested order.
    pub sessions: Vec<(SessionKey, RecordView)>,
}

/// A place between two pages. It means something to the store that gave it, and to that query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(Arc<str>);

impl Cursor {
    /// The cursor before the first page and after the last.
    pub(super) const EDGE: &'static str = "0";

    /// The place that a store named; none at the end.
    pub(super) fn of(text: &str) -> Option<Self> {
        (text != Self::EDGE).then(|| Self(text.into()))
    }

    /// The cursor that [`as_str`](Self::as_str) gave. A store refuses one that it cannot have given.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::of(text)
    }

    /// As text, for a caller that asks for the next page later.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The pattern of a family's keys: the prefix literally, and `rest_pattern`.
pub(super) fn key_pattern(family: Family, prefix: &str, rest_pattern: Option<&str>) -> String {
    literal_pattern(&family.head(prefix)) + rest_pattern.unwrap_or("*")
}

/// The pattern that a text alone is like.
#[must_use]
pub fn literal_pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}
