//! Random traffic, by a clock that jumps either way: after every step the index says what the model says.

use std::collections::{BTreeMap, BTreeSet};

use mooring_session::index::{Filter, Glob, Index, Order, Reaper, SearchPart, StateCounts};
use mooring_session::record::{Record, SessionState};
use mooring_session::time::Timestamp;
use mooring_session::{DigestPrefix, SessionDigest, StepProgress, Tuning};
use proptest::prelude::*;

use crate::model::{Key, Model};
use crate::sessions::{Crew, Edit, SEED, at, prefix_of, session};
use crate::support::{instance, principal, server, worker};

const WORKERS: [&str; 3] = ["w:1", "w:2", "v:1"];
const PRINCIPALS: [&str; 3] = ["alice", "bob", "carol"];
const SERVERS: [&str; 3] = ["a", "b", "c"];
const INSTANCES: [&str; 3] = ["http://1", "http://2", "http://3"];
/// A key of every third number is under the longer prefix, and one that of an agent.
const KEYS: usize = 24;

fn key(number: usize) -> Key {
    let prefix = ["mcpgw:", "mcpgw:code:", "mcpgw:agent_session:b:zoe:"][number % 3];
    format!("{prefix}{number}").into_bytes()
}

fn digest_of(number: usize, digits: usize) -> DigestPrefix {
    let digest = SessionDigest::of_key(&key(number)).to_string();
    DigestPrefix::parse(&digest.as_bytes()[..digits]).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Put { key: usize, shape: Shape },
    Slide { key: usize },
    Use { key: usize },
    Remove { key: usize },
    Ask { question: Question },
    Sweep { spared: BTreeSet<usize> },
}

/// What a record is, beside when it is put.
#[derive(Clone, Debug)]
struct Shape {
    principal: usize,
    /// How long ago it was last used, in milliseconds.
    idle_ms: u64,
    ended: bool,
    mounted: bool,
    claimed_ms: Option<u64>,
    cleaned_ms: Option<u64>,
    /// Server, instance, driver, owner.
    bindings: Vec<(usize, usize, usize, Option<usize>)>,
}

#[derive(Clone, Debug)]
struct Question {
    principal: Option<usize>,
    server: Option<usize>,
    instance: Option<usize>,
    owner: Option<usize>,
    driver: Option<usize>,
    state: Option<SessionState>,
    pattern: Option<&'static str>,
    /// A key, and how many digits of its digest are given.
    digest: Option<(usize, usize)>,
    text: Option<&'static str>,
    order: Order,
    count: usize,
    except: usize,
    alive: BTreeSet<usize>,
}

fn shape() -> impl Strategy<Value = Shape> {
    let binding = (
        0..3_usize,
        0..3_usize,
        0..3_usize,
        prop::option::of(0..3_usize),
    );
    (
        0..3_usize,
        prop_oneof![Just(0), 0..30_000_u64],
        prop::bool::weighted(0.2),
        any::<bool>(),
        prop::option::weighted(0.2, 1..800_000_u64),
        prop::option::weighted(0.2, 1..800_000_u64),
        prop::collection::vec(binding, 0..4),
    )
        .prop_map(
            |(principal, idle_ms, ended, mounted, claimed_ms, cleaned_ms, bindings)| Shape {
                principal,
                idle_ms,
                ended,
                mounted,
                claimed_ms,
                cleaned_ms,
                bindings,
            },
        )
}

