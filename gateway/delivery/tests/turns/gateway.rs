//! A gateway: the driver of the table of delegations in small, with its clocks, its connections and its timers.
//!
//! Invariants: the wake-ups count as seen when the tick *before* was, because after a pause the tick may come before the
//! news that the connection has closed; a turn is left in the background, and again if that fails.

use std::collections::BTreeMap;
use std::time::Duration;

use mooring_delivery::{BootTime, Delegations, Term, WakeUps};
use mooring_session::events::MailboxEvent;
use mooring_session::names::{Token, WorkerId};

use crate::calls::{LEASE, Purpose};
use crate::chance::Chance;
use crate::links::{COMMAND_TIMEOUT, FromStore, Use};
use crate::store::{BEAT_TTL, Command, Reply};
use crate::world::{Happening, MS, World};

pub(crate) const TICK_EVERY: u64 = 40 * MS;
const SWEEP_EVERY: u64 = 200 * MS;
const BEAT_EVERY: u64 = 500 * MS;
const LEAVE_ATTEMPTS: u32 = 4;
const LEAVE_PAUSE: u64 = 300 * MS;

/// A turn that a gateway has.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) ticket: Token,
    pub(crate) number: u64,
    pub(crate) term: Term,
    pub(crate) asked_at: BootTime,
    /// When the command that got or renewed it was sent, on the true clock: for checks only.
    pub(crate) sent: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Timer {
    Tick,
    Sweep,
    Beat,
    Reconnect,
    Timeout(u64),
    AskAgain { call: u64, asked: u64 },
    Keep(u64),
    Renew(u64),
    GraceOver(u64),
    Check(u64),
    Validate(u64),
    Leave { left: Left },
}

/// A turn or a place in the queue that is to be left.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    pub(crate) session: usize,
    pub(crate) ticket: Token,
    pub(crate) attempts: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Enter { call: u64, purpose: Purpose },
    Leave(Left),
    Beat,
}

/// A command whose reply has not come.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    connection: u64,
    pub(crate) asked_at: BootTime,
    /// When the last beat was sent that was acknowledged before this.
    beat_at: BootTime,
    pub(crate) sent: u64,
    pub(crate) what: What,
}

