//! Facts beyond the current record: the load of instances, and the sessions of a principal.
//!
//! Queried only if a rule needs them, within the transaction of a command that writes. Invariant: a failed query fails the command; it
//! is never taken for an answer.

use std::cell::RefCell;

use mooring_session::Tuning;
use mooring_session::context::{Context, Decision, Liveness, Node, PrincipalSessions};
use mooring_session::index::Departures;
use mooring_session::names::{InstanceName, Principal, ServerName};
use mooring_session::record::Record;
use mooring_session::time::{Monotonic, Timestamp};
use rusqlite::{Connection, params};

use super::failure::TransactionError;
use super::row::{read_number, stored_number};
use crate::key::SessionKey;
use crate::queues::Queues;
use crate::transition::Transition;

/// Most bindings counted at one instance, so that no BIND takes long. Fuller instances count as equally full, and
/// sessions are spread over them by the hash of their keys.
const COUNTED_MAX: u32 = 1_000;
/// Most bindings examined for the count. They include those of expired sessions, which pile up at an unreachable
/// instance.
const EXAMINED_MAX: u32 = 4_000;

/// Queries on the file on behalf of the command on one record.
pub(super) struct FileNode<'a> {
    connection: &'a Connection,
    key: &'a SessionKey,
    now: Timestamp,
    mono: Monotonic,
    departures: &'a Departures,
    queues: &'a Queues,
    /// The error of the first failed query.
    failure: RefCell<Option<rusqlite::Error>>,
}

impl<'a> FileNode<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        key: &'a SessionKey,
        (now, mono): (Timestamp, Monotonic),
        departures: &'a Departures,
        queues: &'a Queues,
    ) -> Self {
        Self {
            connection,
            key,
            now,
            mono,
            departures,
            queues,
            failure: RefCell::new(None),
        }
    }

    /// Decides on the record. Fails if a query failed.
    pub(super) fn decide<T: Transition>(
        &self,
        request: &T,
        slot: &mut Option<Record>,
        floor: u64,
        tuning: &Tuning,
        workers: &dyn Liveness,
    ) -> Result<Decision<T::Reply>, TransactionError> {
        let context = Context {
            now: self.now,
            floor,
            tuning,
            workers,
            node: self,
        };
        let decided = request.decide(slot, self.key.secret().as_bytes(), &context);
        if let Some(failure) = self.failure.take() {
            return Err(failure.into());
        }
        Ok(decided?)
    }

    fn answer<R>(&self, asked: rusqlite::Result<R>, otherwise: R) -> R {
        asked.unwrap_or_else(|error| {
            self.failure.borrow_mut().get_or_insert(error);
            otherwise
        })
    }

    fn bound_to(&self, server: &ServerName, instance: &InstanceName) -> rusqlite::Result<u64> {
        self.connection
            .prepare_cached(
                "SELECT count(*) FROM (
                    SELECT 1 FROM (
                        SELECT key FROM bindings WHERE server = ?1 AND instance = ?2 LIMIT ?5
                    ) JOIN sessions USING (key)
                    WHERE lifecycle = 'active' AND over_at > ?3
                    LIMIT ?4)",
            )?
            .query_row(
                params![
                    server.as_str(),
                    instance.as_str(),
                    stored_number(self.now.unix_ms()),
                    COUNTED_MAX,
                    EXAMINED_MAX
                ],
                |row| read_number(row, 0),
            )
    }

    fn held(&self, principal: &Principal) -> rusqlite::Result<PrincipalSessions> {
        let key = self.key.secret();
        // In SQLite, a bare column beside min() is from the row with the minimum.
        self.connection
            .prepare_cached(
                "SELECT count(*), key, min(last_used_at) FROM sessions
                 WHERE principal = ?1 AND lifecycle = 'active' AND over_at > ?2 AND key <> ?3
                    AND substr(key, 1, length(?4)) = ?4",
            )?
            .query_row(
                params![
                    principal.as_str(),
                    stored_number(self.now.unix_ms()),
                    key,
                    self.key.head()
                ],
                |row| {
                    Ok(PrincipalSessions {
                        active: read_number(row, 0)?,
                        least_recently_used: row
                            .get::<_, Option<String>>(1)?
                            .map(|key| key.into_bytes().into()),
                    })
                },
            )
    }
}

impl Node for FileNode<'_> {
    fn fullness(&self, server: &ServerName, instance: &InstanceName) -> u64 {
        let bound = self.answer(self.bound_to(server, instance), 0);
        bound.saturating_add(self.departures.fullness(server, instance, self.mono))
    }

    fn held_by(&self, principal: &Principal) -> Option<PrincipalSessions> {
        self.answer(self.held(principal).map(Some), None)
    }

    fn holds_turn(&self, server: Option<&ServerName>) -> bool {
        self.queues.holds(self.key, server)
    }
}
