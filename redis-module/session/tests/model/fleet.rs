//! A fleet of gateways over virtual time: processes that run calls, die, stall and come back; instances that forget
//! their sessions; a reaper's work in between; and somebody who asks for what is not theirs.
//!
//! Each [`Task`] does for one session what a gateway does for one request, and knows only what it was answered.

use std::collections::{BTreeMap, BTreeSet};

use mooring_session::Tuning;
use mooring_session::names::WorkerId;
use mooring_session::time::Millis;
use mooring_session::workers::Drain;

use crate::network::{Chance, Passage, Queue};
use crate::node::Node;
use crate::support::{Command, Outcome, worker};
use crate::task::{Next, Task, Upstreams};

const START: u64 = 1_700_000_000_000;
const PROCESSES: usize = 4;
const TASKS: usize = 14;
const KEYS: usize = 4;
const BEAT_EVERY_MS: u64 = 500;
/// How long a gateway waits for an answer before it says the same again.
const ANSWER_TIMEOUT_MS: u64 = 100;
const RETRIES: u32 = 4;

enum Event {
    /// A command reaches the node.
    Arrive {
        task: usize,
        turn: u64,
        key: String,
        command: Box<Command>,
        answer_takes: Option<u64>,
    },
    /// An answer reaches the process.
    Answer {
        task: usize,
        turn: u64,
        outcome: Box<Outcome>,
    },
    /// Nothing was heard of a command for too long.
    Timeout {
        task: usize,
        turn: u64,
    },
    /// A task goes on after some work or a wait.
    Wake {
        task: usize,
        turn: u64,
    },
    Beat {
        process: usize,
    },
    Restart {
        process: usize,
    },
    Fault,
}

struct Process {
    boot: u64,
    is_up: bool,
    drain: Drain,
    stalled_until: u64,
}

impl Process {
    fn worker(&self, number: usize) -> WorkerId {
        worker(&format!("gateway-{number}:{}", self.boot))
    }
}

/// A task, and where it is in its conversation: an answer to an earlier turn is nothing to it any more.
struct Running {
    task: Task,
    process: usize,
    turn: u64,
    said: Option<(String, Command)>,
    retries: u32,
}

pub(crate) struct Fleet {
    chance: Chance,
    queue: Queue<Event>,
    node: Node,
    now: u64,
    latest_wall: u64,
    is_storm: bool,
    processes: Vec<Process>,
    running: Vec<Running>,
    upstreams: Upstreams,
}