impl Request {
    /// The term of a turn that it asks for.
    pub(crate) fn term(&self) -> Term {
        Term::asked(self.asked_at, Duration::from_micros(LEASE))
            .while_alive(self.beat_at, Duration::from_millis(BEAT_TTL.get()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    None,
    /// Its processes are stopped.
    Stopped,
    /// Its machine is suspended since then: timers do not run.
    Suspended(u64),
}

pub(crate) struct Gateway {
    number: usize,
    pub(crate) life: u64,
    pub(crate) is_up: bool,
    pub(crate) pause: Pause,
    suspended: u64,
    /// How much faster its clocks run, in parts of a million.
    rate: i64,
    pub(crate) parted_until: u64,
    pub(crate) slow_until: u64,
    pub(crate) commands: Option<u64>,
    pub(crate) events: Option<u64>,
    pub(crate) put_off: Vec<Happening>,
    pub(crate) delegations: Delegations<usize, Turn, u64>,
    /// The numbers of the delegations in the table, by session: for checks only.
    pub(crate) delegated: BTreeMap<usize, u64>,
    pub(crate) wake_ups: WakeUps,
    /// When the connection for events was opened.
    pub(crate) connected_at: BootTime,
    ticked_at: BootTime,
    /// When the last acknowledged beat was sent.
    pub(crate) beat_at: BootTime,
    pub(crate) requests: BTreeMap<u64, Request>,
}

pub(crate) fn worker_id(gateway: usize, life: u64) -> WorkerId {
    WorkerId::parse(format!("g{gateway}@{life}").as_bytes()).unwrap()
}

impl Gateway {
    pub(crate) fn new(number: usize, chance: &mut Chance) -> Self {
        let rate = i64::try_from(chance.between(0, 20_000)).unwrap() - 10_000;
        Self {
            number,
            life: 0,
            is_up: false,
            pause: Pause::None,
            suspended: 0,
            rate,
            parted_until: 0,
            slow_until: 0,
            commands: None,
            events: None,
            put_off: Vec::new(),
            delegations: Delegations::default(),
            delegated: BTreeMap::new(),
            wake_ups: WakeUps::Broken,
            connected_at: BootTime::default(),
            ticked_at: BootTime::default(),
            beat_at: BootTime::default(),
            requests: BTreeMap::new(),
        }
    }

    fn scaled(&self, now: u64) -> u64 {
        let more = i64::try_from(now).unwrap() * self.rate / 1_000_000;
        now.checked_add_signed(more).unwrap()
    }

    pub(crate) fn boot(&self, now: u64) -> BootTime {
        BootTime(Duration::from_micros(self.scaled(now)))
    }

    fn timers(&self, now: u64) -> u64 {
        self.scaled(now) - self.suspended
    }

    pub(crate) const fn is_paused(&self) -> bool {
        !matches!(self.pause, Pause::None)
    }

    pub(crate) fn worker(&self) -> WorkerId {
        worker_id(self.number, self.life)
    }

    pub(crate) fn resume(&mut self, now: u64) {
        if let Pause::Suspended(since) = self.pause {
            self.suspended += self.scaled(now) - self.scaled(since);
        }
        self.pause = Pause::None;
    }

    pub(crate) const fn connection(&mut self, used_for: Use) -> &mut Option<u64> {
        match used_for {
            Use::Commands => &mut self.commands,
            Use::Events => &mut self.events,
        }
    }
}

impl World {
    pub(crate) fn start(&mut self, gateway: usize) {
        let mut chance = Chance::new(self.chance.between(0, u64::MAX - 1));
        let now = self.now;
        let before = &self.gateways[gateway];
        if before.is_up {
            return;
        }
        let mut started = Gateway::new(gateway, &mut chance);
        started.life = before.life + 1;
        started.is_up = true;
        started.rate = before.rate;
        started.parted_until = before.parted_until;
        started.ticked_at = started.boot(now);
        self.gateways[gateway] = started;
        self.note("started");
        self.show(|| format!("g{gateway}: starts"));
        self.beat(gateway);
        self.connect(gateway);
        self.after(gateway, TICK_EVERY, Timer::Tick);
        self.after(gateway, SWEEP_EVERY, Timer::Sweep);
    }

    /// Sets a timer of a gateway.
    pub(crate) fn after(&mut self, gateway: usize, pause: u64, timer: Timer) {
        let known = &self.gateways[gateway];
        let due = known.timers(self.now) + pause;
        let happening = Happening::Timer {
            gateway,
            life: known.life,
            due,
            timer,
        };
        self.queue.post(self.now + pause, happening);
    }

    pub(crate) fn timer(&mut self, gateway: usize, life: u64, due: u64, timer: Timer) {
        let known = &self.gateways[gateway];
        if known.life != life || !known.is_up {
            return;
        }
        let left = due.saturating_sub(known.timers(self.now));
        if left > 0 {
            return self.after(gateway, left, timer);
        }
        match timer {
            Timer::Tick => {
                let known = &mut self.gateways[gateway];
                if known.events.is_some() {
                    known.wake_ups = WakeUps::SeenAt(known.ticked_at);
                }
                known.ticked_at = known.boot(self.now);
                self.after(gateway, TICK_EVERY, Timer::Tick);
            }
            Timer::Sweep => {
                let now = self.gateways[gateway].boot(self.now);
                for turn in self.gateways[gateway].delegations.sweep(now) {
                    self.note("left unused");
                    self.leave_delegation(gateway, turn);
                }
                self.after(gateway, SWEEP_EVERY, Timer::Sweep);
            }
            Timer::Beat => self.beat(gateway),
            Timer::Reconnect => self.connect(gateway),
            Timer::Timeout(request) => self.fail_request(gateway, request),
            Timer::AskAgain { call, asked } => self.ask_again(call, Some(asked)),
            Timer::Keep(call) => self.keep(call),
            Timer::Renew(call) => self.renew(call),
            Timer::GraceOver(call) => self.grace_over(call),
            Timer::Check(call) => self.check_and_write(call),
            Timer::Validate(call) => self.validate(call),
            Timer::Leave { left } => self.send_leave(gateway, left),
        }
    }

    fn beat(&mut self, gateway: usize) {
        self.send_beat(gateway);
        self.after(gateway, BEAT_EVERY, Timer::Beat);
    }

    pub(crate) fn send_beat(&mut self, gateway: usize) {
        let worker = self.gateways[gateway].worker();
        self.request(gateway, What::Beat, |number| Command::Beat {
            number,
            worker,
        });
    }

    fn connect(&mut self, gateway: usize) {
        let now = self.now;
        let known = &mut self.gateways[gateway];
        known.connected_at = known.boot(now);
        known.ticked_at = known.connected_at;
        let worker = known.worker();
        let connection = self.connection(gateway, Use::Events);
        self.send_to_store(connection, Command::Wait(worker));
    }

    /// Sends a command whose reply is awaited.
    pub(crate) fn request(
        &mut self,
        gateway: usize,
        what: What,
        command: impl FnOnce(u64) -> Command,
    ) -> u64 {
        self.numbers += 1;
        let number = self.numbers;
        let connection = self.connection(gateway, Use::Commands);
        let request = Request {
            connection,
            asked_at: self.gateways[gateway].boot(self.now),
            beat_at: self.gateways[gateway].beat_at,
            sent: self.now,
            what,
        };
        self.gateways[gateway].requests.insert(number, request);
        self.send_to_store(connection, command(number));
        self.after(gateway, COMMAND_TIMEOUT, Timer::Timeout(number));
        number
    }

    pub(crate) fn arrive_at_gateway(
        &mut self,
        gateway: usize,
        connection: u64,
        message: FromStore,
    ) {
        let is_current = [Use::Commands, Use::Events]
            .into_iter()
            .find(|used_for| self.connection_of(gateway, *used_for) == Some(connection));
        let Some(used_for) = is_current else {
            return;
        };
        match message {
            FromStore::Closed => self.lose_connection(gateway, connection, used_for),
            FromStore::Reply(number, reply) => {
                if let Some(request) = self.gateways[gateway].requests.remove(&number) {
                    self.replied(gateway, request, Some(reply));
                }
            }
            FromStore::Events(events) => {
                for event in events {
                    self.receive(gateway, event);
                }
                let worker = self.gateways[gateway].worker();
                self.send_to_store(connection, Command::Wait(worker));
            }
        }
    }

    fn lose_connection(&mut self, gateway: usize, connection: u64, used_for: Use) {
        *self.gateways[gateway].connection(used_for) = None;
        self.show(|| format!("g{gateway}: lost its connection for {used_for:?}"));
        match used_for {
            Use::Commands => {
                let requests = self.gateways[gateway].requests.iter();
                let failed: Vec<u64> = requests
                    .filter(|(_, request)| request.connection == connection)
                    .map(|(number, _)| *number)
                    .collect();
                for number in failed {
                    self.fail_request(gateway, number);
                }
            }
            Use::Events => {
                let now = self.now;
                self.checks.learnt_of_loss(gateway, now);
                let known = &mut self.gateways[gateway];
                known.wake_ups = WakeUps::Broken;
                let lost = known.delegations.lose_wake_ups();
                for turn in lost.idle {
                    self.leave_delegation(gateway, turn);
                }
                for call in lost.running {
                    self.note("kept without wake-ups");
                    self.keep(call);
                }
                let pause_max = self.chance.pick(&[30, 30, 600]) * MS;
                let pause = self.chance.between(100, pause_max);
                self.after(gateway, pause, Timer::Reconnect);
            }
        }
        self.forget_connections();
    }

    fn fail_request(&mut self, gateway: usize, number: u64) {
        if let Some(request) = self.gateways[gateway].requests.remove(&number) {
            self.note("command failed");
            self.replied(gateway, request, None);
        }
    }

    fn replied(&mut self, gateway: usize, request: Request, reply: Option<Reply>) {
        match request.what.clone() {
            What::Enter { call, purpose } => self.entered(call, purpose, &request, reply),
            What::Beat => {
                if matches!(reply, Some(Reply::Done)) {
                    self.gateways[gateway].beat_at = request.asked_at;
                }
            }
            What::Leave(mut left) => {
                left.attempts += 1;
                if reply.is_none() && left.attempts < LEAVE_ATTEMPTS {
                    self.after(gateway, LEAVE_PAUSE, Timer::Leave { left });
                }
            }
        }
    }

    fn receive(&mut self, gateway: usize, event: MailboxEvent) {
        match event {
            MailboxEvent::Settled { session, .. } => {
                let session = self.store.session_of(&session);
                self.recalled(gateway, session);
                let waiting = self.waiting_calls(gateway, session);
                for call in waiting {
                    self.ask_again(call, None);
                }
            }
            MailboxEvent::Turn {
                session, ticket, ..
            } => {
                let session = self.store.session_of(&session);
                let waiting = self.waiting_calls(gateway, session);
                for call in waiting {
                    if self.calls[&call].ticket.as_ref() == Some(&ticket) {
                        self.ask_again(call, None);
                    }
                }
            }
            MailboxEvent::Withdrawn { ticket, .. } => self.withdrawn(gateway, &ticket),
        }
    }

    fn recalled(&mut self, gateway: usize, session: usize) {
        let known = &mut self.gateways[gateway];
        if let Some(number) = known.delegated.get(&session) {
            let running = known.delegations.running(&session).copied();
            self.checks.recalled(gateway, *number, running);
        }
        if let Some(turn) = known.delegations.recall(&session) {
            self.note("recalled while idle");
            self.leave_delegation(gateway, turn);
        } else if known.delegations.running(&session).is_some() {
            self.note("recalled in use");
        }
    }

    fn leave_delegation(&mut self, gateway: usize, turn: Turn) {
        let delegated = &mut self.gateways[gateway].delegated;
        let session = delegated
            .iter()
            .find(|(_, number)| **number == turn.number)
            .map(|(session, _)| *session);
        let session = session.unwrap();
        delegated.remove(&session);
        self.leave(gateway, session, turn.ticket);
    }

    pub(crate) fn leave(&mut self, gateway: usize, session: usize, ticket: Token) {
        let left = Left {
            session,
            ticket,
            attempts: 0,
        };
        self.send_leave(gateway, left);
    }

    fn send_leave(&mut self, gateway: usize, left: Left) {
        let (session, ticket) = (left.session, left.ticket.clone());
        self.request(gateway, What::Leave(left), |number| Command::Leave {
            number,
            session,
            ticket,
        });
    }
}
