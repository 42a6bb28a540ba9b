//! What happens when: the events of gateways, of the store, of upstream servers and of clients, on one true clock, in
//! microseconds.
//!
//! A gateway has two clocks of its own, which run at another speed: one counts the time for which its machine was
//! suspended, and its timers run on the other one. While a gateway is paused or suspended nothing happens at it; what
//! was due then happens afterwards, in any order.

use std::collections::{BTreeMap, VecDeque};

use crate::calls::Call;
use crate::chance::{Chance, Queue};
use crate::checks::Checks;
use crate::clients::Client;
use crate::faults::FaultKind;
use crate::gateway::{Gateway, Timer};
use crate::links::{Connection, FromStore, Use};
use crate::seeds::Events;
use crate::store::{Command, Store};

pub(crate) const MS: u64 = 1_000;
pub(crate) const GATEWAYS: usize = 3;
pub(crate) const SESSIONS: usize = 3;
const START: u64 = 10_000 * MS;
const STORM: u64 = 25_000 * MS;
/// Long enough for the longest call, and for what a gateway remembers.
const SETTLING: u64 = 10_000 * MS;
const TICK: u64 = 50 * MS;
/// How many of the last steps a failure shows.
const SHOWN_STEPS: usize = 80;

pub(crate) enum Happening {
    AtStore {
        connection: u64,
        command: Box<Command>,
    },
    StoreCloses(u64),
    StoreTick,
    AtGateway {
        gateway: usize,
        life: u64,
        connection: u64,
        message: Box<FromStore>,
    },
    Timer {
        gateway: usize,
        life: u64,
        /// On the clock of the gateway's timers.
        due: u64,
        timer: Timer,
    },
    /// A client's request, or the reply of its server, arrives at a gateway.
    CallBegins(u64),
    CallReturns(u64),
    Resume {
        gateway: usize,
        life: u64,
    },
    Start(usize),
    /// The bytes of a call leave its gateway.
    Written(u64),
    UpstreamDone(u64),
    ClientActs(usize),
    Cancel {
        call: u64,
        gateway: usize,
    },
    Fault,
    /// The delegation with this number must be over.
    DelegationIsOver {
        session: usize,
        number: u64,
    },
}

pub(crate) struct World {
    pub(crate) chance: Chance,
    pub(crate) queue: Queue<Happening>,
    pub(crate) now: u64,
    pub(crate) numbers: u64,
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) connections: BTreeMap<u64, Connection>,
    pub(crate) store: Store,
    pub(crate) calls: BTreeMap<u64, Call>,
    pub(crate) clients: Vec<Client>,
    pub(crate) checks: Checks,
    /// Which faults this seed has, and how long the pauses between them are at most.
    pub(crate) faults: Vec<FaultKind>,
    pub(crate) fault_every_max: u64,
    pub(crate) passage_max: u64,
    pub(crate) is_storm: bool,
    pub(crate) is_over: bool,
    pub(crate) events: Events,
    shown: VecDeque<String>,
    is_printed: bool,
}

impl World {
    pub(crate) fn new(seed: u64, is_printed: bool) -> Self {
        let mut chance = Chance::new(seed);
        let gateways = (0..GATEWAYS).map(|number| Gateway::new(number, &mut chance));
        let gateways: Vec<Gateway> = gateways.collect();
        let clients = Client::draw(&mut chance);
        let faults = FaultKind::draw(&mut chance);
        let mut world = Self {
            queue: Queue::default(),
            now: START,
            numbers: 0,
            gateways,
            connections: BTreeMap::new(),
            store: Store::new(START),
            calls: BTreeMap::new(),
            clients,
            checks: Checks::default(),
            faults,
            fault_every_max: chance.pick(&[300, 1_000, 3_000]) * MS,
            passage_max: chance.pick(&[300, 2_000, 10_000]),
            is_storm: true,
            is_over: false,
            events: Events::new(),
            shown: VecDeque::new(),
            is_printed,
            chance,
        };
        for gateway in 0..GATEWAYS {
            world.queue.post(START, Happening::Start(gateway));
        }
        for client in 0..world.clients.len() {
            world.queue.post(START + MS, Happening::ClientActs(client));
        }
        world.queue.post(START, Happening::StoreTick);
        world.queue.post(START + 500 * MS, Happening::Fault);
        world
    }

