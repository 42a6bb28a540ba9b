//! Serves sessions from memory while Redis is away, by the same rules, and notes in the [`journal`](super::journal) what
//! has to be sent to Redis when it returns.
//!
//! Code sessions are served even if they are unknown here: their paths are derived from their names, and file locks on
//! the volume work without Redis. Other sessions are served only if this gateway read or created them.
//!
//! A binding that was read with an owner is routed to that owner and never moved: only Redis knows who is dead. The owner
//! itself refuses once its heartbeats have not been stored for a while.
//!
//! Invariants: an unknown session fails with `UnavailableReason`, never with a refusal; no binding gets an owner here if
//! other gateways know its session.

use std::collections::BTreeMap;

use mooring_session::context::Liveness;
use mooring_session::limits::TTL_MAX;
use mooring_session::names::{Principal, Token};
use mooring_session::record::{Binding, LEAST_READER, Lifecycle, Phase, Record, SessionLifetime};
use mooring_session::time::{Monotonic, Timestamp};
use mooring_session::view::OwnerView;

use super::inits::Inits;
use super::journal::{Journal, Origin, ReadOrigin};
use super::memory_transition::{MemoryTransition, RequiredKnowledge};
use super::rates::Rates;
use super::sessions::{SESSIONS_MAX, Sessions};
use super::shadow::{SessionSnapshot, Shadow};
use crate::error::{StoreError, UnavailableReason};
use crate::key::{Family, SessionKey};

/// Most sessions of one outage, including ended and expired ones. Beyond it, unknown sessions fail with
/// `UnavailableReason`.
const REMEMBERED_MAX: usize = 2 * SESSIONS_MAX;

/// Everything that is known without Redis.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(super) shadow: Shadow,
    pub(super) inits: Inits,
    /// Rates while Redis is away: each gateway counts for itself.
    pub(super) rates: Rates,
    pub(super) away_since: Monotonic,
    /// Since when the server refuses commands as a replica, until it accepts one that it has refused, or a heartbeat.
    pub(super) replica_since: Option<Monotonic>,
    sessions: Sessions,
    workers: EveryWorkerAlive,
    pub(super) journal: Journal,
    /// Whether Redis has said lately that there is no other gateway. The others would refuse a session that is made here.
    pub(super) is_alone: bool,
    /// When Redis was last asked for others.
    pub(super) asked_for_others_at: Option<Monotonic>,
}

/// Liveness while Redis is away: it is unknown, so every worker counts as alive and none loses its connections.
#[derive(Debug, Default)]
pub(super) struct EveryWorkerAlive {
    /// The addresses of the owners of the sessions in memory, as they were read.
    addresses: BTreeMap<Box<str>, Box<str>>,
}

impl EveryWorkerAlive {
    fn learn(&mut self, owner: &OwnerView) {
        if let Some(address) = &owner.address {
            let worker: &str = &owner.worker;
            self.addresses.insert(worker.into(), address.clone());
        }
    }
}

impl Liveness for EveryWorkerAlive {
    fn is_alive(&self, _worker: &str) -> bool {
        true
    }

    fn is_draining(&self, _worker: &str) -> bool {
        false
    }

    fn address(&self, worker: &str) -> Option<&str> {
        self.addresses.get(worker).map(AsRef::as_ref)
    }
}

impl Memory {
    /// Serves a transition while Redis is away.
    ///
    /// # Errors
    /// `UnavailableReason` for an unknown session; otherwise the refusals of the rules.
    pub(super) fn serve<T: MemoryTransition>(
        &mut self,
        key: &SessionKey,
        request: &T,
        now: Timestamp,
    ) -> Result<T::Reply, StoreError> {
        let unknown = StoreError::Away(UnavailableReason::Unknown);
        if matches!(request.need(), RequiredKnowledge::Redis) {
            return Err(unknown);
        }
        if !self.journal.origins.contains_key(key) {
            let has_room = self.journal.origins.len() < REMEMBERED_MAX;
            let is_minted = !self.recall(key, request.user(), now);
            if is_minted && T::MINTS && key.family() == Family::Mcp && !self.is_alone {
                return Err(StoreError::Away(UnavailableReason::NotAlone));
            }
            if !has_room || (is_minted && !T::MINTS) {
                return Err(unknown);
            }
        }
        if !self.is_enough(key, request.need()) {
            return Err(unknown);
        }
        let reply = self.sessions.run(key, request, now, &self.workers)?;
        let origins = &mut self.journal.origins;
        origins.entry(key.clone()).or_insert(Origin::Minted);
        request.journal(key, &reply, &mut self.journal);
        Ok(reply)
    }

