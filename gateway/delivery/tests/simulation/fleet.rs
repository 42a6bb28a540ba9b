//! A fleet over virtual time: what happens when, and what goes wrong.
//!
//! Each job is one machine of a gateway. [`errands`](crate::errands) carries out what it asks for, and
//! [`requests`](crate::requests) what follows.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mooring_session::time::Millis;
use mooring_session::{Refusal, Tuning};

use crate::chance::{Chance, Queue};
use crate::clients::Clients;
use crate::errands::Sent;
use crate::gateway::{Errand, Heard, Identity, Job, Machine, Process, Purpose};
use crate::node::{Node, Replica};
use crate::requests::ending;
use crate::support::{Command, Reply, principal, server};
use crate::upstreams::{Place, Upstreams};

const START: u64 = 1_700_000_000_000;
pub(crate) const PROCESSES: usize = 4;
pub(crate) const KEYS: usize = 3;
const SERVERS: [&str; 2] = ["tools", "pipe"];
const BEAT_EVERY_MS: u64 = 400;
/// Longest time from a message to its reply.
const CALL_MS_MAX: u64 = 120_000;
/// Long enough for a claim's longest lease, a worker's grace and every late packet to pass.
const CALM_MS: u64 = 60_000;
/// After so much of the calm, the last late packets have arrived.
const SETTLED_AFTER_MS: u64 = 20_000;

pub(crate) enum Happening {
    /// A command reaches the store.
    AtStore {
        job: u64,
        step: u64,
        key: String,
        command: Box<Command>,
        answer_takes: Option<u64>,
    },
    /// Nothing was heard of a command for too long.
    StoreSilent {
        job: u64,
        step: u64,
    },
    /// An errand reaches an instance or an owner.
    Arrive {
        job: u64,
        step: u64,
        errand: Box<Sent>,
    },
    /// A job hears something.
    Hear {
        job: u64,
        step: u64,
        heard: Box<Heard>,
    },
    ClientActs {
        client: usize,
    },
    Beat {
        process: usize,
    },
    Restart {
        process: usize,
    },
    Fault,
    Replicate,
}

/// A client of one session and server.
pub(crate) struct Client {
    pub(crate) place: Place,
    pub(crate) is_intruder: bool,
    /// Whether it calls tools, one after the other; else it sends other messages.
    pub(crate) calls_tools: bool,
    pub(crate) job: Option<u64>,
    pub(crate) has_to_create: bool,
    pub(crate) results: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    Storm,
    Calm,
    /// No client acts any more.
    Over,
}

pub(crate) struct Fleet {
    pub(crate) chance: Chance,
    pub(crate) queue: Queue<Happening>,
    pub(crate) node: Node,
    pub(crate) now: u64,
    origin: Instant,
    latest_wall: u64,
    pub(crate) weather: Weather,
    pub(crate) processes: Vec<Process>,
    pub(crate) jobs: BTreeMap<u64, Job>,
    pub(crate) clients: Vec<Client>,
    pub(crate) told: Clients,
    pub(crate) upstreams: Upstreams,
    pub(crate) numbers: u64,
    claim_lease: Millis,
    ends_on_loss: bool,
    pub(crate) receives_events: bool,
    /// Whether this run's store steps its clock, or else fails over and loses its last writes. Numbers are only kept apart
    /// by the clock if writes are lost.
    pub(crate) steps_clock: bool,
    pub(crate) replica: Option<Replica>,
    calm_since: u64,
    pub(crate) events: BTreeMap<&'static str, u64>,
    is_printed: bool,
}

impl Fleet {
    pub(crate) fn new(seed: u64, is_printed: bool) -> Self {
        let mut chance = Chance::new(seed);
        let tuning = Tuning {
            tombstone_ratio: chance.pick(&[1, 2, 2, 3]),
            tombstone_min: Millis::new(chance.pick(&[0, 1_000, 5_000])),
            touch_step: chance.pick(&[1, 2, 16, 1_000]),
        };
        let places = (0..KEYS).flat_map(|key| {
            SERVERS.map(|server| (format!("mcpgw:session_affinity:s{key}"), server))
        });
        let client = |place: Place, calls_tools| Client {
            place,
            is_intruder: false,
            calls_tools,
            job: None,
            has_to_create: false,
            results: 0,
        };
        let mut clients: Vec<Client> = places
            .flat_map(|place| [client(place.clone(), true), client(place, false)])
            .collect();
        clients.push(Client {
            is_intruder: true,
            ..client((clients[0].place.0.clone(), "tools"), true)
        });
        let mut fleet = Self {
            queue: Queue::default(),
            node: Node::new(START, tuning),
            now: 0,
            origin: Instant::now(),
            latest_wall: START,
            weather: Weather::Storm,
            processes: (0..PROCESSES).map(Process::new).collect(),
            jobs: BTreeMap::new(),
            clients,
            told: Clients::default(),
            upstreams: Upstreams::default(),
            numbers: 0,
            claim_lease: Millis::new(chance.pick(&[100, 500, 2_000])),
            ends_on_loss: chance.percent(10),
            receives_events: chance.percent(70),
            steps_clock: chance.percent(50),
            replica: None,
            calm_since: 0,
            events: BTreeMap::new(),
            is_printed,
            chance,
        };
        for process in 0..PROCESSES {
            fleet.queue.post(0, Happening::Beat { process });
        }
        for client in 0..fleet.clients.len() {
            fleet.act_after(client, 1);
        }
        fleet.queue.post(500, Happening::Fault);
        fleet.queue.post(300, Happening::Replicate);
        fleet
    }

