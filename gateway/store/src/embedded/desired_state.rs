//! What operators want of the fleet, as rows of the file, which every process that shares it reads.
//!
//! Invariant: it is read and changed in the file or not at all, as are sealed values.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::EmbeddedStore;
use crate::desired_state::{DesiredFields, DesiredWrite, VERSION_FIELD, parse_version};
use crate::error::StoreError;

/// What a copy of the file in memory lacks.
const STATE_KEPT: &str = "what operators want of the fleet is kept nowhere else";

impl EmbeddedStore {
    pub(crate) async fn desired_state_version(&self) -> Result<u64, StoreError> {
        self.with_repair(|database| {
            database.refuse_copy(STATE_KEPT)?;
            Ok(stored_version(&database.connection)?)
        })
        .await
    }

    pub(crate) async fn desired_fields(&self) -> Result<DesiredFields, StoreError> {
        self.with_repair(|database| {
            database.refuse_copy(STATE_KEPT)?;
            let mut select = database
                .connection
                .prepare_cached("SELECT field, value FROM desired_state")?;
            let fields = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(fields.collect::<rusqlite::Result<_>>()?)
        })
        .await
    }

    /// Returns whether the stored version was the expected one. If not, nothing is written.
    pub(crate) async fn write_desired_fields(
        &self,
        write: &DesiredWrite,
    ) -> Result<bool, StoreError> {
        let write = write.clone();
        self.with_repair(move |database| {
            database.refuse_copy(STATE_KEPT)?;
            let transaction = database
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            if stored_version(&transaction)? != write.expected {
                return Ok(false);
            }
            for (field, value) in &write.fields {
                match value {
                    Some(value) => transaction
                        .prepare_cached("INSERT OR REPLACE INTO desired_state VALUES (?1, ?2)")?
                        .execute(params![field, value])?,
                    None => transaction
                        .prepare_cached("DELETE FROM desired_state WHERE field = ?1")?
                        .execute([field])?,
                };
            }
            transaction.commit()?;
            Ok(true)
        })
        .await
    }
}

fn stored_version(connection: &Connection) -> rusqlite::Result<u64> {
    let text = connection
        .prepare_cached("SELECT value FROM desired_state WHERE field = ?1")?
        .query_row([VERSION_FIELD], |row| row.get::<_, String>(0))
        .optional()?;
    Ok(text.map_or(0, |text| parse_version(&text)))
}
