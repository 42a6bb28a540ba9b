//! One store: turns, mailboxes of events and beats by the real rules, and the connections for events as the module
//! treats them.

use std::collections::BTreeMap;

use mooring_session::events::{EventMailboxes, MailboxEvent};
use mooring_session::limits::DELEGATION_RECONNECT;
use mooring_session::names::{Address, ServerName, Token, WorkerId};
use mooring_session::time::{Millis, Monotonic, Timestamp};
use mooring_session::turns::{TurnContext, TurnLimits, TurnRequest, TurnScope, TurnStatus, Turns};
use mooring_session::workers::{Beat, Drain, Workers};
use mooring_session::{Liveness, Refusal, SessionPlace};

use crate::links::{FromStore, Use};
use crate::world::{Happening, MS, SESSIONS, World};

const WALL: u64 = 1_700_000_000_000;
const LEASE_MAX: Millis = Millis::new(2_000);
const WORKER_GRACE: Millis = Millis::new(15_000);
pub(crate) const BEAT_TTL: Millis = Millis::new(1_500);
/// How long a session that was ended is remembered. In truth longer.
const TOMBSTONE: u64 = 2_000 * MS;

#[derive(Clone, Debug)]
pub(crate) enum Command {
    Enter {
        number: u64,
        session: usize,
        request: TurnRequest,
    },
    Leave {
        number: u64,
        session: usize,
        ticket: Token,
    },
    Withdraw {
        session: usize,
        beginning: Token,
    },
    Beat {
        number: u64,
        worker: WorkerId,
    },
    Wait(WorkerId),
}

#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Entered(TurnStatus),
    Refused(Refusal),
    Done,
}

/// A session, as its record has it.
pub(crate) struct SessionState {
    pub(crate) place: SessionPlace,
    /// Grows when it ends.
    pub(crate) generation: u64,
    ended_until: Option<u64>,
}

/// The connection for events of a worker.
#[derive(Default)]
pub(crate) struct EventWait {
    connection: Option<u64>,
    is_waiting: bool,
    seen: u64,
    /// When its last connection closed, if it has none.
    closed_at: Option<u64>,
}

pub(crate) struct Store {
    turns: Turns,
    events: EventMailboxes,
    workers: Workers,
    pub(crate) sessions: Vec<SessionState>,
    pub(crate) waits: BTreeMap<WorkerId, EventWait>,
    /// Until then no command is answered.
    pub(crate) down_until: u64,
    server: ServerName,
}

const fn mono(now: u64) -> Monotonic {
    Monotonic::from_ms(now / MS)
}

impl Store {
    pub(crate) fn new(now: u64) -> Self {
        let session = |number| SessionState {
            place: SessionPlace::new(0, format!("mcpgw:session_affinity:s{number}").as_bytes()),
            generation: 0,
            ended_until: None,
        };
        Self {
            // Long after its start.
            turns: Turns::new(Monotonic::default(), LEASE_MAX),
            events: EventMailboxes::new(),
            workers: Workers::new(mono(now), WORKER_GRACE),
            sessions: (0..SESSIONS).map(session).collect(),
            waits: BTreeMap::new(),
            down_until: 0,
            server: ServerName::parse(b"tools").unwrap(),
        }
    }

