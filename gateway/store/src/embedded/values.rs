//! Values beside the records: initialize params, rates, and sealed values.
//!
//! Invariant: a sealed value is read, stored and deleted in the file or not at all. The copy in memory that replaces an
//! unwritable file has none, because another process may have deleted them.

use mooring_session::rules::{self, RateRequest, TheoreticalArrivalTime};
use mooring_session::time::Millis;
use rusqlite::{Connection, OptionalExtension, params};

use super::EmbeddedStore;
use super::database::Database;
use super::failure::TransactionError;
use super::file::MemoryUse;
use super::row::stored_number;
use crate::error::{NotReady, StoreError};
use crate::key::InitDigest;
use crate::rate::RateReply;

/// What a copy of the file in memory lacks.
const SEALED_KEPT: &str = "credentials are kept nowhere else";

const RATES_SHARED: &str = "a copy does not know what others count";

impl EmbeddedStore {
    pub(crate) async fn put_init(
        &self,
        digest: &InitDigest,
        json: &str,
        keep: Millis,
    ) -> Result<(), StoreError> {
        let (digest, json) = (digest.clone(), json.to_owned());
        self.write(move |transaction, _, clock| {
            let lapses_at = stored_number(clock.now().plus(keep).unix_ms());
            transaction
                .prepare_cached(
                    "INSERT INTO inits VALUES (?1, ?2, ?3)
                     ON CONFLICT (digest) DO UPDATE SET lapses_at = excluded.lapses_at",
                )?
                .execute(params![digest.as_str(), json, lapses_at])?;
            Ok(())
        })
        .await
    }

    pub(crate) async fn get_init(&self, digest: &InitDigest) -> Result<Option<String>, StoreError> {
        let digest = digest.clone();
        self.with_repair(move |database| {
            let now = stored_number(database.clock.now().unix_ms());
            let found = database
                .connection
                .prepare_cached("SELECT params FROM inits WHERE digest = ?1 AND lapses_at > ?2")?
                .query_row(params![digest.as_str(), now], |row| row.get(0))
                .optional()?;
            Ok(found)
        })
        .await
    }

    pub(crate) async fn delete_init(&self, digest: &InitDigest) -> Result<(), StoreError> {
        let digest = digest.clone();
        self.write(move |transaction, _, _| {
            transaction
                .prepare_cached("DELETE FROM inits WHERE digest = ?1")?
                .execute([digest.as_str()])?;
            Ok(())
        })
        .await
    }

    /// The rate of everybody who has the file: a copy of it knows only what this gateway has counted.
    pub(crate) async fn rate_shared(
        &self,
        name: &str,
        request: &RateRequest,
    ) -> Result<RateReply, StoreError> {
        let rated = self.rate(name, request).await?;
        // Counting may have replaced the file.
        self.with_repair(|database| database.refuse_copy(RATES_SHARED))
            .await?;
        Ok(rated)
    }

    pub(crate) async fn rate(
        &self,
        name: &str,
        request: &RateRequest,
    ) -> Result<RateReply, StoreError> {
        let (name, request) = (name.to_owned(), *request);
        self.write(move |transaction, _, clock| {
            let rated = rules::rate(spent(transaction, &name)?, &request, clock.now());
            if let Some(spent) = rated.written {
                let lapses_at = stored_number(spent.expires_at().unix_ms());
                transaction
                    .prepare_cached(
                        "INSERT INTO rates VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE SET
                            spent = excluded.spent, lapses_at = excluded.lapses_at",
                    )?
                    .execute(params![name, spent.encode(), lapses_at])?;
            }
            Ok(RateReply::of(rated))
        })
        .await
    }

    pub(crate) async fn get_sealed(
        &self,
        names: &[String],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let names = names.to_vec();
        self.with_repair(move |database| {
            database.refuse_copy(SEALED_KEPT)?;
            let mut found = database
                .connection
                .prepare_cached("SELECT value FROM sealed WHERE name = ?1")?;
            let values = names
                .iter()
                .map(|name| found.query_row([name], |row| row.get(0)).optional());
            Ok(values.collect::<rusqlite::Result<_>>()?)
        })
        .await
    }

    pub(crate) async fn put_sealed(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        let (name, value) = (name.to_owned(), value.to_vec());
        self.with_repair(move |database| {
            database.refuse_copy(SEALED_KEPT)?;
            database
                .connection
                .prepare_cached("INSERT OR REPLACE INTO sealed VALUES (?1, ?2)")?
                .execute(params![name, value])?;
            Ok(())
        })
        .await
    }

    pub(crate) async fn delete_sealed(&self, names: &[String]) -> Result<bool, StoreError> {
        let names = names.to_vec();
        self.with_repair(move |database| {
            database.refuse_copy(SEALED_KEPT)?;
            let mut delete = database
                .connection
                .prepare_cached("DELETE FROM sealed WHERE name = ?1")?;
            let mut deleted = 0;
            for name in &names {
                deleted += delete.execute([name])?;
            }
            Ok(deleted > 0)
        })
        .await
    }
}

impl Database {
    /// Refuses to use a copy of the file, which lacks what `kept` says.
    pub(super) fn refuse_copy(&self, kept: &str) -> Result<(), TransactionError> {
        match self.connection.memory_use() {
            Some(MemoryUse::Copy) => {
                let why = NotReady::File(format!("it cannot be written, and {kept}").into());
                Err(StoreError::NotReady(why).into())
            }
            Some(MemoryUse::Store) | None => Ok(()),
        }
    }
}

/// A stored rate that cannot be parsed, which must have been edited by hand, counts as none.
fn spent(connection: &Connection, name: &str) -> rusqlite::Result<Option<TheoreticalArrivalTime>> {
    let text = connection
        .prepare_cached("SELECT spent FROM rates WHERE name = ?1")?
        .query_row([name], |row| row.get::<_, String>(0))
        .optional()?;
    Ok(text.and_then(|text| TheoreticalArrivalTime::decode(text.as_bytes()).ok()))
}