fn question() -> impl Strategy<Value = Question> {
    let state = prop_oneof![
        Just(SessionState::Active),
        Just(SessionState::Expired),
        Just(SessionState::Ended)
    ];
    let names = (
        prop::option::weighted(0.3, 0..3_usize),
        prop::option::weighted(0.3, 0..3_usize),
        prop::option::weighted(0.3, 0..3_usize),
        prop::option::weighted(0.3, 0..3_usize),
        prop::option::weighted(0.3, 0..3_usize),
    );
    (
        names,
        prop::option::weighted(0.3, state),
        prop::option::weighted(
            0.3,
            prop_oneof![
                Just("*code*"),
                Just("*[0-4]"),
                Just("x*"),
                Just("mcpgw:agent_session:b:*"),
                Just("mcpgw:agent_session:c*"),
                Just("mcpgw:?*")
            ],
        ),
        (
            prop::option::weighted(0.2, (0..KEYS, 4..=16_usize)),
            prop::option::weighted(
                0.3,
                prop_oneof![
                    Just("LI"),
                    Just("w:"),
                    Just("http://2"),
                    Just("b"),
                    Just("4523")
                ],
            ),
        ),
        prop_oneof![Just(Order::Newest), Just(Order::Oldest)],
        1..5_usize,
        0..KEYS,
        prop::collection::btree_set(0..3_usize, 0..3),
    )
        .prop_map(
            |(
                (principal, server, instance, owner, driver),
                state,
                pattern,
                (digest, text),
                order,
                count,
                except,
                alive,
            )| {
                Question {
                    principal,
                    server,
                    instance,
                    owner,
                    driver,
                    state,
                    pattern,
                    digest,
                    text,
                    order,
                    count,
                    except,
                    alive,
                }
            },
        )
}

fn change() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..KEYS, shape()).prop_map(|(key, shape)| Step::Put { key, shape }),
        3 => (0..KEYS).prop_map(|key| Step::Slide { key }),
        2 => (0..KEYS).prop_map(|key| Step::Use { key }),
        1 => (0..KEYS).prop_map(|key| Step::Remove { key }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => change(),
        4 => question().prop_map(|question| Step::Ask { question }),
        1 => prop::collection::btree_set(0..KEYS, 0..KEYS)
            .prop_map(|spared| Step::Sweep { spared }),
    ]
}

/// Mostly a little forward, sometimes not at all, sometimes far, sometimes back.
fn passing() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 0..500_i64, 2 => Just(0), 1 => 0..20_000_i64, 1 => -20_000..0_i64]
}

fn record(shape: &Shape, now: u64) -> Record {
    let used_at = now - shape.idle_ms;
    let mut record = session(PRINCIPALS[shape.principal], used_at);
    record.lifetime.created_at = at(used_at / 1_000 * 1_000);
    for (to, place, driver, owner) in &shape.bindings {
        let owner = owner.map(|owner| WORKERS[owner]);
        record = record.bound(SERVERS[*to], INSTANCES[*place], WORKERS[*driver], owner);
    }
    if let Some(ms) = shape.claimed_ms {
        record = record.claimed_until(now + ms);
    }
    if let Some(ms) = shape.cleaned_ms {
        record = record.cleaned_until(now + ms);
    }
    if shape.mounted {
        record = record.mounted();
    }
    if shape.ended { record.ended() } else { record }
}

struct Pair {
    index: Index,
    model: Model,
    now: Timestamp,
}

impl Pair {
    /// Before data is loaded.
    fn new() -> Self {
        let now = at(1_000_000_000_000);
        Self {
            index: Index::new_for_loading(SEED, now),
            model: Model::default(),
            now,
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Put { key: number, shape } => {
                let record = record(shape, self.now.unix_ms());
                self.put(&key(*number), &record);
            }
            Step::Slide { key: number } => {
                let Some(session) = self.model.sessions.get(&key(*number)) else {
                    return;
                };
                let mut record = session.record.clone();
                record.lifetime.slide(self.now, None, &Tuning::default());
                self.index.slide(&key(*number), &record.lifetime, self.now);
                self.model.put(&key(*number), record, self.now);
            }
            Step::Use { key: number } => {
                self.index.note_use(&key(*number), self.now);
                self.model.note_use(&key(*number), self.now);
            }
            Step::Remove { key: number } => {
                self.index.remove(&key(*number));
                self.model.remove(&key(*number));
            }
            Step::Ask { question } => self.ask(question),
            Step::Sweep { spared } => self.sweep(spared),
        }
    }

