//! Sessions that were read and have not changed since: most calls find theirs here.
//!
//! Invariants: a session is here only as the file has it, since any commit of this process or another empties this; its
//! record is taken for a decision, and put back only if that changed nothing.

use std::collections::HashMap;

use mooring_session::record::Record;
use mooring_session::time::Timestamp;
use rusqlite::Connection;

use super::failure::TransactionError;
use super::row::{self, SessionRow};
use crate::key::SessionKey;

/// Most sessions here. Beyond it, all are read again.
const SESSIONS_MAX: usize = 1_024;

/// The sessions that were read since the last commit.
#[derive(Debug, Default)]
pub(super) struct RecentSessions {
    version: Option<FileVersion>,
    sessions: HashMap<SessionKey, RecentSession, foldhash::fast::RandomState>,
}

/// Changes with every commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileVersion {
    /// SQLite's `data_version`, which counts commits of other connections.
    pub(super) data_version: i64,
    /// Rows that this connection has changed.
    pub(super) rows_changed: u64,
}

/// A session with its record and its columns.
#[derive(Debug)]
pub(super) struct RecentSession {
    /// None while a decision has it. One that is not put back is read again.
    pub(super) record: Option<Record>,
    pub(super) last_used_at: Timestamp,
    tombstone_ends_at: Timestamp,
}

impl RecentSessions {
    /// The session of this key; `None` if there is none.
    pub(super) fn read(
        &mut self,
        connection: &Connection,
        version: FileVersion,
        key: &SessionKey,
        now: Timestamp,
    ) -> Result<Option<&mut RecentSession>, TransactionError> {
        if self.version != Some(version) {
            self.clear();
            self.version = Some(version);
        }
        let is_here =
            |session: &RecentSession| session.record.is_some() && session.tombstone_ends_at > now;
        if self.sessions.get(key).is_some_and(is_here) {
            return Ok(self.sessions.get_mut(key));
        }
        let stored = row::load(connection, key.secret())?;
        let Some(stored) = stored.filter(|row| row.tombstone_ends_at > now) else {
            return Ok(None);
        };
        let SessionRow {
            last_used_at,
            tombstone_ends_at,
            ..
        } = stored;
        let session = RecentSession {
            record: Some(row::decode(&stored.fields)?),
            last_used_at,
            tombstone_ends_at,
        };
        if self.sessions.len() >= SESSIONS_MAX {
            self.sessions.clear();
        }
        self.sessions.insert(key.clone(), session);
        Ok(self.sessions.get_mut(key))
    }

    /// A use was written beside its record, which took these numbers of changed rows before and after. That alone empties
    /// nothing: every session in use is written once a second.
    pub(super) fn note_use(
        &mut self,
        key: &SessionKey,
        used_at: Timestamp,
        (before, after): (u64, u64),
    ) {
        let Some(version) = &mut self.version else {
            return;
        };
        if version.rows_changed != before || after != before.saturating_add(1) {
            return;
        }
        version.rows_changed = after;
        if let Some(session) = self.sessions.get_mut(key) {
            session.last_used_at = session.last_used_at.max(used_at);
        }
    }

    /// Forgets all: the file is another one.
    pub(super) fn clear(&mut self) {
        self.version = None;
        self.sessions.clear();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use mooring_session::refusal::Refusal;

    use crate::test_support::embedded_store;
    use crate::test_support::requests as make;
    use crate::{Store, StoreError};

    async fn is_bound(store: &Store) -> bool {
        let routed = store.route(&make::key("s"), &make::route()).await;
        routed.unwrap().binding.is_some()
    }

    /// A session that one process has read often is as another process left it.
    #[tokio::test]
    async fn what_another_process_has_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sessions.db");
        let [one, other] = [embedded_store(&path), embedded_store(&path)];
        let key = make::key("s");
        one.create(&key, &make::create("s")).await.unwrap();
        for _ in 0..3 {
            assert!(!is_bound(&one).await);
        }
        other
            .bind(&key, &make::bind("t1", "i1", "u1"))
            .await
            .unwrap();
        for _ in 0..3 {
            assert!(is_bound(&one).await && is_bound(&other).await);
        }
        other.end(&key, &make::end()).await.unwrap();
        for store in [&one, &other] {
            assert_eq!(
                store.route(&key, &make::route()).await,
                Err(StoreError::Refused(Refusal::Ended))
            );
        }
    }
}
