//! Histories in the file: one row for each session, with its entries as lines, since no entry has an end of
//! line in it.
//!
//! Invariant: a row has at most as many entries as its last writer keeps, and a time at which it is deleted.

use mooring_session::time::Millis;
use rusqlite::{Connection, OptionalExtension, params};

use super::EmbeddedStore;
use super::row::stored_number;
use crate::error::StoreError;
use crate::history::HistoryWrite;

impl EmbeddedStore {
    pub(crate) async fn append_history(&self, write: &HistoryWrite) -> Result<(), StoreError> {
        let write = write.clone();
        self.write(move |transaction, _, clock| {
            let now = clock.now();
            let stored = lines(transaction, &write.session)?.unwrap_or_default();
            let mut lines: Vec<&str> = stored.lines().collect();
            lines.extend(write.entries.iter().map(String::as_str));
            let dropped = lines.len().saturating_sub(write.entries_max);
            let kept = lines.split_off(dropped).join("\n");
            let lapses_at = stored_number(now.plus(write.keep).unix_ms());
            transaction
                .prepare_cached(
                    "INSERT INTO histories VALUES (?1, ?2, ?3) ON CONFLICT (session) DO UPDATE SET
                        entries = excluded.entries, lapses_at = excluded.lapses_at",
                )?
                .execute(params![write.session, kept, lapses_at])?;
            Ok(())
        })
        .await
    }

    pub(crate) async fn read_history(&self, session: &str) -> Result<Vec<String>, StoreError> {
        let session = session.to_owned();
        self.with_repair(move |database| {
            let stored = lines(&database.connection, &session)?.unwrap_or_default();
            Ok(stored.lines().map(str::to_owned).collect())
        })
        .await
    }

    pub(crate) async fn renew_history(
        &self,
        session: &str,
        keep: Millis,
    ) -> Result<(), StoreError> {
        let session = session.to_owned();
        self.write(move |transaction, _, clock| {
            let lapses_at = stored_number(clock.now().plus(keep).unix_ms());
            transaction
                .prepare_cached("UPDATE histories SET lapses_at = ?2 WHERE session = ?1")?
                .execute(params![session, lapses_at])?;
            Ok(())
        })
        .await
    }
}

fn lines(connection: &Connection, session: &str) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached("SELECT entries FROM histories WHERE session = ?1")?
        .query_row([session], |row| row.get(0))
        .optional()
}