    fn with<R>(&mut self, now: u64, step: impl FnOnce(&mut Turns, &mut TurnContext<'_>) -> R) -> R {
        let workers = self.workers.at(mono(now));
        let mut context = TurnContext {
            now: Timestamp::from_unix_ms(WALL + now / MS),
            mono: mono(now),
            limits: TurnLimits {
                queue_max: 256,
                lease_max: LEASE_MAX,
            },
            workers: &workers,
            events: &mut self.events,
        };
        step(&mut self.turns, &mut context)
    }

    /// The number of the session's delegation, and how many callers wait for it.
    pub(crate) fn delegation(&self, session: usize, now: u64) -> Option<(u64, WorkerId, usize)> {
        let views = self
            .turns
            .of_session(&self.sessions[session].place, mono(now));
        let view = views.into_iter().next()?;
        let holder = view.holder.filter(|holder| holder.is_delegated)?;
        Some((holder.number, holder.worker, view.waiting))
    }

    fn reaches(&self, worker: &WorkerId, now: u64) -> bool {
        self.waits.get(worker).is_some_and(|wait| {
            wait.connection.is_some()
                && (wait.is_waiting || now < wait.seen + DELEGATION_RECONNECT.get() * MS)
        })
    }

    fn enter(&mut self, session: usize, mut request: TurnRequest, now: u64) -> Reply {
        let state = &self.sessions[session];
        if state.ended_until.is_some() {
            return Reply::Refused(Refusal::Ended);
        }
        if !self.reaches(&request.worker, now) {
            request.scope = TurnScope::Call;
        }
        let (place, server) = (state.place.clone(), self.server.clone());
        let entered = self.with(now, |turns, context| {
            turns.enter(&place, &server, &request, context)
        });
        entered.map_or_else(Reply::Refused, Reply::Entered)
    }

    /// What WAIT of the worker answers now.
    fn take_events(&mut self, worker: &WorkerId, now: u64) -> Vec<MailboxEvent> {
        let mut events = self.events.take(worker, 1_000, |_| true);
        events.retain(|event| match event {
            MailboxEvent::Turn {
                session,
                server,
                ticket,
                turn,
            } => self
                .turns
                .pick_up(session, server, ticket, *turn, mono(now)),
            MailboxEvent::Withdrawn { .. } | MailboxEvent::Settled { .. } => true,
        });
        events
    }

    pub(crate) fn session_of(&self, place: &SessionPlace) -> usize {
        let number = self
            .sessions
            .iter()
            .position(|session| session.place == *place);
        number.unwrap()
    }

    pub(crate) fn end_session(&mut self, session: usize, now: u64) {
        let state = &mut self.sessions[session];
        state.generation += 1;
        state.ended_until = Some(now + TOMBSTONE);
        self.turns.drop_session(&state.place);
        self.events.settle_session(&state.place);
    }

    pub(crate) fn rebind(&mut self, session: usize) {
        self.events
            .settle(&self.sessions[session].place, &self.server);
    }

    /// The session's key was given to another record, and back.
    pub(crate) fn rename(&mut self, session: usize) {
        let place = &self.sessions[session].place;
        self.turns.restart_session(place);
        self.events.settle_session(place);
    }

    /// Starts again without queues, or with those of a replica that was promoted: none.
    pub(crate) fn restart(&mut self, now: u64, is_promotion: bool) {
        self.events = EventMailboxes::new();
        self.waits.clear();
        if is_promotion {
            self.turns.restart(mono(now), LEASE_MAX);
            self.workers.renew_grace(mono(now));
        } else {
            self.turns = Turns::new(mono(now), LEASE_MAX);
            self.workers = Workers::new(mono(now), WORKER_GRACE);
        }
    }

    pub(crate) fn is_alive(&self, worker: &WorkerId, now: u64) -> bool {
        self.workers.at(mono(now)).is_alive(worker)
    }

    pub(crate) fn is_empty(&self, now: u64) -> bool {
        let is_held = |state: &SessionState| self.turns.holds(&state.place, None, mono(now));
        self.turns.sizes().1 == 0 && !self.sessions.iter().any(is_held)
    }
}

impl World {
    pub(crate) fn arrive_at_store(&mut self, connection: u64, command: Command) {
        let Some(link) = self.connections.get(&connection) else {
            return;
        };
        if !link.is_open_at_store {
            return;
        }
        if self.now < self.store.down_until {
            // Refused.
            let soon = self.chance.between(100, 2_000);
            return self.cut(connection, soon, 0);
        }
        let now = self.now;
        self.show(|| format!("store: {command:?}"));
        match command {
            Command::Enter {
                number,
                session,
                request,
            } => {
                let reply = self.store.enter(session, request, now);
                if let Some((turn, _, waiting)) = self.store.delegation(session, now)
                    && waiting > 0
                {
                    self.checks.recall_due(session, turn, now);
                }
                self.show(|| format!("store: {reply:?}"));
                self.send_to_gateway(connection, FromStore::Reply(number, reply));
            }
            Command::Leave {
                number,
                session,
                ticket,
            } => {
                let (place, server) = self.store.place(session);
                let left = self.store.with(now, |turns, context| {
                    turns.leave(&place, &server, &ticket, context)
                });
                let reply = left.map_or_else(Reply::Refused, |()| Reply::Done);
                self.send_to_gateway(connection, FromStore::Reply(number, reply));
            }
            Command::Withdraw { session, beginning } => {
                let (place, server) = self.store.place(session);
                let withdrawn = self.store.with(now, |turns, context| {
                    turns.withdraw(&place, &server, &beginning, context)
                });
                self.show(|| format!("store: withdrawn {withdrawn:?}"));
            }
            Command::Beat { number, worker } => {
                let beat = Beat {
                    worker,
                    address: Address::parse(b"10.0.0.1:4000").unwrap(),
                    ttl: BEAT_TTL,
                    drain: Drain::Serving,
                };
                let wall = Timestamp::from_unix_ms(WALL + now / MS);
                let beaten = self.store.workers.beat(beat, mono(now), wall);
                let reply = beaten.map_or_else(Reply::Refused, |()| Reply::Done);
                self.send_to_gateway(connection, FromStore::Reply(number, reply));
            }
            Command::Wait(worker) => {
                let previous = self.store.waits.entry(worker.clone()).or_default();
                *previous = EventWait {
                    connection: Some(connection),
                    is_waiting: true,
                    seen: now,
                    closed_at: None,
                };
                if self.store.events.has(&worker) {
                    self.deliver(&worker);
                }
            }
        }
        self.serve();
    }