    /// Lets everything go wrong for so long.
    pub(crate) fn storm(&mut self, ms: u64) {
        self.run(self.now + ms, |_| false);
    }

    /// Nothing fails any more: every client but the intruder must get a call through.
    pub(crate) fn calm(&mut self) {
        self.weather = Weather::Calm;
        self.calm_since = self.now;
        let behind = self.latest_wall.saturating_sub(self.node.wall());
        self.node.step_clock(i64::try_from(behind).unwrap());
        self.upstreams.recover_all();
        for process in 0..PROCESSES {
            self.start(process);
        }
        let before: Vec<u64> = self.results();
        let done = |fleet: &Self| {
            fleet.now >= fleet.calm_since + SETTLED_AFTER_MS + 10_000
                && (fleet.clients.iter().zip(&before))
                    .all(|(client, before)| client.is_intruder || client.results > *before)
        };
        self.run(self.now + CALM_MS, done);
        assert!(done(self), "a call does not get through after the storm");
    }

    /// All sessions end, and are cleaned up: nothing is left of the calm.
    pub(crate) fn end(&mut self) {
        self.weather = Weather::Over;
        self.run(self.now + CALL_MS_MAX, |fleet| fleet.jobs.is_empty());
        assert!(self.jobs.is_empty(), "a call has not ended");
        for key in 0..KEYS {
            let key = format!("mcpgw:session_affinity:s{key}");
            let worker = self.processes[0].worker();
            match self.apply(&key, &ending()) {
                Ok(Reply::End(reply)) if reply.ended_now => {
                    self.forget(&key, &worker, &reply.record)
                }
                _ => self.clean(&key, &worker),
            }
            assert!(self.node.record(&key).is_none(), "{key} is left behind");
        }
        for process in 0..PROCESSES {
            self.beat(process);
        }
        let left = self
            .upstreams
            .made_since(self.calm_since + SETTLED_AFTER_MS);
        assert!(
            left.is_empty(),
            "upstream sessions are left behind: {left:?}"
        );
    }

