//! Sealed values in the file.
//!
//! Invariant: a value is read, stored and deleted in the file or not at all. The copy in memory that replaces an unwritable
//! file has none, because another process may have deleted them.

use rusqlite::{OptionalExtension, params};

use super::database::Database;
use super::file::MemoryUse;
use super::{EmbeddedStore, TransactionError};
use crate::error::{NotReady, StoreError};

impl EmbeddedStore {
    pub(crate) async fn get_sealed(
        &self,
        names: &[String],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let names = names.to_vec();
        self.run_on_thread(move |database| database.get_sealed(&names))
            .await
    }

    pub(crate) async fn put_sealed(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        let (name, value) = (name.to_owned(), value.to_vec());
        self.run_on_thread(move |database| database.put_sealed(&name, &value))
            .await
    }

    pub(crate) async fn delete_sealed(&self, names: &[String]) -> Result<bool, StoreError> {
        let names = names.to_vec();
        self.run_on_thread(move |database| database.delete_sealed(&names))
            .await
    }
}

impl Database {
    fn get_sealed(&mut self, names: &[String]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.with_repair(|database| {
            database.refuse_copy()?;
            let mut found = database
                .connection
                .prepare_cached("SELECT value FROM sealed WHERE name = ?1")?;
            let values = names
                .iter()
                .map(|name| found.query_row([name], |row| row.get(0)).optional());
            Ok(values.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn put_sealed(&mut self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.with_repair(|database| {
            database.refuse_copy()?;
            database
                .connection
                .prepare_cached("INSERT OR REPLACE INTO sealed VALUES (?1, ?2)")?
                .execute(params![name, value])?;
            Ok(())
        })
    }

    fn delete_sealed(&mut self, names: &[String]) -> Result<bool, StoreError> {
        self.with_repair(|database| {
            database.refuse_copy()?;
            let mut deleted = 0;
            for name in names {
                deleted += database
                    .connection
                    .prepare_cached("DELETE FROM sealed WHERE name = ?1")?
                    .execute([name])?;
            }
            Ok(deleted > 0)
        })
    }

    fn refuse_copy(&self) -> Result<(), TransactionError> {
        match self.connection.memory_use() {
            Some(MemoryUse::Copy) => Err(TransactionError::Store(StoreError::NotReady(
                NotReady::ReadOnly,
            ))),
            Some(MemoryUse::Store) | None => Ok(()),
        }
    }
}
