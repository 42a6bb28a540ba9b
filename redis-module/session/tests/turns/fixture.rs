//! A node with queues of turns, as the module drives them, and short words for what happens to it.

use std::collections::BTreeSet;

use mooring_session::events::{EventMailboxes, MailboxEvent};
use mooring_session::names::{ServerName, Token, WorkerId};
use mooring_session::time::{Millis, Monotonic, Timestamp};
use mooring_session::turns::{
    Line, TurnContext, TurnLimits, TurnRequest, TurnScope, TurnStatus, Turns,
};
use mooring_session::{Liveness, Refusal, SessionPlace};

/// The wall clock at the node's start.
pub(crate) const WALL: u64 = 1_700_000_000_000;
pub(crate) const QUIET_MS: u64 = 5_000;

/// Everybody lives but those named here.
#[derive(Default)]
pub(crate) struct Deaths(pub(crate) BTreeSet<WorkerId>);

impl Liveness for Deaths {
    fn is_alive(&self, worker: &str) -> bool {
        !self.0.iter().any(|known| known.as_str() == worker)
    }

    fn is_draining(&self, _: &str) -> bool {
        false
    }

    fn address(&self, _: &str) -> Option<&str> {
        None
    }
}

pub(crate) struct Node {
    pub(crate) turns: Turns,
    pub(crate) events: EventMailboxes,
    pub(crate) deaths: Deaths,
    pub(crate) limits: TurnLimits,
    pub(crate) mono: u64,
    pub(crate) wall: u64,
}

impl Node {
    /// In its quiet time.
    pub(crate) fn started() -> Self {
        Self {
            turns: Turns::new(Monotonic::from_ms(0), Millis::new(QUIET_MS)),
            events: EventMailboxes::new(),
            deaths: Deaths::default(),
            limits: TurnLimits {
                queue_max: 256,
                lease_max: Millis::new(5_000),
            },
            mono: 0,
            wall: WALL,
        }
    }

    /// After its quiet time.
    pub(crate) fn new() -> Self {
        let mut node = Self::started();
        node.pass(QUIET_MS);
        node
    }

    pub(crate) fn mono(&self) -> Monotonic {
        Monotonic::from_ms(self.mono)
    }

    /// Lets both clocks run on, and does what is due then.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.mono += ms;
        self.wall += ms;
        self.advance();
    }

    pub(crate) fn advance(&mut self) {
        self.with(|turns, context| {
            turns.advance(context, 1_000);
        });
        self.events
            .advance(Monotonic::from_ms(self.mono), &self.deaths, 1_000);
    }

    pub(crate) fn with<R>(
        &mut self,
        step: impl FnOnce(&mut Turns, &mut TurnContext<'_>) -> R,
    ) -> R {
        let mut context = TurnContext {
            now: Timestamp::from_unix_ms(self.wall),
            mono: Monotonic::from_ms(self.mono),
            limits: self.limits,
            workers: &self.deaths,
            events: &mut self.events,
        };
        step(&mut self.turns, &mut context)
    }

    pub(crate) fn enter(&mut self, request: &TurnRequest) -> Result<TurnStatus, Refusal> {
        self.with(|turns, context| turns.enter(&place(), &server("tools"), request, context))
    }

    /// The number of the turn, if it is granted at once.
    pub(crate) fn asks(&mut self, ticket: &str) -> Option<u64> {
        match self.enter(&request(ticket)).unwrap() {
            TurnStatus::Granted(number) | TurnStatus::Delegated(number) => Some(number),
            TurnStatus::Waiting => None,
        }
    }

    pub(crate) fn leaves(&mut self, ticket: &str) -> Result<(), Refusal> {
        let token = token(ticket);
        self.with(|turns, context| turns.leave(&place(), &server("tools"), &token, context))
    }

    pub(crate) fn withdraws(&mut self, beginning: &str) -> Result<usize, Refusal> {
        let token = token(beginning);
        self.with(|turns, context| turns.withdraw(&place(), &server("tools"), &token, context))
    }

    /// What WAIT of the worker would answer now: tickets of turns that are still true, `no` with a ticket that was
    /// withdrawn, and `settled`.
    pub(crate) fn hears(&mut self, name: &str) -> Vec<String> {
        let mono = self.mono();
        let items = self.events.take(&worker(name), 1_000, |_| true);
        let heard = items.into_iter().filter_map(|item| match item {
            MailboxEvent::Turn {
                session,
                server,
                ticket,
                turn,
            } => self
                .turns
                .pick_up(&session, &server, &ticket, turn, mono)
                .then(|| ticket.to_string()),
            MailboxEvent::Withdrawn { ticket, .. } => Some(format!("no {ticket}")),
            MailboxEvent::Settled { .. } => Some("settled".to_owned()),
        });
        heard.collect()
    }

    pub(crate) fn dies(&mut self, name: &str) {
        self.deaths.0.insert(worker(name));
        self.advance();
    }

    pub(crate) fn is_held(&self) -> bool {
        self.turns.holds(&place(), None, self.mono())
    }
}

pub(crate) fn place() -> SessionPlace {
    SessionPlace::new(0, b"mcpgw:session_affinity:s1")
}

pub(crate) fn server(name: &str) -> ServerName {
    ServerName::parse(name.as_bytes()).unwrap()
}

pub(crate) fn worker(name: &str) -> WorkerId {
    WorkerId::parse(name.as_bytes()).unwrap()
}

pub(crate) fn token(text: &str) -> Token {
    Token::parse(text.as_bytes()).unwrap()
}

/// The ticket `a1` is one of the worker `a`'s.
pub(crate) fn request(ticket: &str) -> TurnRequest {
    TurnRequest {
        worker: worker(&ticket[..1]),
        ticket: token(ticket),
        lease: Millis::new(2_000),
        line: Line::Last,
        scope: TurnScope::Call,
        held: None,
    }
}

pub(crate) fn code<T>(outcome: Result<T, Refusal>) -> &'static str {
    outcome.map_or_else(|refusal| refusal.code(), |_| "OK")
}