    fn put(&mut self, key: &[u8], record: &Record) {
        self.index.put(prefix_of(key), key, record, self.now);
        self.model.put(key, record.clone(), self.now);
    }

    fn sweep(&mut self, spared: &BTreeSet<usize>) {
        self.index.begin_sweep();
        let spared: BTreeSet<Key> = spared.iter().map(|number| key(*number)).collect();
        self.model.sessions.retain(|key, _| spared.contains(key));
        let seen: Vec<_> = self.model.sessions.clone().into_iter().collect();
        for (key, session) in seen {
            self.put(&key, &session.record);
        }
        let mut calls = 0;
        while self.index.end_sweep(5) == StepProgress::More {
            calls += 1;
            assert!(calls <= KEYS, "the sweep does not end");
        }
        self.model.forget_holders();
    }

    /// Lets the index follow the clock in small steps, and compares what goes without a question.
    fn settle(&mut self) {
        let mut told = BTreeSet::new();
        for _ in 0..=KEYS {
            for key in self.index.advance(self.now, 1) {
                assert!(told.insert(key.to_vec()), "told twice");
            }
        }
        assert_eq!(told, self.model.expired(self.now));
        assert_eq!(self.index.counts(), self.model.counts(self.now));
        for name in WORKERS {
            let worker = worker(name);
            let driven = self.model.driven_by(&worker, self.now);
            assert_eq!(self.index.driven_by(&worker), driven);
        }
        for (to, place) in SERVERS.iter().zip(INSTANCES) {
            let (to, place) = (server(to), instance(place));
            let bound = self.model.bound_to(&to, &place, self.now);
            assert_eq!(self.index.bound_to(&to, &place), bound);
        }
        self.compare_counts();
    }

    fn compare_counts(&self) {
        for head in ["mcpgw:agent_session:b:", "mcpgw:", "mcpgw:a"] {
            let counts = self
                .index
                .session_counts(|name| name.starts_with(head.as_bytes()));
            assert!(!counts.is_cut);
            // The keys of a group that is not wanted are left out as a whole.
            let counted = if head == "mcpgw:a" {
                "mcpgw:agent_session:b:"
            } else {
                head
            };
            let (states, instances, owners) =
                self.model.session_counts(counted.as_bytes(), self.now);
            let mut sum = StateCounts::default();
            for (_, group) in &counts.groups {
                sum.active += group.active;
                sum.expired += group.expired;
                sum.ended += group.ended;
            }
            assert_eq!(sum, states, "{head}");
            let of_index = counts.instances.iter();
            let of_index: BTreeMap<(String, String), u64> = of_index
                .map(|(server, instance, number)| {
                    (((*server).to_owned(), (*instance).to_owned()), *number)
                })
                .collect();
            assert_eq!(of_index, instances, "{head}");
            let of_index = counts.owners.iter();
            let of_index: BTreeMap<String, u64> = of_index
                .map(|(owner, number)| ((*owner).to_owned(), *number))
                .collect();
            assert_eq!(of_index, owners, "{head}");
        }
    }

    fn ask(&mut self, question: &Question) {
        let filter = Filter {
            principal: question.principal.map(|n| principal(PRINCIPALS[n])),
            server: question.server.map(|n| server(SERVERS[n])),
            instance: question.instance.map(|n| instance(INSTANCES[n])),
            owner: question.owner.map(|n| worker(WORKERS[n])),
            driver: question.driver.map(|n| worker(WORKERS[n])),
            state: question.state,
            pattern: question
                .pattern
                .map(|pattern| Glob::parse(pattern.as_bytes()).unwrap()),
            digest: question
                .digest
                .map(|(number, digits)| digest_of(number, digits)),
            text: question
                .text
                .map(|text| SearchPart::parse(text.as_bytes()).unwrap()),
        };
        let mut expected = self.model.admitted(&filter, self.now);
        let mut walked = walk(&self.index, &filter, question, self.now, &self.model);
        if question.order == Order::Newest {
            walked.reverse();
        }
        assert!(walked.is_sorted_by_key(|(created_at, _)| *created_at));
        walked.sort();
        expected.sort();
        assert_eq!(walked, expected, "{filter:?}");
        self.ask_what_is_held(question);
        self.ask_what_is_due(question);
    }

