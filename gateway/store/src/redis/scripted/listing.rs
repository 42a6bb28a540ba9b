//! LIST and REAP over the indexes.
//!
//! Invariants: an index names candidates, and the records decide; one call examines a bounded number of them; those whose
//! record is gone are taken out when they are met.

use mooring_session::SessionPlace;
use mooring_session::Tuning;
use mooring_session::context::{Context, NoIndex};
use mooring_session::events::EventMailboxes;
use mooring_session::index::Order;
use mooring_session::names::{NameError, Problem, WorkerId, parse_integer};
use mooring_session::record::Record;
use mooring_session::refusal::Refusal;
use mooring_session::time::{Millis, Monotonic, Timestamp};
use mooring_session::turns::Turns;
use mooring_session::view::RecordView;

use super::super::link_state::Resend;
use super::ScriptedStore;
use super::attempts::decode;
use super::script::{HashFields, ScriptCall};
use crate::error::StoreError;
use crate::key::{Family, SessionKey};
use crate::lock::lock;
use crate::query::{Cursor, PAGE_MAX, SessionPage, SessionQuery};
use crate::reaping::is_due;

/// Most sessions that one call examines.
const EXAMINED_MAX: usize = 2_000;
/// How many records are read at once.
const BATCH: usize = 200;

/// A record with its key; none if it cannot be read, or is gone.
type FoundRecord = Option<(SessionKey, Record)>;

/// A place in the order of creation: a moment, and how many sessions of that moment came before.
#[derive(Clone, Copy, Debug, Default)]
struct ListPlace {
    created_at: u64,
    skipped: usize,
}

impl ListPlace {
    fn parse(cursor: &Cursor) -> Result<Self, Refusal> {
        let what = "cursor";
        let (moment, skipped) = cursor.as_str().split_once('-').ok_or(NameError {
            what,
            problem: Problem::Alphabet("what the page before answered is expected"),
        })?;
        let skipped = parse_integer(what, skipped.as_bytes(), 0, u64::from(u32::MAX))?;
        Ok(Self {
            created_at: parse_integer(what, moment.as_bytes(), 0, u64::MAX)?,
            skipped: usize::try_from(skipped).unwrap_or(usize::MAX),
        })
    }

    /// The place after one more session of this moment.
    const fn after(self, created_at: u64) -> Self {
        let skipped = match created_at == self.created_at {
            true => self.skipped + 1,
            false => 1,
        };
        Self {
            created_at,
            skipped,
        }
    }
}

impl ScriptedStore {
    pub(in super::super) async fn list(
        &self,
        query: &SessionQuery,
    ) -> Result<SessionPage, StoreError> {
        let filter = query
            .filter(self.keys.prefix())
            .map_err(StoreError::Refused)?;
        let mut at = query.cursor.as_ref().map(ListPlace::parse).transpose()?;
        let count = query.count.clamp(1, PAGE_MAX);
        let index = self.keys.created(query.family);
        let (mut sessions, mut examined, mut complete) = (Vec::new(), 0, false);
        loop {
            let mut call = ScriptCall::default();
            let from = at.map(|at| at.created_at.to_string());
            let skipped = at.map_or(0, |at| at.skipped).to_string();
            let limits = ["WITHSCORES", "LIMIT", &skipped, &BATCH.to_string()];
            let (name, ends) = match query.order {
                Order::Newest => (
                    "ZREVRANGEBYSCORE",
                    [from.as_deref().unwrap_or("+inf"), "-inf"],
                ),
                Order::Oldest => ("ZRANGEBYSCORE", [from.as_deref().unwrap_or("-inf"), "+inf"]),
            };
            call.run(name, &index, &[&ends[..], &limits[..]].concat());
            call.run("GET", &self.keys.indexed(), &[]);
            let mut reply = call.send(&self.link, Resend::Once).await?;
            let members = reply.texts()?;
            complete = complete || reply.text()?.is_some();
            let mut named = Vec::new();
            for pair in members.chunks_exact(2) {
                if let [member, score] = pair {
                    named.push((member.clone(), score.parse().unwrap_or(0)));
                }
            }
            let is_last_batch = named.len() < BATCH;
            let members = named.iter().map(|(member, _)| member.clone()).collect();
            let (records, now, mono) = self.read_records(query.family, members).await?;
            let gateways = lock(&self.gateways);
            let context = Context {
                now,
                floor: 0,
                tuning: &Tuning::default(),
                workers: &gateways.workers.at(mono),
                node: &NoIndex,
            };
            let of_batch = records.len();
            for (place, ((_, created_at), record)) in named.into_iter().zip(records).enumerate() {
                at = Some(at.unwrap_or_default().after(created_at));
                examined += 1;
                if let Some((key, record)) = record
                    && filter.admits(key.secret().as_bytes(), &record, now)
                {
                    sessions.push((key, RecordView::of(&record, &context)));
                }
                let is_end = is_last_batch && place + 1 == of_batch;
                if sessions.len() >= count || examined >= EXAMINED_MAX || is_end {
                    let cursor = at.filter(|_| !is_end);
                    let cursor = cursor.map(|at| format!("{}-{}", at.created_at, at.skipped));
                    return Ok(SessionPage {
                        complete,
                        cursor: cursor.as_deref().and_then(Cursor::of),
                        sessions,
                    });
                }
            }
            if is_last_batch {
                return Ok(SessionPage {
                    complete,
                    cursor: None,
                    sessions,
                });
            }
        }
    }

