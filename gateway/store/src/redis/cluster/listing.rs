//! LIST over all primaries: one page in one order, with one cursor.
//!
//! Each primary has its own order and cursors. A page is made in two steps: each primary is asked for as many sessions as
//! the page has, which says how many of them are each one's; then those whose part is smaller are asked for that number, so
//! that their cursor is behind it. Invariants: a page has no more sessions than were asked for, and none twice; a session
//! that exists during a whole iteration is listed once, unless its slot moves meanwhile; a primary that is away makes the
//! page incomplete, and does not make the iteration endless.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::join_all;
use mooring_session::names::{NameError, Problem};
use mooring_session::refusal::Refusal;

use super::super::failure::{accepted, invalid_reply};
use super::super::link_state::Resend;
use super::super::sessions::{LIST, list, page};
use super::layout::PRIMARIES_MAX;
use super::node::Node;
use super::{Cluster, Shared};
use crate::error::{StoreError, UnavailableReason};
use crate::query::{Cursor, Order, PAGE_MAX, SessionPage, SessionQuery};

/// In a cursor, in place of that of a primary that has no further sessions.
const DONE: &str = ".";
/// Between the primaries in a cursor.
const NEXT: char = ',';
/// Between the name of a primary and its own cursor.
const AT: char = '~';

/// How far the pages of one primary have been read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    Start,
    At(Cursor),
    Done,
}

impl Progress {
    fn after(page: &SessionPage) -> Self {
        page.cursor.clone().map_or(Self::Done, Self::At)
    }
}

/// A primary during one page.
struct Part {
    node: Arc<Node>,
    /// What the cursor calls it.
    name: String,
    progress: Progress,
    /// What it has replied; none if nothing was asked.
    reply: Option<Result<SessionPage, StoreError>>,
}

impl Cluster {
    pub(in super::super) async fn list(
        &self,
        prefix: &str,
        query: &SessionQuery,
    ) -> Result<SessionPage, StoreError> {
        let topology = self.shared.topology();
        let known = parse(query.cursor.as_ref()).map_err(StoreError::Refused)?;
        let progress_of = |name: &str| {
            let known = known.iter().find(|(known, _)| known == name);
            known.map_or(Progress::Start, |(_, progress)| progress.clone())
        };
        let named = topology.nodes.iter().zip(topology.names());
        let parts = named.map(|(node, name)| Part {
            node: Arc::clone(node),
            progress: progress_of(&name),
            name,
            reply: None,
        });
        let mut parts: Vec<Part> = parts.collect();
        if parts.is_empty() {
            return Err(StoreError::Away(UnavailableReason::Disconnected));
        }
        let count = query.count.clamp(1, PAGE_MAX);
        let of_all = |part: &Part| (part.progress != Progress::Done).then_some(count);
        let wanted: Vec<_> = parts.iter().map(of_all).collect();
        self.shared
            .ask_parts(prefix, query, &mut parts, &wanted)
            .await;
        if let Some(error) = error_of_all(&parts) {
            return Err(error);
        }
        let shares = shares(&pages_of(&parts), query.order, count);
        let smaller = |(part, share): (&Part, &usize)| {
            let had = matches!(&part.reply, Some(Ok(page)) if page.sessions.len() > *share);
            (had && *share > 0).then_some(*share)
        };
        let wanted: Vec<_> = parts.iter().zip(&shares).map(smaller).collect();
        self.shared
            .ask_parts(prefix, query, &mut parts, &wanted)
            .await;
        Ok(merge(parts, &shares, query.order))
    }
}

impl Shared {
    /// Asks the parts of which sessions are wanted, from where their pages have been read to.
    async fn ask_parts(
        &self,
        prefix: &str,
        query: &SessionQuery,
        parts: &mut [Part],
        wanted: &[Option<usize>],
    ) {
        let asked = parts.iter_mut().zip(wanted).map(async |(part, count)| {
            let Some(count) = *count else {
                return;
            };
            let query = SessionQuery {
                cursor: match &part.progress {
                    Progress::At(cursor) => Some(cursor.clone()),
                    Progress::Start | Progress::Done => None,
                },
                count,
                ..query.clone()
            };
            let command = list(prefix, &query);
            let sent = self.send_to(&part.node, &command, Resend::Once).await;
            let value = sent.and_then(|value| accepted(value, LIST));
            part.reply =
                Some(value.and_then(|value| page(prefix, value).map_err(invalid_reply(LIST))));
        });
        join_all(asked).await;
    }
}