    pub(crate) fn serve(&mut self) {
        while let Some(worker) = self.store.events.pop_fresh() {
            self.deliver(&worker);
        }
    }

    fn deliver(&mut self, worker: &WorkerId) {
        let now = self.now;
        let Some(wait) = self.store.waits.get_mut(worker) else {
            return;
        };
        let Some(connection) = wait.connection.filter(|_| wait.is_waiting) else {
            return;
        };
        wait.is_waiting = false;
        wait.seen = now;
        let events = self.store.take_events(worker, now);
        self.show(|| format!("store: to {}: {events:?}", worker.as_str()));
        self.send_to_gateway(connection, FromStore::Events(events));
    }

    pub(crate) fn store_closes(&mut self, connection: u64) {
        let now = self.now;
        let Some(link) = self.connections.get_mut(&connection) else {
            return;
        };
        link.is_open_at_store = false;
        if link.used_for == Use::Events {
            for wait in self.store.waits.values_mut() {
                if wait.connection == Some(connection) {
                    wait.connection = None;
                    wait.is_waiting = false;
                    wait.closed_at = Some(now);
                }
            }
            self.expect_the_end_of_delegations(connection);
        }
        self.forget_connections();
    }

    pub(crate) fn store_tick(&mut self) {
        let now = self.now;
        if now < self.store.down_until {
            return;
        }
        for state in &mut self.store.sessions {
            if state.ended_until.is_some_and(|until| until <= now) {
                state.ended_until = None;
                self.store.turns.note_created(&state.place, mono(now));
            }
        }
        let reconnect = DELEGATION_RECONNECT.get() * MS;
        let is_lost = |wait: &EventWait| wait.closed_at.is_some_and(|at| at + reconnect <= now);
        let lost = self.store.waits.iter().filter(|(_, wait)| is_lost(wait));
        let lost: Vec<(WorkerId, u64)> = lost
            .map(|(worker, wait)| (worker.clone(), wait.closed_at.unwrap()))
            .collect();
        for (worker, closed_at) in lost {
            for session in 0..SESSIONS {
                if let Some((number, holder, _)) = self.store.delegation(session, now)
                    && holder == worker
                {
                    self.show(|| format!("store: ends the delegation {number} of {holder:?}"));
                    self.note("ended with its connection");
                    self.checks.ended_by_store(session, number, closed_at);
                    self.check_kept(session, number);
                }
            }
            let ended = |turns: &mut Turns, context: &mut TurnContext<'_>| {
                turns.end_delegations(&worker, context, 1_000)
            };
            self.store.with(now, ended);
            self.store.waits.remove(&worker);
        }
        self.note_deaths();
        self.store.with(now, |turns, context| {
            turns.advance(context, 1_000);
        });
        let Store {
            events, workers, ..
        } = &mut self.store;
        events.advance(mono(now), &workers.at(mono(now)), 1_000);
        self.serve();
    }

    /// A delegation is due to be recalled, for another reason than a caller that waits.
    pub(crate) fn recall_delegation(&mut self, session: usize) {
        if let Some((number, _, _)) = self.store.delegation(session, self.now) {
            self.checks.recall_due(session, number, self.now);
        }
    }

    /// Checks that the delegations of a worker whose connection has closed end, unless it returns.
    fn expect_the_end_of_delegations(&mut self, connection: u64) {
        let gateway = self.connections[&connection].gateway;
        let life = self.connections[&connection].life;
        if self.gateways[gateway].life == life && self.gateways[gateway].is_up {
            return;
        }
        let by = self.now + DELEGATION_RECONNECT.get() * MS + 52 * MS;
        for session in 0..SESSIONS {
            if let Some((number, holder, _)) = self.store.delegation(session, self.now)
                && holder == crate::gateway::worker_id(gateway, life)
            {
                self.note("killed with a delegation");
                let over = Happening::DelegationIsOver { session, number };
                self.queue.post(by, over);
            }
        }
    }
}

impl Store {
    fn place(&self, session: usize) -> (SessionPlace, ServerName) {
        (self.sessions[session].place.clone(), self.server.clone())
    }
}