    fn ask_what_is_held(&mut self, question: &Question) {
        let principal = principal(PRINCIPALS[question.principal.unwrap_or(0)]);
        let except = key(question.except);
        let prefix = prefix_of(&except);
        let held = self.index.held(&principal, prefix, &except, self.now);
        let uses = self.model.held(&principal, prefix, &except, self.now);
        assert_eq!(held.active, uses.len() as u64);
        let oldest = held
            .least_recently_used
            .map(|key| uses.get(&*key).copied().unwrap());
        assert_eq!(oldest, uses.values().min().copied());
        assert_eq!(self.index.follows_uses(), self.model.follows_uses());
    }

    fn ask_what_is_due(&mut self, question: &Question) {
        let alive: Vec<_> = question.alive.iter().map(|n| WORKERS[*n]).collect();
        let (crew, worker) = (
            Crew::of(&alive),
            worker(WORKERS[question.owner.unwrap_or(0)]),
        );
        let mut reaper = Reaper {
            worker: &worker,
            workers: &crew,
            now: self.now,
            pattern: question
                .pattern
                .map(|pattern| Glob::parse(pattern.as_bytes()).unwrap()),
            count: KEYS,
        };
        let expected = self.model.due(&reaper);
        let due: Vec<Key> = keys(self.index.due(&reaper, |_| true));
        assert_eq!(due.len(), expected.len(), "named twice");
        assert_eq!(due.iter().cloned().collect::<BTreeSet<_>>(), expected);
        reaper.count = 1;
        assert_eq!(
            keys(self.index.due(&reaper, |_| true)),
            due[..due.len().min(1)]
        );
        let left_out = due.first();
        let others = self
            .index
            .due(&reaper, |key| left_out.is_none_or(|out| out != key));
        assert!(
            others
                .first()
                .is_none_or(|other| Some(*other) != left_out.map(|o| &o[..]))
        );
        assert_eq!(others.len(), due.len().saturating_sub(1).min(1));
    }
}

fn keys(keys: Vec<&[u8]>) -> Vec<Key> {
    keys.into_iter().map(<[u8]>::to_vec).collect()
}

/// Every key that the filter admits, page by page, each with its creation.
fn walk(
    index: &Index,
    filter: &Filter,
    question: &Question,
    now: Timestamp,
    model: &Model,
) -> Vec<(u64, Key)> {
    let created: BTreeMap<&[u8], u64> = model
        .sessions
        .iter()
        .map(|(key, session)| (&key[..], session.record.lifetime.created_at.unix_ms()))
        .collect();
    let mut walked = Vec::new();
    let mut after = None;
    for _ in 0..=KEYS {
        let page = index.page(filter, question.order, after, question.count, now);
        assert!(page.sessions.len() <= question.count);
        walked.extend(
            page.sessions
                .iter()
                .map(|s| (created[s.key], s.key.to_vec())),
        );
        after = page.next;
        if after.is_none() {
            return walked;
        }
    }
    panic!("the walk does not end");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_index_says_what_the_records_say(
        loaded in prop::collection::vec(change(), 0..20),
        loaded_for_ms in 0..30_000_i64,
        steps in prop::collection::vec((passing(), step()), 1..80),
    ) {
        let mut pair = Pair::new();
        for step in &loaded {
            pair.take(step);
            pair.settle();
        }
        // No session expires before the load has ended.
        pair.now = at(pair.now.unix_ms().checked_add_signed(loaded_for_ms).unwrap());
        pair.index.end_loading();
        pair.settle();
        for (ms, step) in &steps {
            pair.now = at(pair.now.unix_ms().checked_add_signed(*ms).unwrap());
            pair.settle();
            pair.take(step);
            pair.settle();
        }
    }
}
