//! LIST over the file.
//!
//! Columns select candidates, and the records decide. Invariant: one call examines a bounded number of rows, so a page
//! may be short and still have a successor.

use mooring_session::Tuning;
use mooring_session::context::{Context, NoIndex};
use mooring_session::index::{Filter, Order};
use mooring_session::names::{NameError, Problem, parse_integer};
use mooring_session::record::{Record, SessionState};
use mooring_session::refusal::Refusal;
use mooring_session::time::Timestamp;
use mooring_session::view::RecordView;
use rusqlite::types::Value;
use rusqlite::{Row, params_from_iter};

use super::EmbeddedStore;
use super::database::Database;
use super::failure::TransactionError;
use super::row::{self, stored_number};
use crate::error::StoreError;
use crate::key::SessionKey;
use crate::query::{Cursor, PAGE_MAX, SessionPage, SessionQuery};

/// The work of one call: 2,000 records that are read, or ten times as many keys.
const WORK_MAX: usize = 20_000;
/// The work of a row, whose key is compared first.
const KEY_WORK: usize = 1;
/// The further work of a row whose record is read.
const RECORD_WORK: usize = 9;

impl EmbeddedStore {
    pub(crate) async fn list(&self, query: &SessionQuery) -> Result<SessionPage, StoreError> {
        let search = Search {
            filter: query.filter(&self.prefix)?,
            order: query.order,
            after: query.cursor.as_ref().map(Place::parse).transpose()?,
            count: query.count.clamp(1, PAGE_MAX),
            prefix: self.prefix.to_string(),
        };
        self.with_repair(move |database| database.list(&search))
            .await
    }
}

/// A parsed query.
struct Search {
    filter: Filter,
    order: Order,
    after: Option<Place>,
    count: usize,
    prefix: String,
}

/// A session's position by time of creation; the ordinal breaks ties.
#[derive(Clone, Copy)]
struct Place {
    created_at: i64,
    ordinal: i64,
}

impl Place {
    fn parse(cursor: &Cursor) -> Result<Self, Refusal> {
        let what = "cursor";
        let (moment, ordinal) = cursor.as_str().split_once('-').ok_or(NameError {
            what,
            problem: Problem::Alphabet("what the page before answered is expected"),
        })?;
        let number = |text: &str| parse_integer(what, text.as_bytes(), 0, u64::MAX);
        Ok(Self {
            created_at: stored_number(number(moment)?),
            ordinal: stored_number(number(ordinal)?),
        })
    }

    fn cursor(self) -> Option<Cursor> {
        Cursor::of(&format!("{}-{}", self.created_at, self.ordinal))
    }
}

/// A statement under construction.
struct Statement {
    sql: String,
    values: Vec<Value>,
}

impl Statement {
    fn and(&mut self, condition: &str, values: impl IntoIterator<Item = Value>) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
        self.values.extend(values);
    }
}

impl Database {
    fn list(&mut self, search: &Search) -> Result<SessionPage, TransactionError> {
        let transaction = self.connection.transaction()?;
        self.known_workers.refresh(&transaction, &self.clock)?;
        let now = self.clock.now();
        let context = Context {
            now,
            floor: 0,
            tuning: &Tuning::default(),
            workers: &self.known_workers.workers.at(self.clock.mono()),
            node: &NoIndex,
        };
        let Statement { sql, values } = candidates(search, now);
        let mut statement = transaction.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        let (mut sessions, mut work, mut cursor) = (Vec::new(), 0, None);
        while let Some(row) = rows.next()? {
            let place = Place {
                created_at: row.get(0)?,
                ordinal: row.get(1)?,
            };
            work += KEY_WORK;
            if search.filter.admits_key(key_of(row)?) {
                work += RECORD_WORK;
                if let Some((key, record)) = read(row, &search.prefix)?
                    && search.filter.admits(key.secret().as_bytes(), &record, now)
                {
                    sessions.push((key, RecordView::of(&record, &context)));
                }
            }
            if sessions.len() >= search.count || work >= WORK_MAX {
                cursor = rows.next()?.and_then(|_| place.cursor());
                break;
            }
        }
        Ok(SessionPage {
            complete: true,
            cursor,
            sessions,
        })
    }
}

fn key_of<'r>(row: &'r Row<'_>) -> Result<&'r [u8], TransactionError> {
    Ok(row.get_ref(2)?.as_bytes().unwrap_or_default())
}

/// A record and its key; none if the record cannot be read, or the key does not have this gateway's prefix.
fn read(row: &Row<'_>, prefix: &str) -> Result<Option<(SessionKey, Record)>, TransactionError> {
    let Some(key) = SessionKey::named(prefix, key_of(row)?) else {
        return Ok(None);
    };
    let json: String = row.get(3)?;
    let record = row::parse(&json).and_then(|fields| row::decode(&fields));
    Ok(record.ok().map(|record| (key, record)))
}

/// The rows after the cursor that match by their columns.
fn candidates(search: &Search, now: Timestamp) -> Statement {
    let now = Value::from(stored_number(now.unix_ms()));
    let mut statement = Statement {
        sql: "SELECT created_at, ordinal, key, fields FROM sessions WHERE tombstone_ends_at > ?"
            .to_owned(),
        values: vec![now.clone()],
    };
    let filter = &search.filter;
    if let Some(principal) = &filter.principal {
        let principal = Value::from(principal.as_str().to_owned());
        statement.and("principal = ?", [principal]);
    }
    match filter.state {
        None => {}
        Some(SessionState::Ended) => statement.and("lifecycle = 'ended'", []),
        Some(SessionState::Active) => {
            statement.and("lifecycle = 'active' AND over_at > ?", [now]);
        }
        Some(SessionState::Expired) => {
            statement.and("lifecycle = 'active' AND over_at <= ?", [now]);
        }
    }
    let of_binding = [
        ("server", filter.server.as_ref().map(|it| it.as_str())),
        ("instance", filter.instance.as_ref().map(|it| it.as_str())),
        ("owner", filter.owner.as_ref().map(|it| it.as_str())),
    ];
    for (column, value) in of_binding {
        if let Some(value) = value {
            let condition = format!("key IN (SELECT key FROM bindings WHERE {column} = ?)");
            statement.and(&condition, [Value::from(value.to_owned())]);
        }
    }
    let (comparison, direction) = match search.order {
        Order::Newest => ("<", "DESC"),
        Order::Oldest => (">", "ASC"),
    };
    if let Some(Place {
        created_at,
        ordinal,
    }) = search.after
    {
        let condition = format!("(created_at, ordinal) {comparison} (?, ?)");
        statement.and(&condition, [Value::from(created_at), Value::from(ordinal)]);
    }
    let order = format!(" ORDER BY created_at {direction}, ordinal {direction}");
    statement.sql.push_str(&order);
    statement
}
