//! The rules over a map: what the module ought to do.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use mooring_session::record::Record;
use mooring_session::time::{Millis, Monotonic, Timestamp};
use mooring_session::workers::Workers;
use mooring_session::{Context, Decision, NoIndex, Refusal, Tuning, rules};

use super::drawn::{Drawn, Request};
use super::wire;
use crate::resp::Value;

/// As long as the server's.
const GRACE: Millis = Millis::new(600_000);

/// A node that is nothing but a map.
pub(super) struct Model {
    records: BTreeMap<String, Record>,
    workers: RefCell<Workers>,
    floor: u64,
    tuning: Tuning,
}

/// What a command comes to.
pub(super) struct Outcome {
    pub(super) reply: Value,
    pub(super) record: Option<Record>,
    floor: u64,
}

impl Outcome {
    /// Whether the rules said no.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self.reply, Value::Error(_))
    }
}

impl Model {
    /// Nothing is held, nobody is known.
    pub(super) fn new() -> Self {
        Self {
            records: BTreeMap::new(),
            workers: RefCell::new(Workers::new(Monotonic::default(), GRACE)),
            floor: 0,
            tuning: Tuning::default(),
        }
    }

    /// The record under a key.
    pub(super) fn record(&self, key: &str) -> Option<&Record> {
        self.records.get(key)
    }

    /// Whether there is a record where a command goes.
    pub(super) fn holds(&self, drawn: &Drawn) -> bool {
        self.records.contains_key(&drawn.key)
    }

    /// When the key of a record may be dropped: at its tombstone's end, or a quarter of its TTL later at most.
    pub(super) fn ends_at(&self, record: &Record) -> RangeInclusive<i64> {
        let end = record.tombstone_ends_at(&self.tuning);
        let latest = end.plus(record.lifetime.ttl.divided_by(4));
        let moment = |at: Timestamp| i64::try_from(at.unix_ms()).expect("a moment of this age");
        moment(end)..=moment(latest)
    }

    /// What a command comes to at a moment. One of a worker happens at once; another only when it is accepted.
    pub(super) fn run(&self, drawn: &Drawn, now_ms: u64) -> Outcome {
        let now = Timestamp::from_unix_ms(now_ms);
        let told_of_worker = self.tell_of_worker(&drawn.request, now);
        let workers = self.workers.borrow();
        let alive = workers.at(Monotonic::default());
        let context = Context {
            now,
            floor: self.floor,
            tuning: &self.tuning,
            workers: &alive,
            node: &NoIndex,
        };
        let key = drawn.key.as_bytes();
        let mut record = self.records.get(&drawn.key).cloned();
        let slot = &mut record;
        let mut floor = self.floor;
        let reply = match &drawn.request {
            Request::Create(create) => told(rules::create(slot, create, &context), wire::created),
            Request::Touch(touch) => told(rules::touch(slot, touch, &context), wire::touched),
            Request::Get => told_of(rules::get(slot.as_ref(), &context), wire::record),
            Request::End(end) => told(rules::end(slot, end, &context), wire::ended),
            Request::Route(route) => told(rules::route(slot, route, &context), wire::routed),
            Request::Bind(bind) => told(rules::bind(slot, key, bind, &context), wire::bound),
            Request::Confirm(confirm) => {
                told(rules::confirm(slot, confirm, &context), wire::binding)
            }
            Request::Rebind(rebind) => {
                told(rules::rebind(slot, key, rebind, &context), wire::rebound)
            }
            Request::Unbind(unbind) => told(rules::unbind(slot, unbind, &context), wire::binding),
            Request::Claim(claim) => told(rules::claim(slot, claim, &context), wire::record),
            Request::Forget(forget) => told(rules::forget(slot, forget, &context), |least| {
                floor = floor.max(*least);
                wire::forgotten()
            }),
            Request::Beat(_) | Request::Gone(_) => told_of_worker,
            Request::Delete => Value::Integer(i64::from(record.take().is_some())),
        };
        if record.is_some() {
            floor = floor.max(
                context.floor_after(
                    record
                        .as_ref()
                        .map(|record| record.numbers_to_follow(context.now)),
                ),
            );
        }
        Outcome {
            reply,
            record,
            floor,
        }
    }

    fn tell_of_worker(&self, request: &Request, now: Timestamp) -> Value {
        let mono = Monotonic::default();
        let mut workers = self.workers.borrow_mut();
        match request {
            Request::Beat(beat) => {
                let beaten = workers.beat(beat.clone(), mono, now);
                beaten.map_or_else(
                    |refusal| Value::Error(refusal.to_string()),
                    |()| wire::alive(),
                )
            }
            Request::Gone(worker) => wire::gone(workers.gone(worker, mono)),
            _ => Value::Null,
        }
    }

    /// What the numbers of a new record exceed.
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// Takes the floor from the server, after a key was dropped: which millisecond that was is the server's to say. It
    /// is the least that the rules allow.
    pub(super) fn take_floor(&mut self, floor: u64, dropped_from_ms: u64, dropped_to_ms: u64) {
        let number_at = |unix_ms| Timestamp::from_unix_ms(unix_ms).least_number();
        let least = self.floor.max(number_at(dropped_from_ms));
        assert!(
            (least..=self.floor.max(number_at(dropped_to_ms))).contains(&floor),
            "the floor is {floor}, not {least}"
        );
        self.floor = floor;
    }

    /// Asking for the floor has raised it.
    pub(super) fn raise_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
    }

    /// Takes a command's outcome for what happened.
    pub(super) fn accept(&mut self, drawn: &Drawn, outcome: Outcome) {
        self.floor = outcome.floor;
        match outcome.record {
            Some(record) => self.records.insert(drawn.key.clone(), record),
            None => self.records.remove(&drawn.key),
        };
    }
}

fn told<T>(decided: Result<Decision<T>, Refusal>, show: impl FnOnce(&T) -> Value) -> Value {
    told_of(decided.map(|decided| decided.reply), show)
}

fn told_of<T>(reply: Result<T, Refusal>, show: impl FnOnce(&T) -> Value) -> Value {
    match reply {
        Ok(reply) => show(&reply),
        Err(refusal) => Value::Error(refusal.to_string()),
    }
}