    pub(crate) fn events(&self) -> BTreeMap<&'static str, u64> {
        let mut events = self.node.events.clone();
        events.extend(&self.events);
        events
    }

    /// Prints a step, if this run is looked at.
    pub(crate) fn print(&self, text: impl FnOnce() -> String) {
        if self.is_printed {
            println!("{:>6} {}", self.now, text());
        }
    }

    pub(crate) fn note(&mut self, event: &'static str) {
        *self.events.entry(event).or_default() += 1;
    }

    pub(crate) fn is_storm(&self) -> bool {
        self.weather == Weather::Storm
    }

    pub(crate) fn results(&self) -> Vec<u64> {
        self.clients.iter().map(|client| client.results).collect()
    }

    pub(crate) fn moment(&self) -> Instant {
        self.origin + Duration::from_millis(self.now)
    }

    pub(crate) fn run(&mut self, until: u64, is_done: impl Fn(&Self) -> bool) {
        while !is_done(self) {
            let Some((at, happening)) = self.queue.take(until) else {
                break;
            };
            self.node.pass(at - self.now);
            self.now = at;
            self.latest_wall = self.latest_wall.max(self.node.wall());
            self.happen(happening);
        }
    }

    pub(crate) fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::AtStore {
                job,
                step,
                key,
                command,
                answer_takes,
            } => {
                let heard = Heard::Store(Some(self.apply(&key, &command)));
                if let Some(after) = answer_takes {
                    self.hear_after(after, job, step, heard);
                }
            }
            Happening::StoreSilent { job, step } => {
                if self.is_current(job, step) {
                    self.say_again(job);
                }
            }
            Happening::Arrive { job, step, errand } => self.arrive(job, step, *errand),
            Happening::Hear { job, step, heard } => self.hear(job, step, *heard),
            Happening::ClientActs { client } => self.act(client),
            Happening::Beat { process } => {
                self.beat(process);
                self.queue
                    .post(self.now + BEAT_EVERY_MS, Happening::Beat { process });
            }
            Happening::Restart { process } => self.start(process),
            Happening::Fault if self.is_storm() => {
                self.fault();
                let next = self.now + self.chance.between(100, 1_500);
                self.queue.post(next, Happening::Fault);
            }
            Happening::Replicate if self.is_storm() => {
                self.replica = Some(self.node.replica());
                let next = self.now + self.chance.between(100, 900);
                self.queue.post(next, Happening::Replicate);
            }
            Happening::Fault | Happening::Replicate => {}
        }
    }

    /// Runs a command, and lets the clients know of sessions that begin and end.
    pub(crate) fn apply(&mut self, key: &str, command: &Command) -> Result<Reply, Refusal> {
        let outcome = self.node.apply(key, command);
        self.print(|| format!("store {command:?}\n       -> {outcome:?}"));
        match outcome.as_ref().map(|decided| &decided.reply) {
            Ok(Reply::Create(reply)) if reply.created => self.told.begin_again(key),
            Ok(Reply::End(reply)) if reply.ended_now => self.told.begin_again(key),
            Ok(Reply::Confirm(binding)) => {
                let recorded = binding.upstream_session.as_ref().unwrap();
                self.upstreams.record(recorded.as_str());
            }
            _ => {}
        }
        outcome.map(|decided| decided.reply)
    }

    pub(crate) fn is_current(&self, job: u64, step: u64) -> bool {
        (self.jobs.get(&job)).is_some_and(|job| job.step == step)
    }

    pub(crate) fn hear_after(&mut self, after: u64, job: u64, step: u64, heard: Heard) {
        let heard = Box::new(heard);
        let happening = Happening::Hear { job, step, heard };
        self.queue.post(self.now + after, happening);
    }

    pub(crate) fn hear(&mut self, number: u64, step: u64, heard: Heard) {
        if !self.is_current(number, step) {
            return;
        }
        let stalled_until = self.processes[self.jobs[&number].process].stalled_until;
        if stalled_until > self.now {
            return self.hear_after(stalled_until - self.now, number, step, heard);
        }
        let moment = self.moment();
        let Some(job) = self.jobs.get_mut(&number) else {
            return;
        };
        assert!(
            self.now <= job.began_at + CALL_MS_MAX,
            "a call takes too long"
        );
        job.step += 1;
        job.retries = 0;
        let identity = Rc::clone(&job.identity);
        if matches!(job.machine, Machine::Command(_)) {
            let heard = match heard {
                Heard::Store(reply) => reply,
                _ => None,
            };
            return self.command_ended(number, heard);
        }
        let said = job.said.take();
        self.print(|| format!("job {number} hears {heard:?}"));
        let Some(job) = self.jobs.get_mut(&number) else {
            return;
        };
        (job.machine).hear(heard, said.as_ref(), &identity.facts(), moment);
        self.advance(number);
    }

    /// Lets a job go on to its next errand.
    pub(crate) fn advance(&mut self, number: u64) {
        let Some(job) = self.jobs.get_mut(&number) else {
            return;
        };
        let identity = Rc::clone(&job.identity);
        let errand = job.machine.errand(&identity.facts());
        self.print(|| {
            format!(
                "job {number} at {:?} {}: {errand:?}",
                identity.place, identity.worker
            )
        });
        match errand {
            Errand::End(end) => self.ended(number, end),
            errand => self.carry_out(number, errand),
        }
    }

    pub(crate) fn begin(
        &mut self,
        process: usize,
        place: &Place,
        who: &str,
        machine: Machine,
        purpose: Purpose,
    ) -> u64 {
        self.numbers += 1;
        let number = self.numbers;
        let identity = Identity {
            who: principal(who),
            place: place.clone(),
            server: server(place.1),
            worker: self.processes[process].worker(),
            claim_lease: self.claim_lease,
            ends_on_loss: self.ends_on_loss,
        };
        let job = Job {
            machine,
            identity: Rc::new(identity),
            process,
            purpose,
            step: 0,
            said: None,
            retries: 0,
            began_at: self.now,
            made: None,
            has_result: false,
        };
        self.jobs.insert(number, job);
        number
    }
}