    /// A storm of faults, then a calm in which every client gets calls through, and an end after which nothing is left.
    pub(crate) fn run(&mut self) {
        self.run_until(START + STORM);
        self.is_storm = false;
        self.end_faults();
        let before: Vec<u64> = self.clients.iter().map(|client| client.replies).collect();
        self.run_until(self.now + SETTLING);
        for (client, before) in self.clients.iter().zip(before) {
            let calls = client.replies - before;
            assert!(calls > 0, "a client has no reply after the storm");
        }
        self.is_over = true;
        self.run_until(self.now + SETTLING);
        self.check_nothing_is_left();
    }

    fn run_until(&mut self, until: u64) {
        while let Some((at, happening)) = self.queue.take(until) {
            self.now = at;
            self.step(happening);
        }
        self.now = until;
    }

    pub(crate) fn note(&mut self, event: &'static str) {
        *self.events.entry(event).or_default() += 1;
    }

    pub(crate) fn show(&mut self, line: impl FnOnce() -> String) {
        let line = format!("{:>12.3} {}", self.now as f64 / 1_000.0, line());
        if self.is_printed {
            println!("{line}");
        }
        if self.shown.len() >= SHOWN_STEPS {
            self.shown.pop_front();
        }
        self.shown.push_back(line);
    }

    fn step(&mut self, happening: Happening) {
        if self.is_put_off(&happening) {
            let gateway = self.gateway_of(&happening).unwrap();
            self.gateways[gateway].put_off.push(happening);
            return;
        }
        match happening {
            Happening::AtStore {
                connection,
                command,
            } => self.arrive_at_store(connection, *command),
            Happening::StoreCloses(connection) => self.store_closes(connection),
            Happening::StoreTick => {
                self.queue.post(self.now + TICK, Happening::StoreTick);
                self.store_tick();
            }
            Happening::AtGateway {
                gateway,
                life,
                connection,
                message,
            } => {
                if self.gateways[gateway].life == life {
                    self.arrive_at_gateway(gateway, connection, *message);
                }
            }
            Happening::Timer {
                gateway,
                life,
                due,
                timer,
            } => self.timer(gateway, life, due, timer),
            Happening::CallBegins(call) => self.begin_call(call),
            Happening::CallReturns(call) => self.end_call(call),
            Happening::Resume { gateway, life } => self.resume(gateway, life),
            Happening::Start(gateway) => self.start(gateway),
            Happening::Written(call) => self.written(call),
            Happening::UpstreamDone(call) => self.upstream_done(call),
            Happening::ClientActs(client) => self.client_acts(client),
            Happening::Cancel { call, gateway } => self.cancel(call, gateway),
            Happening::Fault => self.fault(),
            Happening::DelegationIsOver { session, number } => {
                self.check_delegation_is_over(session, number);
            }
        }
    }

    fn gateway_of(&self, happening: &Happening) -> Option<usize> {
        match happening {
            Happening::AtGateway { gateway, .. }
            | Happening::Timer { gateway, .. }
            | Happening::Cancel { gateway, .. } => Some(*gateway),
            Happening::CallBegins(call) | Happening::CallReturns(call) => {
                self.calls.get(call).map(|call| call.gateway)
            }
            _ => None,
        }
    }

    fn is_put_off(&self, happening: &Happening) -> bool {
        (self.gateway_of(happening)).is_some_and(|gateway| self.gateways[gateway].is_paused())
    }

    pub(crate) fn connection_of(&self, gateway: usize, used_for: Use) -> Option<u64> {
        match used_for {
            Use::Commands => self.gateways[gateway].commands,
            Use::Events => self.gateways[gateway].events,
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.is_printed {
            for line in &self.shown {
                eprintln!("{line}");
            }
        }
    }
}
