//! Reads for a step on a session, lets it decide, and writes what was decided.
//!
//! Invariant: what is written was decided on what is stored at that moment: the script compares what was read with what
//! is there, and writes nothing if it differs. Then the step is done again, a bounded number of times.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mooring_session::codec;
use mooring_session::context::{PrincipalSessions, RecordChange};
use mooring_session::events::{EventMailboxes, MailboxEvent};
use mooring_session::limits::MAILBOX_EVENTS_MAX;
use mooring_session::names::{InstanceName, ServerName, WorkerId};
use mooring_session::record::Record;
use mooring_session::refusal::Refusal;
use mooring_session::time::{Millis, Monotonic, Timestamp};
use mooring_session::turns::Turns;
use mooring_session::{SessionPlace, Tuning};

use super::super::link_state::Resend;
use super::ScriptedStore;
use super::gateways::GatewaysAt;
use super::index;
use super::script::{HashFields, ScriptCall, ScriptReply};
use super::step::{LIMITS, Reads, Step};
use crate::error::{NotReady, StoreError};
use crate::key::SessionKey;
use crate::lock::lock;

/// Most attempts of a step that others change the session in between.
pub(super) const ATTEMPTS_MAX: u32 = 64;
/// Longest pause before another attempt.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// How long the turns of a session are remembered after the last step: longer than any lease.
const TURNS_KEPT: Millis = Millis::new(60 * 60 * 1_000);
/// How long events wait for their gateway.
const EVENTS_KEPT: Millis = Millis::new(60_000);

/// Lets others go first who change the same, the longer the more often they did.
pub(super) async fn pause_before(attempt: u32) {
    if attempt > 1 {
        let pause = PAUSE_MAX.mul_f64(f64::from(attempt.min(16)) / 16.0);
        tokio::time::sleep(pause.mul_f64(rand::random_range(0.0..1.0))).await;
    }
}

