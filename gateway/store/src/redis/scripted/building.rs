//! Builds the indexes of records that have none: those that gateways with the module have written.
//!
//! Invariants: one gateway at a time builds, over one connection; what was in the indexes before is gone; a record is added
//! as it is at that moment; until every record was seen, lists say that they are incomplete, and no cap applies.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use redis::Value;

use super::super::failure::{accepted, invalid_reply};
use super::super::link_state::Resend;
use super::super::reply::text;
use super::ScriptedStore;
use super::index;
use super::script::ScriptCall;
use crate::error::{NotReady, StoreError};
use crate::key::Family;
use crate::query::key_pattern;

/// How many keys one step looks at.
const SCANNED: usize = 500;
/// How many records are added at the same time.
const AT_ONCE: usize = 16;
/// How long a gateway that builds may be silent before another one does.
const BUILDING_FOR: Duration = Duration::from_secs(30);
/// Most attempts to add a record that gateways change in between.
const ATTEMPTS_MAX: u32 = 64;
/// Pause between attempts, and between looks whether another gateway has built them.
const BUILD_PAUSE: Duration = Duration::from_secs(1);

/// How often a gateway looks whether they are still complete: a flushed database has none.
const CHECKED_EVERY: Duration = Duration::from_secs(30);

/// The cursor of the first step, and of none after the last.
const START: &str = "0";

/// What became of a key that was looked at.
enum IndexingOutcome {
    Session,
    /// It is no session, or is gone.
    Nothing,
    /// It changed in between.
    Changed,
}

impl ScriptedStore {
    /// Starts the task that builds the indexes.
    pub(super) fn start_building(self: &Arc<Self>) {
        tokio::spawn(Self::build_indexes(Arc::downgrade(self)));
    }

    /// Builds them whenever they are incomplete, until the store is dropped.
    async fn build_indexes(store: Weak<Self>) {
        loop {
            let Some(store) = store.upgrade() else {
                return;
            };
            let mut pause = BUILD_PAUSE;
            match store.build().await {
                Ok(true) => pause = CHECKED_EVERY,
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, "the indexes were not built"),
            }
            drop(store);
            tokio::time::sleep(pause).await;
        }
    }

    /// Whether the indexes are complete now.
    async fn build(&self) -> Result<bool, StoreError> {
        let mut call = ScriptCall::default();
        call.run("GET", &self.keys.indexed(), &[]);
        let mut reply = call.send(&self.link, Resend::Once).await?;
        if reply.text()?.is_some() {
            return Ok(true);
        }
        let mut call = ScriptCall::default();
        let held_ms = BUILDING_FOR.as_millis().to_string();
        let words = ["1", "NX", "PX", &held_ms];
        call.run("SET", &self.keys.indexing(), &words);
        if !call.send(&self.link, Resend::Once).await?.is_done()? {
            return Ok(false);
        }
        // Another server may lack what was built, or have other records.
        let connection = self.link.number();
        self.delete_indexes().await?;
        let mut found = 0_u64;
        for family in Family::ALL {
            found += self.index_family(family).await?;
        }
        if self.link.number() != connection {
            return Ok(false);
        }
        let mut call = ScriptCall::default();
        call.run("SET", &self.keys.indexed(), &["1"]);
        call.run("DEL", &self.keys.indexing(), &[]);
        call.send(&self.link, Resend::Once).await?;
        tracing::info!(sessions = found, "the indexes of sessions are complete");
        Ok(true)
    }

    /// What gateways with the module did to sessions since then, the indexes do not have.
    async fn delete_indexes(&self) -> Result<(), StoreError> {
        let pattern = self.keys.indexes_pattern();
        let mut cursor = START.to_owned();
        loop {
            let (next, mut keys) = self.scan(&cursor, &pattern).await?;
            keys.retain(|key| *key != self.keys.indexing());
            let mut call = ScriptCall::default();
            for key in &keys {
                call.run("DEL", key, &[]);
            }
            if !call.is_empty() {
                call.send(&self.link, Resend::Once).await?;
            }
            cursor = next;
            if cursor == START {
                return Ok(());
            }
        }
    }

    async fn index_family(&self, family: Family) -> Result<u64, StoreError> {
        let pattern = key_pattern(family, self.keys.prefix(), None);
        let (mut cursor, mut found) = (START.to_owned(), 0);
        loop {
            let (next, keys) = self.scan(&cursor, &pattern).await?;
            found += self.index_sessions(keys).await?;
            cursor = next;
            if cursor == START {
                return Ok(found);
            }
        }
    }

    /// The keys of one step, and the cursor of the next.
    async fn scan(&self, cursor: &str, pattern: &str) -> Result<(String, Vec<String>), StoreError> {
        let mut command = redis::cmd("SCAN");
        command.arg((cursor, "MATCH", pattern, "COUNT", SCANNED));
        let reply = self.link.send(&command, Resend::Once).await?;
        let reply = accepted(reply, "SCAN")?;
        let malformed = || invalid_reply("SCAN")("it is no page".to_owned());
        let [next, keys] = <[Value; 2]>::try_from(reply.into_sequence().map_err(|_| malformed())?)
            .map_err(|_| malformed())?;
        let keys = keys.into_sequence().map_err(|_| malformed())?;
        let keys = keys.iter().filter_map(text).map(str::to_owned).collect();
        Ok((text(&next).unwrap_or(START).to_owned(), keys))
    }

    /// Adds these records, and returns how many of the keys are sessions.
    async fn index_sessions(&self, keys: Vec<String>) -> Result<u64, StoreError> {
        let adding = stream::iter(keys).map(|key| async move { self.index_session(&key).await });
        let added: Vec<bool> = adding.buffer_unordered(AT_ONCE).try_collect().await?;
        let added = added.into_iter().filter(|is_added| *is_added);
        Ok(u64::try_from(added.count()).unwrap_or(u64::MAX))
    }

    async fn index_session(&self, key: &str) -> Result<bool, StoreError> {
        for _ in 0..ATTEMPTS_MAX {
            match self.try_to_index(key).await? {
                IndexingOutcome::Changed => {}
                IndexingOutcome::Session => return Ok(true),
                IndexingOutcome::Nothing => return Ok(false),
            }
        }
        let why = "BUSY other gateways change a session all the time";
        Err(StoreError::NotReady(NotReady::Answered(why.into())))
    }

    async fn try_to_index(&self, key: &str) -> Result<IndexingOutcome, StoreError> {
        let mut call = ScriptCall::default();
        call.run("HGETALL", key, &[]);
        let held_ms = BUILDING_FOR.as_millis().to_string();
        call.run("SET", &self.keys.indexing(), &["1", "PX", &held_ms]);
        let mut reply = match call.send(&self.link, Resend::Once).await {
            Ok(reply) => reply,
            // A key that is no hash is no session.
            Err(StoreError::NotReady(NotReady::Answered(text)))
                if text.starts_with("WRONGTYPE") =>
            {
                return Ok(IndexingOutcome::Nothing);
            }
            Err(error) => return Err(error),
        };
        let fields = reply.fields()?;
        let Some((key, record)) = self.record_of(key, &fields) else {
            return Ok(IndexingOutcome::Nothing);
        };
        let mut call = ScriptCall::default();
        call.check_hash(key.secret(), &fields);
        index::write(&mut call, &self.keys, &key, None, Some(&record));
        let written = call.send(&self.link, Resend::Once).await?;
        Ok(match written.has_run() {
            true => IndexingOutcome::Session,
            false => IndexingOutcome::Changed,
        })
    }
}
