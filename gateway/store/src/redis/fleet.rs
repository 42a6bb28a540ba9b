//! The WORKER commands except WORKER.WAIT, and a setting of Redis.

use std::collections::BTreeMap;

use mooring_session::names::{Address, WorkerId};
use mooring_session::workers::{Beat, Drain};
use redis::Value;

use super::failure::invalid_reply;
use super::reply::{self, Fields, Problem};
use super::{RedisStore, Resend};
use crate::error::StoreError;
use crate::workers::WorkerView;

impl RedisStore {
    pub(crate) async fn beat(&self, beat: &Beat) -> Result<(), StoreError> {
        self.marker.renew(&self.link).await?;
        if let Some(scripted) = &self.scripted {
            return scripted.beat(beat).await;
        }
        let name = "WORKER.BEAT";
        let mut command = redis::cmd(name);
        command
            .arg((beat.worker.as_str(), beat.address.as_str()))
            .arg(("TTL", beat.ttl.get()))
            .arg((beat.drain == Drain::Draining).then_some("DRAINING"));
        self.send(&command, name, Resend::Once).await.map(drop)
    }

    pub(crate) async fn gone(&self, worker: &WorkerId) -> Result<bool, StoreError> {
        if let Some(scripted) = &self.scripted {
            return scripted.gone(worker).await;
        }
        let name = "WORKER.GONE";
        let mut command = redis::cmd(name);
        command.arg(worker.as_str());
        let value = self.send(&command, name, Resend::Once).await?;
        reply::was_alive(value).map_err(invalid_reply(name))
    }

    /// The setting `hash-max-listpack-value`; none where the server has none of this name.
    pub(crate) async fn listpack_value_bytes(&self) -> Result<Option<u64>, StoreError> {
        // A managed server refuses CONFIG.
        if self.scripted.is_some() {
            return Ok(None);
        }
        let name = "CONFIG";
        let mut command = redis::cmd(name);
        command.arg(("GET", "hash-max-listpack-value"));
        let value = self.send(&command, name, Resend::Once).await?;
        let pairs: BTreeMap<String, String> = redis::from_redis_value(value)
            .map_err(|error| invalid_reply(name)(error.to_string()))?;
        Ok(pairs
            .into_values()
            .next()
            .and_then(|value| value.parse().ok()))
    }

    pub(crate) async fn workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        if let Some(scripted) = &self.scripted {
            return scripted.workers().await;
        }
        let name = "WORKER.LIST";
        let value = self.send(&redis::cmd(name), name, Resend::Once).await?;
        workers(value).map_err(invalid_reply(name))
    }
}

/// Parses the reply of WORKER.LIST.
pub(super) fn workers(value: Value) -> Result<Vec<WorkerView>, Problem> {
    value
        .into_sequence()
        .map_err(|_| "it is not a list".to_owned())?
        .into_iter()
        .map(|value| {
            let mut fields = Fields::of(value)?;
            Ok(WorkerView {
                worker: fields.name("worker", WorkerId::parse)?,
                address: fields.name("address", Address::parse)?,
                alive: fields.truth("alive")?,
                drain: match fields.truth("draining")? {
                    true => Drain::Draining,
                    false => Drain::Serving,
                },
                last_beat_at: fields.moment("last_beat_at")?,
                bindings: fields.optional_number("bindings")?,
            })
        })
        .collect()
}