impl ScriptedStore {
    /// Reads, decides, and writes, again if others were faster. Without anything to write it is one round trip, otherwise
    /// two.
    pub(super) async fn step<R>(
        &self,
        key: &SessionKey,
        mut reads: Reads,
        resend: Resend,
        decide: impl Fn(&mut Step<'_>) -> Result<R, Refusal>,
    ) -> Result<R, StoreError> {
        for attempt in 0..ATTEMPTS_MAX {
            pause_before(attempt).await;
            let read = self.read(key, &reads).await?;
            match self.decide_on(key, read, &mut reads, &decide) {
                Attempt::Again => {}
                Attempt::Done(result) => return result.map_err(StoreError::Refused),
                Attempt::Write(call, result, departed) => {
                    let reply = call.send(&self.link, resend).await?;
                    if reply.has_run() {
                        if let Some((server, instance)) = departed {
                            lock(&self.departures).note(&server, &instance, reply.mono());
                        }
                        return result.map_err(StoreError::Refused);
                    }
                }
            }
        }
        let why = "BUSY other gateways change the session all the time";
        Err(StoreError::NotReady(NotReady::Answered(why.into())))
    }

    async fn read(&self, key: &SessionKey, reads: &Reads) -> Result<StepRead, StoreError> {
        let keys = &self.keys;
        let mut call = ScriptCall::default();
        call.run("HGETALL", key.secret(), &[]);
        let reads_gateways = reads.gateways || !lock(&self.gateways).is_fresh();
        if reads_gateways {
            call.run("HGETALL", &keys.gateways(), &[]);
        }
        if reads.turns {
            call.run("GET", &keys.turns(key), &[]);
        }
        if reads.floor {
            call.run("GET", &keys.floor(), &[]);
        }
        if let Some((server, instances)) = &reads.instances {
            for instance in instances {
                call.run("ZCOUNT", &keys.instance(server, instance), &["now", "+inf"]);
            }
        }
        if let Some(principal) = &reads.principal {
            let index = keys.principal(key.family(), principal);
            call.run("GET", &keys.indexed(), &[]);
            call.run("ZCOUNT", &index, &["now", "+inf"]);
            call.run("ZRANGEBYSCORE", &index, &["now", "+inf", "LIMIT", "0", "2"]);
            call.run("ZSCORE", &index, &[key.secret()]);
        }
        let mut reply = call
            .send(&self.link, Resend::Once)
            .await
            .map_err(not_a_hash)?;
        let mut read = StepRead {
            fields: reply.fields()?,
            turns: None,
            floor: 0,
            fullness: BTreeMap::new(),
            held: None,
            has_gateways: reads_gateways,
            now: reply.now(),
            mono: reply.mono(),
        };
        if reads_gateways {
            let table = reply.fields()?;
            lock(&self.gateways).note_table(&table, reply.mono(), self.link.number());
        }
        if reads.turns {
            read.turns = Some(reply.text()?);
        }
        if reads.floor {
            read.floor = reply
                .text()?
                .and_then(|text| text.parse().ok())
                .unwrap_or(0);
        }
        if let Some((_, instances)) = &reads.instances {
            for instance in instances {
                read.fullness.insert(instance.clone(), reply.number()?);
            }
        }
        if reads.principal.is_some() {
            read.held = held(&mut reply, key)?;
        }
        Ok(read)
    }

    fn decide_on<R>(
        &self,
        key: &SessionKey,
        read: StepRead,
        reads: &mut Reads,
        decide: &impl Fn(&mut Step<'_>) -> Result<R, Refusal>,
    ) -> Attempt<R> {
        let (now, mono) = (read.now, read.mono);
        let stored = match read.record() {
            Ok(stored) => stored,
            Err(refusal) => return Attempt::Done(Err(refusal)),
        };
        let place = SessionPlace::new(0, key.secret().as_bytes());
        let numbers = stored
            .as_ref()
            .map_or(0, |record| record.numbers_to_follow(now));
        let is_living = |record: &Record| record.tombstone_ends_at(&Tuning::default()) > now;
        let gateways = lock(&self.gateways);
        let departures = lock(&self.departures);
        let workers = GatewaysAt {
            workers: &gateways.workers.at(mono),
            has_found_dead: Cell::new(false),
        };
        let before = stored.filter(is_living);
        let turns = (read.turns.as_ref())
            .map(|text| self.restore(&place, text.as_deref(), before.as_ref()));
        let mut step = Step {
            key,
            now,
            mono,
            slot: before.clone(),
            workers: &workers,
            floor: read.floor.max(numbers),
            place,
            turns,
            needs_turns: Cell::new(false),
            depends_on_record: false,
            written: RecordChange::Nothing,
            fullness: read.fullness.clone(),
            held: read.held.clone(),
            departures: &departures,
            departed: None,
        };
        let result = decide(&mut step);
        if step.turns.is_some() {
            step.advance();
        }
        let needs_turns = step.needs_turns.get() && step.turns.is_none();
        let needs_gateways = workers.has_found_dead.get() && !read.has_gateways;
        if needs_turns || needs_gateways {
            reads.turns |= needs_turns;
            reads.gateways |= needs_gateways;
            return Attempt::Again;
        }
        let mut call = ScriptCall::default();
        if step.written != RecordChange::Nothing || step.depends_on_record {
            call.check_hash(key.secret(), &read.fields);
        }
        if step.written != RecordChange::Nothing {
            self.write_record(&mut call, &read, &step, before.as_ref());
        }
        if let (Some((turns, events)), Some(text)) = (&mut step.turns, &read.turns) {
            self.write_turns(
                &mut call,
                key,
                text.as_deref(),
                (turns, events, &step.place),
            );
            self.plan_look(key, mono, turns, events, &step.place);
        }
        match call.is_empty() {
            true => Attempt::Done(result),
            false => Attempt::Write(call, result, step.departed),
        }
    }

    /// The turns of a session as stored. Those that cannot be read, which must have been edited by hand, count as none.
    fn restore(
        &self,
        place: &SessionPlace,
        text: Option<&str>,
        record: Option<&Record>,
    ) -> (Turns, EventMailboxes) {
        let quiet = self.admission.quiet_until();
        let new = || {
            let mut turns = Turns::new(quiet, Millis::new(0));
            let created_at = record.map_or(0, |record| record.lifetime.created_at.unix_ms());
            // Nobody had a turn of a session that did not exist.
            if created_at.saturating_add(LIMITS.lease_max.get()) >= quiet.ms() {
                turns.note_created(place, Monotonic::default());
            }
            (turns, EventMailboxes::new())
        };
        let (mut turns, mut events) = new();
        match turns.restore_session(place, text.unwrap_or_default(), &mut events) {
            Ok(()) => (turns, events),
            Err(error) => {
                tracing::error!(%error, "the turns of a session were dropped");
                new()
            }
        }
    }

    fn write_record(
        &self,
        call: &mut ScriptCall,
        read: &StepRead,
        step: &Step<'_>,
        before: Option<&Record>,
    ) {
        let key = step.key.secret();
        match &step.slot {
            Some(record) => {
                let fields = read.fields.iter();
                let fields = fields.map(|(field, value)| (field.as_slice(), value.as_slice()));
                let changes = codec::changes(fields, record);
                let words: Vec<&str> = (changes.set.iter())
                    .flat_map(|(field, value)| [field.as_str(), value.as_str()])
                    .collect();
                if !words.is_empty() {
                    call.run("HSET", key, &words);
                }
                let deleted: Vec<&str> = changes.delete.iter().map(String::as_str).collect();
                if !deleted.is_empty() {
                    call.run("HDEL", key, &deleted);
                }
                let ends_at = record.tombstone_ends_at(&Tuning::default()).unix_ms();
                call.run("PEXPIREAT", key, &[&ends_at.to_string()]);
                self.raise_floor(call, step, record.numbers_to_follow(step.now));
            }
            None => {
                call.run("DEL", key, &[]);
                let numbers = before.map_or(0, |record| record.numbers_to_follow(step.now));
                self.raise_floor(call, step, numbers.max(step.now.least_number()));
            }
        }
        index::write(call, &self.keys, step.key, before, step.slot.as_ref());
    }

    /// Numbers that are ahead of the clock are remembered, so that no later record has them again.
    fn raise_floor(&self, call: &mut ScriptCall, step: &Step<'_>, to: u64) {
        if to > step.floor && (step.slot.is_none() || to > step.now.least_number()) {
            call.run("SET", &self.keys.floor(), &[&to.to_string()]);
        }
    }

    fn write_turns(
        &self,
        call: &mut ScriptCall,
        key: &SessionKey,
        before: Option<&str>,
        (turns, events, place): (&Turns, &mut EventMailboxes, &SessionPlace),
    ) {
        let after = turns.store_session(place, events);
        let posted = posted(events);
        let is_changed = after != before.unwrap_or_default() || !posted.is_empty();
        if !is_changed && call.is_empty() {
            return;
        }
        // What is written to the record was decided on these turns too.
        let stored = self.keys.turns(key);
        call.check_text(&stored, before);
        if !is_changed {
            return;
        }
        call.run(
            "SET",
            &stored,
            &[&after, "PX", &TURNS_KEPT.get().to_string()],
        );
        for (worker, lines) in posted {
            let list = self.keys.events(&worker);
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            call.run("RPUSH", &list, &lines);
            call.run("LTRIM", &list, &[&format!("-{MAILBOX_EVENTS_MAX}"), "-1"]);
            call.run("PEXPIRE", &list, &[&EVENTS_KEPT.get().to_string()]);
        }
    }
}

/// The result of one attempt.
enum Attempt<R> {
    /// More has to be read.
    Again,
    /// Nothing has to be written.
    Done(Result<R, Refusal>),
    /// This has to be written, and then the instance that was left is noted.
    Write(
        ScriptCall,
        Result<R, Refusal>,
        Option<(ServerName, InstanceName)>,
    ),
}

/// What a step has read.
struct StepRead {
    fields: HashFields,
    /// The turns; the inner one is none if there are none.
    turns: Option<Option<String>>,
    floor: u64,
    fullness: BTreeMap<InstanceName, u64>,
    held: Option<PrincipalSessions>,
    has_gateways: bool,
    now: Timestamp,
    mono: Monotonic,
}

impl StepRead {
    fn record(&self) -> Result<Option<Record>, Refusal> {
        decode(&self.fields)
    }
}

/// The record in these fields; none if there are none.
pub(super) fn decode(fields: &HashFields) -> Result<Option<Record>, Refusal> {
    if fields.is_empty() {
        return Ok(None);
    }
    let fields = fields.iter();
    let fields = fields.map(|(field, value)| (field.as_slice(), value.as_slice()));
    Ok(codec::decode(fields).map(Some)?)
}

/// What the index says of a principal's sessions except this one; none while it is incomplete.
fn held(
    reply: &mut ScriptReply,
    key: &SessionKey,
) -> Result<Option<PrincipalSessions>, StoreError> {
    let is_complete = reply.text()?.is_some();
    let active = reply.number()?;
    let first = reply.texts()?;
    let score = reply.text()?.and_then(|score| score.parse::<u64>().ok());
    let is_counted = score.is_some_and(|score| score >= reply.now_ms);
    let other = first.into_iter().find(|member| member != key.secret());
    Ok(is_complete.then(|| PrincipalSessions {
        active: active.saturating_sub(u64::from(is_counted)),
        least_recently_used: other.map(|member| member.into_bytes().into()),
    }))
}

/// The events that were posted, as lines of the lists of their workers.
fn posted(events: &mut EventMailboxes) -> BTreeMap<WorkerId, BTreeSet<String>> {
    let mut posted: BTreeMap<WorkerId, BTreeSet<String>> = BTreeMap::new();
    while let Some(worker) = events.pop_fresh() {
        let lines = events.take(&worker, MAILBOX_EVENTS_MAX, |_| true);
        let lines = lines.iter().map(encode_event);
        posted.entry(worker).or_default().extend(lines);
    }
    posted
}

/// An event as a line: its name, server, ticket and turn, and the key.
fn encode_event(event: &MailboxEvent) -> String {
    let key = String::from_utf8_lossy(&event.session().key);
    match event {
        MailboxEvent::Turn {
            server,
            ticket,
            turn,
            ..
        } => format!("turn {server} {} {turn} {key}", ticket.as_str()),
        MailboxEvent::Withdrawn { server, ticket, .. } => {
            format!("withdrawn {server} {} 0 {key}", ticket.as_str())
        }
        MailboxEvent::Settled { server, .. } => format!("settled {server} - 0 {key}"),
    }
}

/// A key that holds something else is a session that cannot be read.
fn not_a_hash(error: StoreError) -> StoreError {
    match error {
        StoreError::NotReady(NotReady::Answered(text)) if text.starts_with("WRONGTYPE") => {
            let field = codec::CorruptRecord::field(b"(not a hash)");
            StoreError::Refused(Refusal::Corrupt(field))
        }
        error => error,
    }
}
