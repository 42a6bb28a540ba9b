//! One Redis as the rules see it: keys that hold hash fields, two clocks, and what it heard of the workers.
//!
//! Every command goes through the stored form and back, and is judged by the [`History`] before its answer is given.

use std::collections::{BTreeMap, VecDeque};

use mooring_session::codec::{Changes, changes, decode};
use mooring_session::names::{Address, WorkerId};
use mooring_session::record::Record;
use mooring_session::time::{Millis, Monotonic, Timestamp};
use mooring_session::workers::{Beat, Drain, Workers, WorkersAt};
use mooring_session::{Context, Liveness, NoIndex, RecordChange, Tuning};

use crate::invariants::{History, Step};
use crate::support::{Command, Outcome, Reply, assert_written};

/// The fields of one hash.
type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

/// Written by a newer module, and to be kept.
const UNKNOWN_FIELD: (&[u8], &[u8]) = (b"x:later", b"kept \xff");
/// How many of a key's last commands a failure shows.
const TRACE_STEPS: usize = 25;
pub(crate) const WORKER_GRACE: Millis = Millis::new(15_000);
pub(crate) const BEAT_TTL: Millis = Millis::new(1_500);

pub(crate) struct Node {
    hashes: BTreeMap<String, Fields>,
    workers: Workers,
    /// How often each worker came to life, so that two deaths of one are told apart.
    lives: BTreeMap<WorkerId, u64>,
    /// A promoted node has heard of no death, and may tell it again.
    promotions: u64,
    floor: u64,
    wall: u64,
    mono: u64,
    tuning: Tuning,
    history: History,
    trace: BTreeMap<String, VecDeque<String>>,
    /// What happened, by name, so that a run can show that it was not idle.
    pub(crate) events: BTreeMap<&'static str, u64>,
}

/// The records as they were at one moment.
pub(crate) struct Replica {
    hashes: BTreeMap<String, Fields>,
    history: History,
}

impl Node {
    pub(crate) fn new(wall: u64, tuning: Tuning) -> Self {
        Self {
            hashes: BTreeMap::new(),
            workers: Workers::new(Monotonic::from_ms(0), WORKER_GRACE),
            lives: BTreeMap::new(),
            promotions: 0,
            floor: 0,
            wall,
            mono: 0,
            tuning,
            history: History::default(),
            trace: BTreeMap::new(),
            events: BTreeMap::new(),
        }
    }