impl Fleet {
    pub(crate) fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let tuning = Tuning {
            tombstone_ratio: chance.pick(&[1, 2, 2, 3]),
            tombstone_min: Millis::new(chance.pick(&[0, 1_000, 5_000])),
            touch_step: chance.pick(&[1, 2, 16, 1_000]),
        };
        let mut fleet = Self {
            chance,
            queue: Queue::default(),
            node: Node::new(START, tuning),
            now: 0,
            latest_wall: START,
            is_storm: true,
            processes: (0..PROCESSES)
                .map(|_| Process {
                    boot: 1,
                    is_up: true,
                    drain: Drain::Serving,
                    stalled_until: 0,
                })
                .collect(),
            running: (0..TASKS)
                .map(|number| Running {
                    task: Task::new(number, KEYS),
                    process: number % PROCESSES,
                    turn: 0,
                    said: None,
                    retries: 0,
                })
                .collect(),
            upstreams: Upstreams::default(),
        };
        for process in 0..PROCESSES {
            fleet.queue.post(0, Event::Beat { process });
        }
        for task in 0..TASKS {
            fleet.wake_after(task, 1);
        }
        fleet.queue.post(500, Event::Fault);
        fleet
    }

    /// Lets everything go wrong for so long.
    pub(crate) fn storm(&mut self, ms: u64) {
        let until = self.now + ms;
        self.run(until, |_| false);
    }

    /// Nothing fails any more: within so long every task but the intruder must get a call through.
    pub(crate) fn calm(&mut self, ms: u64) {
        self.is_storm = false;
        let behind = self.latest_wall.saturating_sub(self.node.wall());
        self.node.step_clock(i64::try_from(behind).unwrap());
        for process in 0..PROCESSES {
            self.start(process);
        }
        for task in 0..TASKS {
            self.wake_after(task, 1);
        }
        let waiting: BTreeSet<usize> = (0..TASKS)
            .filter(|task| !self.running[*task].task.is_intruder())
            .collect();
        let before: Vec<u64> = self.calls();
        let done = |fleet: &Self| {
            let calls = fleet.calls();
            waiting.iter().all(|task| calls[*task] > before[*task])
        };
        let until = self.now + ms;
        self.run(until, done);
        assert!(done(self), "a request does not get through after the storm");
    }

    pub(crate) fn events(&self) -> BTreeMap<&'static str, u64> {
        let mut events = self.node.events.clone();
        events.insert("call", self.calls().iter().sum());
        events
    }

    fn calls(&self) -> Vec<u64> {
        self.running.iter().map(|one| one.task.calls).collect()
    }

    fn run(&mut self, until: u64, is_done: impl Fn(&Self) -> bool) {
        while !is_done(self) {
            let Some((at, event)) = self.queue.take(until) else {
                break;
            };
            self.node.pass(at - self.now);
            self.now = at;
            self.latest_wall = self.latest_wall.max(self.node.wall());
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive {
                task,
                turn,
                key,
                command,
                answer_takes,
            } => {
                let outcome = Box::new(self.node.apply(&key, &command));
                if let Some(after) = answer_takes {
                    let answer = Event::Answer {
                        task,
                        turn,
                        outcome,
                    };
                    self.queue.post(self.now + after, answer);
                }
            }
            Event::Answer {
                task,
                turn,
                outcome,
            } => {
                if let Some(stalled_until) = self.stall_of(task) {
                    let later = Event::Answer {
                        task,
                        turn,
                        outcome,
                    };
                    self.queue.post(stalled_until, later);
                } else if self.is_current(task, turn) {
                    self.advance(task, Some(&outcome));
                }
            }
            Event::Timeout { task, turn } => {
                if self.is_current(task, turn) {
                    self.say_again(task);
                }
            }
            Event::Wake { task, turn } => {
                if let Some(stalled_until) = self.stall_of(task) {
                    self.queue.post(stalled_until, Event::Wake { task, turn });
                } else if self.is_current(task, turn) {
                    self.advance(task, None);
                }
            }
            Event::Beat { process } => self.beat(process),
            Event::Restart { process } => self.start(process),
            Event::Fault if self.is_storm => {
                self.fault();
                let next = self.now + self.chance.between(100, 1_500);
                self.queue.post(next, Event::Fault);
            }
            Event::Fault => {}
        }
    }

    fn is_current(&self, task: usize, turn: u64) -> bool {
        let running = &self.running[task];
        running.turn == turn && self.processes[running.process].is_up
    }

    fn stall_of(&self, task: usize) -> Option<u64> {
        let until = self.processes[self.running[task].process].stalled_until;
        (until > self.now).then_some(until)
    }

    fn advance(&mut self, number: usize, outcome: Option<&Outcome>) {
        let running = &mut self.running[number];
        let caller = self.processes[running.process].worker(running.process);
        running.retries = 0;
        let next = running
            .task
            .advance(outcome, &caller, &mut self.chance, &mut self.upstreams);
        match next {
            Next::Say(key, command) => {
                running.said = Some((key, *command));
                running.turn += 1;
                self.send(number);
            }
            Next::Wait(ms) => self.wake_after(number, ms),
        }
    }

    fn wake_after(&mut self, task: usize, ms: u64) {
        let running = &mut self.running[task];
        running.turn += 1;
        running.said = None;
        let turn = running.turn;
        self.queue.post(self.now + ms, Event::Wake { task, turn });
    }

    fn send(&mut self, task: usize) {
        let running = &self.running[task];
        let Some((key, command)) = running.said.clone() else {
            return;
        };
        let turn = running.turn;
        let passage = Passage::of(&mut self.chance, self.is_storm);
        for after in passage.arrives_after {
            let arrive = Event::Arrive {
                task,
                turn,
                key: key.clone(),
                command: Box::new(command.clone()),
                answer_takes: (!passage.is_answer_lost).then_some(passage.answer_takes),
            };
            self.queue.post(self.now + after, arrive);
        }
        self.queue
            .post(self.now + ANSWER_TIMEOUT_MS, Event::Timeout { task, turn });
    }

    /// The same command with the same token, as long as it is worth it; then the request fails, and the next begins.
    fn say_again(&mut self, task: usize) {
        let running = &mut self.running[task];
        running.retries += 1;
        if running.retries > RETRIES {
            running.task.restart(&mut self.chance);
            self.wake_after(task, 10);
        } else {
            self.send(task);
        }
    }

    fn beat(&mut self, process: usize) {
        let state = &self.processes[process];
        let is_lost = self.is_storm && self.chance.percent(10);
        if state.is_up && state.stalled_until <= self.now && !is_lost {
            self.node.beat(&state.worker(process), state.drain);
        }
        self.queue
            .post(self.now + BEAT_EVERY_MS, Event::Beat { process });
    }

    /// A new boot, unless it is up: then it just goes on. Its tasks begin anew.
    fn start(&mut self, process: usize) {
        let state = &mut self.processes[process];
        if !state.is_up {
            state.boot += 1;
        }
        state.is_up = true;
        state.drain = Drain::Serving;
        state.stalled_until = 0;
        self.node
            .beat(&self.processes[process].worker(process), Drain::Serving);
        for task in 0..TASKS {
            if self.running[task].process == process {
                self.running[task].task.restart(&mut self.chance);
                self.wake_after(task, 5);
            }
        }
    }

    fn fault(&mut self) {
        let process = usize::try_from(self.chance.between(0, PROCESSES as u64 - 1)).unwrap();
        match self.chance.between(0, 11) {
            0..=2 if self.processes[process].is_up => {
                let is_clean = self.chance.percent(30);
                if is_clean {
                    self.node.gone(&self.processes[process].worker(process));
                }
                self.processes[process].is_up = false;
                let back = self.now + self.chance.between(100, 6_000);
                self.queue.post(back, Event::Restart { process });
            }
            3..=5 => {
                self.processes[process].stalled_until = self.now + self.chance.between(50, 5_000);
            }
            6 => self.processes[process].drain = Drain::Draining,
            7 => self.processes[process].drain = Drain::Serving,
            8 => {
                let far = self.chance.pick(&[50, 3_000, 10_000, 3_600_000]);
                let by = i64::try_from(self.chance.between(0, 2 * far)).unwrap()
                    - i64::try_from(far).unwrap();
                self.node.step_clock(by);
            }
            9 if self.chance.percent(30) => self.node.promote(),
            _ => self.upstreams.lose_one_instance(&mut self.chance),
        }
    }
}