    /// The records of these keys, in their order.
    async fn read_records(
        &self,
        family: Family,
        members: Vec<String>,
    ) -> Result<(Vec<FoundRecord>, Timestamp, Monotonic), StoreError> {
        let mut call = ScriptCall::default();
        call.run("HGETALL", &self.keys.gateways(), &[]);
        for member in &members {
            call.run("HGETALL", member, &[]);
        }
        let mut reply = call.send(&self.link, Resend::Once).await?;
        let table = reply.fields()?;
        lock(&self.gateways).note_table(&table, reply.mono(), self.link.number());
        let (mut records, mut gone) = (Vec::new(), ScriptCall::default());
        let indexes = [self.keys.created(family), self.keys.due(family)];
        for member in &members {
            let fields = reply.fields()?;
            if fields.is_empty() {
                let indexes = indexes.each_ref().map(|index| gone.key(index).to_string());
                gone.run("prune", member, &indexes.each_ref().map(String::as_str));
            }
            records.push(
                self.record_of(member, &fields).filter(|(_, record)| {
                    record.tombstone_ends_at(&Tuning::default()) > reply.now()
                }),
            );
        }
        if !gone.is_empty() {
            gone.send(&self.link, Resend::Once).await?;
        }
        Ok((records, reply.now(), reply.mono()))
    }

    pub(super) fn record_of(&self, key: &str, fields: &HashFields) -> Option<(SessionKey, Record)> {
        let key = SessionKey::named(self.keys.prefix(), key.as_bytes())?;
        Some((key, decode(fields).ok()??))
    }

    /// The oldest come first. If one call examines its maximum, the next one continues after it, and starts over at the end.
    pub(in super::super) async fn reap(
        &self,
        worker: &WorkerId,
        family: Family,
        count: usize,
    ) -> Result<Vec<SessionKey>, StoreError> {
        let count = count.min(PAGE_MAX);
        let index = self.keys.due(family);
        let mut skipped = lock(&self.reaped_to).remove(&family).unwrap_or(0);
        let (mut due, mut examined) = (Vec::new(), 0);
        while due.len() < count && examined < EXAMINED_MAX {
            let mut call = ScriptCall::default();
            let limits = [
                "-inf",
                "now",
                "LIMIT",
                &skipped.to_string(),
                &BATCH.to_string(),
            ];
            call.run("ZRANGEBYSCORE", &index, &limits);
            let mut reply = call.send(&self.link, Resend::Once).await?;
            if !self.believes_the_clock(reply.now()) {
                return Ok(Vec::new());
            }
            let members = reply.texts()?;
            let is_last_batch = members.len() < BATCH;
            examined += members.len();
            skipped += members.len();
            let (records, now, mono) = self.read_records(family, members).await?;
            {
                let gateways = lock(&self.gateways);
                let workers = gateways.workers.at(mono);
                let records = records.into_iter().flatten();
                let wanted = records.filter(|(_, record)| is_due(record, worker, &workers, now));
                due.extend(wanted.map(|(key, _)| key));
            }
            if is_last_batch {
                skipped = 0;
                break;
            }
        }
        if skipped > 0 {
            lock(&self.reaped_to).insert(family, skipped);
        }
        let mut keys = self.without_turns(due).await?;
        keys.truncate(count);
        Ok(keys)
    }

    /// Those of these sessions without holders of turns and without waiters.
    async fn without_turns(&self, due: Vec<SessionKey>) -> Result<Vec<SessionKey>, StoreError> {
        let mut call = ScriptCall::default();
        for key in &due {
            call.run("GET", &self.keys.turns(key), &[]);
        }
        let mut reply = call.send(&self.link, Resend::Once).await?;
        let mut free = Vec::new();
        for key in due {
            let text = reply.text()?.unwrap_or_default();
            let place = SessionPlace::new(0, key.secret().as_bytes());
            let mut turns = Turns::new(reply.mono(), Millis::new(0));
            let read = turns.restore_session(&place, &text, &mut EventMailboxes::new());
            if read.is_err() || !turns.holds(&place, None, reply.mono()) {
                free.push(key);
            }
        }
        Ok(free)
    }

    fn believes_the_clock(&self, now: Timestamp) -> bool {
        let mono = self.clock.mono();
        let watch = &mut lock(&self.clock_watch);
        if let Some(step) = watch.observe(now, mono) {
            tracing::warn!(
                by_ms = step.by_ms,
                "the clock of redis was set: nothing is cleaned up for a minute"
            );
        }
        watch.reaping_allowed(mono)
    }
}