    /// Lets both clocks run on.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.wall += ms;
        self.mono += ms;
    }

    /// Sets the wall clock off by so many milliseconds.
    pub(crate) fn step_clock(&mut self, by_ms: i64) {
        self.wall = self.wall.saturating_add_signed(by_ms);
        self.note("clock stepped");
    }

    /// Forgets what was heard of the workers, as a promoted replica has never heard it.
    pub(crate) fn promote(&mut self) {
        self.workers = Workers::new(Monotonic::from_ms(self.mono), WORKER_GRACE);
        self.promotions += 1;
        self.note("promoted");
    }

    /// What a replica has got so far.
    pub(crate) fn replica(&self) -> Replica {
        Replica {
            hashes: self.hashes.clone(),
            history: self.history.clone(),
        }
    }

    /// Promotes a replica: the writes since then are lost.
    pub(crate) fn fail_over_to(&mut self, replica: Replica) {
        self.hashes = replica.hashes;
        self.history.lose_writes(replica.history);
        self.floor = 0;
        self.promote();
    }

    pub(crate) fn beat(&mut self, worker: &WorkerId, drain: Drain) {
        let was_alive = self.is_alive(worker);
        let beat = Beat {
            worker: worker.clone(),
            address: Address::parse(b"10.0.0.1:4000").unwrap(),
            ttl: BEAT_TTL,
            drain,
        };
        let (mono, now) = (
            Monotonic::from_ms(self.mono),
            Timestamp::from_unix_ms(self.wall),
        );
        if self.workers.beat(beat, mono, now).is_ok() && !was_alive {
            *self.lives.entry(worker.clone()).or_default() += 1;
        }
    }

    pub(crate) fn gone(&mut self, worker: &WorkerId) {
        self.workers.gone(worker, Monotonic::from_ms(self.mono));
    }

    fn is_alive(&self, worker: &WorkerId) -> bool {
        self.workers
            .at(Monotonic::from_ms(self.mono))
            .is_alive(worker)
    }

    fn context<'a>(&'a self, workers: &'a WorkersAt<'a>) -> Context<'a> {
        Context {
            now: Timestamp::from_unix_ms(self.wall),
            floor: self.floor,
            tuning: &self.tuning,
            workers,
            node: &NoIndex,
        }
    }

    pub(crate) const fn wall(&self) -> u64 {
        self.wall
    }

    /// The record under `key`, once what Redis would have dropped is dropped.
    pub(crate) fn record(&mut self, key: &str) -> Option<Record> {
        let record = self.hashes.get(key).map(read)?;
        if self.wall >= record.tombstone_ends_at(&self.tuning).unix_ms() {
            self.hashes.remove(key);
            let workers = self.workers.at(Monotonic::from_ms(self.mono));
            self.floor = self.context(&workers).floor_after(None);
            self.history.dropped(key);
            self.note("key dropped");
            return None;
        }
        Some(record)
    }

    /// Runs one command and judges what it came to.
    pub(crate) fn apply(&mut self, key: &str, command: &Command) -> Outcome {
        let before = self.record(key);
        let mut after = before.clone();
        let workers = self.workers.at(Monotonic::from_ms(self.mono));
        let context = Context {
            now: Timestamp::from_unix_ms(self.wall),
            floor: self.floor,
            tuning: &self.tuning,
            workers: &workers,
            node: &NoIndex,
        };
        let outcome = command.run(&mut after, key.as_bytes(), &context);
        let trace = self.trace.entry(key.to_owned()).or_default();
        trace.push_back(format!("{} {command:?}\n    -> {outcome:?}", self.wall));
        if trace.len() > TRACE_STEPS {
            trace.pop_front();
        }
        let step = Step {
            key,
            command,
            outcome: &outcome,
            before: before.as_ref(),
            after: after.as_ref(),
            context: &context,
            lives: &self.lives,
            promotions: self.promotions,
        };
        let verdict = self
            .history
            .observe(&step)
            .and_then(|()| check_retry(&step));
        if let Err(violation) = verdict {
            let steps: Vec<_> = trace.iter().map(String::as_str).collect();
            panic!("{violation}\nthe last commands:\n{}", steps.join("\n"));
        }
        assert_written(before.as_ref(), after.as_ref(), &outcome);
        if outcome.is_ok() {
            self.floor = context.floor_after(
                after
                    .as_ref()
                    .map(|record| record.numbers_to_follow(context.now)),
            );
        }
        self.write(key, after.as_ref(), &outcome);
        self.note(crate::invariants::event(command, &outcome));
        outcome
    }

    fn write(&mut self, key: &str, after: Option<&Record>, outcome: &Outcome) {
        let Ok(decided) = outcome else { return };
        let Some(after) = after else {
            if let Reply::Forget(floor) = decided.reply {
                self.floor = self.floor.max(floor);
            }
            self.hashes.remove(key);
            return;
        };
        let fields = self.hashes.entry(key.to_owned()).or_insert_with(|| {
            BTreeMap::from([(UNKNOWN_FIELD.0.to_vec(), UNKNOWN_FIELD.1.to_vec())])
        });
        let changes = changes(pairs(fields), after);
        match decided.written {
            RecordChange::Nothing => assert_eq!(changes, Changes::default(), "fields to write"),
            RecordChange::Lifetime => {
                let set: Vec<_> = changes
                    .set
                    .iter()
                    .map(|(field, _)| field.as_str())
                    .collect();
                assert_eq!((set, changes.delete.len()), (vec!["s"], 0), "only s slides");
            }
            RecordChange::Record | RecordChange::Removed => {}
        }
        for field in &changes.delete {
            assert!(
                fields.remove(field.as_bytes()).is_some(),
                "{field} is there"
            );
        }
        for (field, value) in changes.set {
            fields.insert(field.into_bytes(), value.into_bytes());
        }
        assert_eq!(read(fields), *after, "the stored form lost something");
        assert_eq!(
            fields.get(UNKNOWN_FIELD.0).map(Vec::as_slice),
            Some(UNKNOWN_FIELD.1)
        );
    }

    fn note(&mut self, event: &'static str) {
        *self.events.entry(event).or_default() += 1;
    }
}

/// The same command once more in the same moment, as after a lost reply: a holder is told the same.
fn check_retry(step: &Step<'_>) -> Result<(), String> {
    let Ok(first) = step.outcome else {
        return Ok(());
    };
    let keeps_its_answer = match (&first.reply, step.command) {
        (Reply::Bind(reply), _) => reply.won,
        (Reply::Rebind(reply), _) => reply.won,
        (Reply::Confirm(_) | Reply::Touch(_) | Reply::Claim(_), _) => true,
        _ => false,
    };
    if !keeps_its_answer {
        return Ok(());
    }
    let mut slot = step.after.cloned();
    let again = step
        .command
        .run(&mut slot, step.key.as_bytes(), step.context);
    match again {
        Ok(again) if again.reply == first.reply && slot.as_ref() == step.after => Ok(()),
        other => Err(format!("a retry at once came to {other:?}")),
    }
}

fn read(fields: &Fields) -> Record {
    decode(pairs(fields)).unwrap()
}

fn pairs(fields: &Fields) -> impl Iterator<Item = (&[u8], &[u8])> {
    fields
        .iter()
        .map(|(field, value)| (field.as_slice(), value.as_slice()))
}
