//! The WORKER commands except WORKER.WAIT, and a setting of Redis.

use std::collections::{BTreeMap, HashMap};

use mooring_session::names::{Address, WorkerId};
use mooring_session::workers::{Beat, Drain};
use redis::Value;

use super::failure::invalid_reply;
use super::reply::{self, Fields, Problem};
use super::servers::Servers;
use super::{RedisStore, Resend};
use crate::error::StoreError;
use crate::workers::WorkerView;

impl RedisStore {
    pub(crate) async fn beat(&self, beat: &Beat) -> Result<(), StoreError> {
        match &self.scripted {
            Some(scripted) => scripted.beat(beat).await?,
            None => self.beat_at_all(beat).await?,
        }
        match &self.servers {
            Servers::One(one) => self.marker.renew(&one.link).await,
            // Gateways without the module use no cluster, and a marker would tie all heartbeats to the primary of its slot.
            Servers::Cluster(_) => Ok(()),
        }
    }

    async fn beat_at_all(&self, beat: &Beat) -> Result<(), StoreError> {
        let name = "WORKER.BEAT";
        let mut command = redis::cmd(name);
        command
            .arg((beat.worker.as_str(), beat.address.as_str()))
            .arg(("TTL", beat.ttl.get()))
            .arg((beat.drain == Drain::Draining).then_some("DRAINING"));
        // A worker is alive at every primary or fences itself, so one that is away fails the heartbeat.
        let replies = self.servers.send_to_all(&command, Resend::Once).await;
        replies.all(name).map(drop)
    }

    pub(crate) async fn gone(&self, worker: &WorkerId) -> Result<bool, StoreError> {
        if let Some(scripted) = &self.scripted {
            return scripted.gone(worker).await;
        }
        let name = "WORKER.GONE";
        let mut command = redis::cmd(name);
        command.arg(worker.as_str());
        let replies = self.servers.send_to_all(&command, Resend::Once).await;
        let was_alive = replies.all(name)?.into_iter().map(reply::was_alive);
        let was_alive: Result<Vec<bool>, Problem> = was_alive.collect();
        Ok(was_alive.map_err(invalid_reply(name))?.contains(&true))
    }

    /// The setting `hash-max-listpack-value`, of several servers the lowest; none where they have none of this name.
    pub(crate) async fn listpack_value_bytes(&self) -> Result<Option<u64>, StoreError> {
        // A managed server refuses CONFIG.
        if self.scripted.is_some() {
            return Ok(None);
        }
        let name = "CONFIG";
        let mut command = redis::cmd(name);
        command.arg(("GET", "hash-max-listpack-value"));
        let replies = self.servers.send_to_all(&command, Resend::Once).await;
        let mut lowest: Option<u64> = None;
        for value in replies.all(name)? {
            let pairs: BTreeMap<String, String> = redis::from_redis_value(value)
                .map_err(|error| invalid_reply(name)(error.to_string()))?;
            let bytes = pairs.into_values().next();
            let bytes = bytes.and_then(|value| value.parse().ok());
            lowest = [lowest, bytes].into_iter().flatten().min();
        }
        Ok(lowest)
    }

    pub(crate) async fn workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        if let Some(scripted) = &self.scripted {
            return scripted.workers().await;
        }
        let name = "WORKER.LIST";
        let replies = self
            .servers
            .send_to_all(&redis::cmd(name), Resend::Once)
            .await;
        let (replies, is_complete) = replies.some(name)?;
        let lists = replies.into_iter().map(workers);
        let lists: Result<Vec<_>, Problem> = lists.collect();
        Ok(merge(lists.map_err(invalid_reply(name))?, is_complete))
    }
}

/// The workers of all primaries. Of one that is away the bindings are not known.
fn merge(lists: Vec<Vec<WorkerView>>, is_complete: bool) -> Vec<WorkerView> {
    let mut merged: Vec<WorkerView> = Vec::new();
    let mut places: HashMap<WorkerId, usize> = HashMap::new();
    for view in lists.into_iter().flatten() {
        let place = places.get(&view.worker);
        let Some(known) = place.and_then(|place| merged.get_mut(*place)) else {
            places.insert(view.worker.clone(), merged.len());
            merged.push(view);
            continue;
        };
        known.alive |= view.alive;
        if view.drain == Drain::Draining {
            known.drain = Drain::Draining;
        }
        known.last_beat_at = known.last_beat_at.max(view.last_beat_at);
        let bindings = known.bindings.zip(view.bindings);
        known.bindings = bindings.map(|(one, other)| one.saturating_add(other));
    }
    if !is_complete {
        for view in &mut merged {
            view.bindings = None;
        }
    }
    merged
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