/// The error of one that was asked, if none of them has a page; a refusal in any case, which all have.
fn error_of_all(parts: &[Part]) -> Option<StoreError> {
    let replies = || parts.iter().filter_map(|part| part.reply.as_ref());
    let is_refusal = |error: &&StoreError| matches!(error, StoreError::Refused(_));
    let refusal = replies()
        .filter_map(|reply| reply.as_ref().err())
        .find(is_refusal);
    let any_page = replies().any(Result::is_ok);
    let any_error = replies().find_map(|reply| reply.as_ref().err());
    refusal.or(any_error.filter(|_| !any_page)).cloned()
}

fn pages_of(parts: &[Part]) -> Vec<Option<&SessionPage>> {
    let replies = parts.iter().map(|part| part.reply.as_ref());
    replies.map(|reply| reply?.as_ref().ok()).collect()
}

/// How many sessions of each page are among the first `count` of all.
///
/// A page that is short though more follow has been searched only to its cursor: sessions of others behind that wait for the
/// next page.
fn shares(pages: &[Option<&SessionPage>], order: Order, count: usize) -> Vec<usize> {
    let mut rows: Vec<(u64, usize)> = Vec::new();
    let mut horizon: Option<u64> = None;
    for (number, page) in pages.iter().enumerate() {
        let Some(page) = page else {
            continue;
        };
        rows.extend(
            page.sessions
                .iter()
                .map(|(_, record)| (record.created_at.unix_ms(), number)),
        );
        let searched_to = page.cursor.as_ref().filter(|_| page.sessions.len() < count);
        if let Some(moment) = searched_to.and_then(moment_of) {
            horizon = Some(match (horizon, order) {
                (None, _) => moment,
                (Some(known), Order::Newest) => known.max(moment),
                (Some(known), Order::Oldest) => known.min(moment),
            });
        }
    }
    if let Some(horizon) = horizon {
        rows.retain(|(created_at, _)| match order {
            Order::Newest => *created_at >= horizon,
            Order::Oldest => *created_at <= horizon,
        });
    }
    match order {
        Order::Newest => rows.sort_by_key(|(created_at, _)| Reverse(*created_at)),
        Order::Oldest => rows.sort_by_key(|(created_at, _)| *created_at),
    }
    let mut shares = vec![0; pages.len()];
    for (_, number) in rows.into_iter().take(count) {
        if let Some(share) = shares.get_mut(number) {
            *share += 1;
        }
    }
    shares
}

/// When the session was created that a primary's own cursor is behind: `<created_at>-<n>`.
fn moment_of(cursor: &Cursor) -> Option<u64> {
    cursor.as_str().split_once('-')?.0.parse().ok()
}

/// The page of all parts, of which each has at most its share.
fn merge(parts: Vec<Part>, shares: &[usize], order: Order) -> SessionPage {
    let mut merged = SessionPage {
        complete: true,
        cursor: None,
        sessions: Vec::new(),
    };
    let (mut entries, mut has_more) = (Vec::new(), false);
    for (part, share) in parts.into_iter().zip(shares) {
        let mut progress = part.progress;
        match part.reply {
            Some(Ok(page)) => {
                merged.complete &= page.complete;
                // Sessions that are all behind those of others are read again.
                if *share > 0 || page.sessions.is_empty() {
                    progress = Progress::after(&page);
                    merged.sessions.extend(page.sessions);
                }
                has_more |= progress != Progress::Done;
            }
            Some(Err(_)) => merged.complete = false,
            None => {}
        }
        entries.push((part.name, progress));
    }
    match order {
        Order::Newest => (merged.sessions).sort_by_key(|(_, record)| Reverse(record.created_at)),
        Order::Oldest => merged.sessions.sort_by_key(|(_, record)| record.created_at),
    }
    // A key is for a moment at two nodes while its slot moves.
    let mut seen = HashSet::new();
    merged.sessions.retain(|(key, _)| seen.insert(key.clone()));
    if has_more {
        merged.cursor = Cursor::of(&written(&entries));
    }
    merged
}