    /// Loads a session that was read before the outage, or a code session of this user, and returns whether there is
    /// one.
    fn recall(&mut self, key: &SessionKey, user: Option<&Principal>, now: Timestamp) -> bool {
        let read = self.shadow.usable(key, self.away_since);
        let of_user = || {
            let user = user.filter(|_| key.family() == Family::Code)?;
            Some(SessionSnapshot::without_record(
                user.clone(),
                self.away_since,
            ))
        };
        let Some(read) = read.or_else(of_user) else {
            return false;
        };
        let origin = ReadOrigin {
            epochs: read
                .bindings
                .iter()
                .map(|(server, binding)| (server.clone(), binding.view.epoch))
                .collect(),
            is_whole: read.record.is_some(),
            touch: None,
        };
        let owners: Vec<_> = (read.bindings.values())
            .filter_map(|binding| binding.view.owner.clone())
            .collect();
        let Some(record) = record_of(key, read, now) else {
            return false;
        };
        let has_room = self.sessions.adopt(key, record, now);
        if has_room {
            owners.iter().for_each(|owner| self.workers.learn(owner));
            let origins = &mut self.journal.origins;
            origins.insert(key.clone(), Origin::Read(origin));
        }
        has_room
    }

    fn is_enough(&self, key: &SessionKey, need: RequiredKnowledge<'_>) -> bool {
        let Some(Origin::Read(read)) = self.journal.origins.get(key) else {
            return true;
        };
        // An ended session needs no state: it is refused.
        self.journal.ends.contains_key(key)
            || match need {
                RequiredKnowledge::Session => true,
                RequiredKnowledge::Record | RequiredKnowledge::Binding(_)
                    if key.family() == Family::Code =>
                {
                    true
                }
                RequiredKnowledge::Record => read.is_whole,
                RequiredKnowledge::Binding(server) => read.epochs.contains_key(server),
                RequiredKnowledge::Store | RequiredKnowledge::Redis => false,
            }
    }

    /// Whether the session is known here and belongs to another principal.
    pub(super) fn is_foreign(&self, key: &SessionKey, principal: &Principal) -> bool {
        let record = self.sessions.record(key);
        record.is_some_and(|record| record.principal != *principal)
    }

    pub(super) fn session(&self, key: &SessionKey) -> Option<(Origin, Record)> {
        let origin = self.journal.origins.get(key)?;
        let record = self.sessions.record(key)?;
        Some((origin.clone(), record.clone()))
    }

    /// Forgets what was read of workers, once Redis tells it again.
    pub(super) fn forget_workers(&mut self) {
        self.workers = EveryWorkerAlive::default();
    }

    /// Forgets a session that was sent to Redis.
    pub(super) fn forget(&mut self, key: &SessionKey) {
        self.journal.forget(key);
        self.sessions.forget(key);
        self.shadow.forget(key);
    }
}

/// A record from what was read. Times that were not read are set so that the session does not expire.
fn record_of(key: &SessionKey, read: SessionSnapshot, now: Timestamp) -> Option<Record> {
    let ttl = read.record.as_ref().map_or(TTL_MAX, |record| record.ttl);
    let token = Token::parse(b"read-before-the-store-went-away").ok()?;
    let bindings: BTreeMap<_, _> = read
        .bindings
        .into_iter()
        .map(|(server, read)| {
            let binding = Binding {
                phase: Phase::Bound,
                instance: read.view.instance,
                upstream_session: read.view.upstream_session,
                owner: read.view.owner.map(|owner| owner.worker),
                driver: read.view.driver,
                epoch: read.view.epoch,
                bound_at: read.view.bound_at,
                rebinds: read.view.rebinds,
                last_reason: read.view.last_reason,
                token: token.clone(),
                previous: None,
                unreported_loss: None,
            };
            (server, binding)
        })
        .collect();
    let record = read.record.as_ref();
    Some(Record {
        id: record.map(|record| &record.id).or(key.id())?.clone(),
        principal: read.principal,
        generation: record.map_or(0, |record| record.generation),
        highest_epoch: bindings.values().map(|b| b.epoch).max().unwrap_or(0),
        lifetime: SessionLifetime {
            least_reader: LEAST_READER,
            lifecycle: Lifecycle::Active,
            created_at: record.map_or(now, |record| record.created_at),
            last_used_at: now,
            expires_at: now.plus(ttl),
            ttl,
        },
        content_hash: record.and_then(|record| record.content_hash.clone()),
        labels: read.record.map(|record| record.labels).unwrap_or_default(),
        bindings,
        cleaning: None,
    })
}