/// The cursor of all parts.
fn written(entries: &[(String, Progress)]) -> String {
    let entry = |(name, progress): &(String, Progress)| match progress {
        Progress::Start => None,
        Progress::At(cursor) => Some(format!("{name}{AT}{}", cursor.as_str())),
        Progress::Done => Some(format!("{name}{AT}{DONE}")),
    };
    let entries: Vec<String> = entries.iter().filter_map(entry).collect();
    match entries.is_empty() {
        // All are at their start, where another one is away.
        true => format!("{AT}"),
        false => entries.join(&NEXT.to_string()),
    }
}

/// Reads a cursor of [`written`].
fn parse(cursor: Option<&Cursor>) -> Result<Vec<(String, Progress)>, Refusal> {
    let Some(text) = cursor.map(Cursor::as_str) else {
        return Ok(Vec::new());
    };
    let entry = |text: &str| {
        let (name, own) = text.split_once(AT)?;
        let progress = match own {
            DONE => Progress::Done,
            own => Cursor::of(own).map_or(Progress::Start, Progress::At),
        };
        Some((name.to_owned(), progress))
    };
    let entries: Option<Vec<_>> = text
        .split(NEXT)
        .take(PRIMARIES_MAX + 1)
        .map(entry)
        .collect();
    entries
        .filter(|entries| entries.len() <= PRIMARIES_MAX)
        .ok_or(Refusal::Argument(NameError {
            what: "cursor",
            problem: Problem::Alphabet("what the page before answered is expected"),
        }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use mooring_session::time::{Millis, Timestamp};

    use super::*;
    use crate::test_support::requests as make;

    fn page_of(created_at: &[u64], cursor: Option<&str>) -> SessionPage {
        let session = |at: &u64| {
            let request = make::create(&format!("s{at}"));
            let created_at = Timestamp::from_unix_ms(*at);
            let record = mooring_session::view::RecordView {
                id: request.id,
                generation: 1,
                principal: request.principal,
                state: mooring_session::record::SessionState::Active,
                created_at,
                last_used_at: created_at,
                expires_at: created_at,
                ttl: Millis::new(1),
                content_hash: None,
                labels: request.labels,
                bindings: Vec::new(),
            };
            (make::key(&format!("s{at}")), record)
        };
        SessionPage {
            complete: true,
            cursor: cursor.and_then(Cursor::of),
            sessions: created_at.iter().map(session).collect(),
        }
    }

    #[test]
    fn each_primary_gives_its_share_of_the_first() {
        let (one, other) = (page_of(&[9, 7, 5], None), page_of(&[8, 6], None));
        let pages = [Some(&one), None, Some(&other)];
        assert_eq!(shares(&pages, Order::Newest, 3), [2, 0, 1]);
        assert_eq!(shares(&pages, Order::Newest, 9), [3, 0, 2]);
        let (one, other) = (page_of(&[1, 2, 3], Some("3-1")), page_of(&[4, 5], None));
        let pages = [Some(&one), Some(&other)];
        assert_eq!(shares(&pages, Order::Oldest, 3), [3, 0]);
    }

    #[test]
    fn nothing_is_listed_before_what_a_short_page_may_still_have() {
        // The second primary has searched only to 6, where it found nothing.
        let (one, other) = (page_of(&[9, 7, 5], None), page_of(&[], Some("6-1")));
        assert_eq!(
            shares(&[Some(&one), Some(&other)], Order::Newest, 9),
            [2, 0]
        );
        let (one, other) = (page_of(&[5, 7, 9], None), page_of(&[], Some("6-1")));
        assert_eq!(
            shares(&[Some(&one), Some(&other)], Order::Oldest, 9),
            [1, 0]
        );
    }

    #[test]
    fn a_cursor_reads_back_and_nothing_else_does() {
        let entries = [
            ("0".to_owned(), Progress::At(Cursor::of("17-3").unwrap())),
            ("5461".to_owned(), Progress::Done),
            ("10.0.0.1:7000".to_owned(), Progress::Start),
        ];
        let text = written(&entries);
        assert_eq!(text, "0~17-3,5461~.");
        let read = parse(Cursor::of(&text).as_ref()).unwrap();
        assert_eq!(read.as_slice(), entries.get(..2).unwrap());
        assert_eq!(parse(None), Ok(Vec::new()));
        let many = vec!["a~1-1"; PRIMARIES_MAX + 1].join(",");
        for bad in ["17-3", "0~1-1,", "x", &many] {
            assert!(parse(Cursor::of(bad).as_ref()).is_err(), "{bad}");
        }
    }
}
