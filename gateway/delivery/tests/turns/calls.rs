//! The way of a call through its gateway: it gets the turn from the table or from the store, is checked, written, kept
//! if it lasts, and ends.
//!
//! Invariants: a call is written only while its turn's term covers it, and under a delegation only while wake-ups
//! arrive; a turn that is kept leaves the table when the store is asked, not when it has answered, or its call could end
//! in between and give it back.

use mooring_delivery::TurnBeginning;
use mooring_session::Refusal;
use mooring_session::names::Token;
use mooring_session::refusal::Stale;
use mooring_session::time::Millis;
use mooring_session::turns::{Line, TurnRequest, TurnScope, TurnStatus};

use crate::gateway::{Request, Timer, Turn, What};
use crate::store::{Command, Reply};
use crate::world::{Happening, MS, World};

pub(crate) const LEASE: u64 = 1_800 * MS;
const ASK_AGAIN_AFTER: u64 = 500 * MS;
const WAIT_MAX: u64 = 4_000 * MS;
const RENEW_EVERY: u64 = 600 * MS;
const CANCELLED_GRACE: u64 = 1_000 * MS;
/// How often a call asks for its turn again because its term is over before it is written.
const CHECKS_MAX: u32 = 20;
const VALIDATE_PAUSE: u64 = 50 * MS;

/// Why the store is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// For a turn, or for a delegation.
    Turn(TurnScope),
    /// To renew an idle delegation.
    Renew,
    /// Whether the turn is still the call's, right before it is written.
    Validate,
    /// To keep the turn of a call that runs.
    Keep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has not arrived at its gateway.
    Sent,
    /// The store was asked, with this request.
    Asking(u64),
    /// In the queue.
    Waiting(TurnScope),
    /// It has its turn.
    Checked,
    Written,
}

pub(crate) struct Call {
    pub(crate) id: u64,
    pub(crate) client: usize,
    pub(crate) session: usize,
    pub(crate) generation: u64,
    pub(crate) gateway: usize,
    pub(crate) life: u64,
    pub(crate) takes: u64,
    pub(crate) phase: Phase,
    begun: u64,
    tickets: u64,
    /// The ticket that it waits under, or that was refused last.
    pub(crate) ticket: Option<Token>,
    pub(crate) turn: Option<Turn>,
    /// The turn that it had, if it runs on without one: for checks only.
    pub(crate) lost: Option<Turn>,
    /// Whether its turn is in the table.
    pub(crate) is_delegated: bool,
    is_in_line: bool,
    is_withdrawn: bool,
    checks: u32,
    is_keeper_due: bool,
    has_keeper: bool,
    /// When a cancellation limited its turn.
    pub(crate) cancelled_at: Option<u64>,
}

impl Call {
    pub(crate) fn new(id: u64, client: usize, session: usize, generation: u64) -> Self {
        Self {
            id,
            client,
            session,
            generation,
            gateway: 0,
            life: 0,
            takes: 0,
            phase: Phase::Sent,
            begun: 0,
            tickets: 0,
            ticket: None,
            turn: None,
            lost: None,
            is_delegated: false,
            is_in_line: false,
            is_withdrawn: false,
            checks: 0,
            is_keeper_due: false,
            has_keeper: false,
            cancelled_at: None,
        }
    }
}

/// With which a call's tickets begin.
pub(crate) fn name_of(call: u64) -> Token {
    Token::parse(format!("c{call}.").as_bytes()).unwrap()
}

impl World {
    fn call(&mut self, call: u64) -> &mut Call {
        self.calls.get_mut(&call).unwrap()
    }

    pub(crate) fn begin_call(&mut self, id: u64) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let gateway = &mut self.gateways[call.gateway];
        if !gateway.is_up || gateway.life != call.life {
            return;
        }
        call.begun = self.now;
        let session = call.session;
        let (now, wake_ups) = (gateway.boot(self.now), gateway.wake_ups);
        match gateway.delegations.begin(&session, &id, now, wake_ups) {
            TurnBeginning::AskTurn => self.ask(id, TurnScope::Call),
            TurnBeginning::AskDelegation => self.ask(id, TurnScope::Delegation),
            TurnBeginning::Use(turn) => {
                self.note("used");
                self.take_delegation(id, turn);
                self.check_and_write(id);
            }
            TurnBeginning::Renew(turn) => {
                let ticket = turn.ticket.clone();
                self.take_delegation(id, turn);
                self.enter(id, Purpose::Renew, ticket, None);
            }
        }
    }

    fn take_delegation(&mut self, id: u64, turn: Turn) {
        let (gateway, number) = (self.calls[&id].gateway, turn.number);
        self.checks.begins_under(gateway, number, id);
        let call = self.call(id);
        call.turn = Some(turn);
        call.is_delegated = true;
    }

    /// Asks for a turn under a new ticket.
    fn ask(&mut self, id: u64, scope: TurnScope) {
        let call = self.call(id);
        call.tickets += 1;
        let ticket = format!("c{id}.{}", call.tickets);
        let ticket = Token::parse(ticket.as_bytes()).unwrap();
        self.enter(id, Purpose::Turn(scope), ticket, None);
    }

    /// A call that waits asks again: because it was woken, or because it waited for too long since it asked.
    pub(crate) fn ask_again(&mut self, id: u64, since: Option<u64>) {
        let Some(call) = self.calls.get(&id) else {
            return;
        };
        let Phase::Waiting(scope) = call.phase else {
            return;
        };
        if since.is_some_and(|since| since != call.tickets) {
            return;
        }
        let ticket = call.ticket.clone().unwrap();
        self.enter(id, Purpose::Turn(scope), ticket, None);
    }

    pub(crate) fn waiting_calls(&self, gateway: usize, session: usize) -> Vec<u64> {
        let waits = |call: &&Call| {
            call.gateway == gateway
                && call.session == session
                && matches!(call.phase, Phase::Waiting(_))
        };
        self.calls
            .values()
            .filter(waits)
            .map(|call| call.id)
            .collect()
    }

    fn enter(&mut self, id: u64, purpose: Purpose, ticket: Token, held: Option<u64>) {
        let call = self.call(id);
        let (gateway, session) = (call.gateway, call.session);
        if purpose != Purpose::Keep {
            call.ticket = Some(ticket.clone());
        }
        let scope = match purpose {
            Purpose::Turn(scope) => scope,
            Purpose::Renew => TurnScope::Delegation,
            Purpose::Validate | Purpose::Keep => TurnScope::Call,
        };
        let request = TurnRequest {
            worker: self.gateways[gateway].worker(),
            ticket,
            lease: Millis::new(LEASE / MS),
            line: Line::Last,
            scope,
            held,
        };
        let what = What::Enter { call: id, purpose };
        let number = self.request(gateway, what, |number| Command::Enter {
            number,
            session,
            request,
        });
        if purpose != Purpose::Keep {
            self.call(id).phase = Phase::Asking(number);
        }
    }

    pub(crate) fn entered(
        &mut self,
        id: u64,
        purpose: Purpose,
        request: &Request,
        reply: Option<Reply>,
    ) {
        // It may have ended, or given up.
        if !self.calls.contains_key(&id) {
            return;
        }
        self.show(|| format!("call {id}: {purpose:?} {reply:?}"));
        match purpose {
            Purpose::Turn(scope) => self.entered_turn(id, scope, request, reply),
            Purpose::Renew => self.entered_renewal(id, request, reply),
            Purpose::Validate => self.validated(id, request, reply),
            Purpose::Keep => self.kept(id, request, reply),
        }
    }

    fn entered_renewal(&mut self, id: u64, request: &Request, reply: Option<Reply>) {
        let call = &self.calls[&id];
        let (gateway, session) = (call.gateway, call.session);
        if let Some(Reply::Entered(TurnStatus::Delegated(number))) = reply {
            self.note("renewed");
            let turn = self.turn(id, number, request);
            self.gateways[gateway].delegated.insert(session, number);
            self.checks.begins_under(gateway, number, id);
            self.call(id).turn = Some(turn);
            return self.check_and_write(id);
        }
        self.note("not renewed");
        self.own(id);
        let turn = self.call(id).turn.take().unwrap();
        self.leave(gateway, session, turn.ticket);
        self.ask(id, TurnScope::Call);
    }

    fn entered_turn(&mut self, id: u64, scope: TurnScope, request: &Request, reply: Option<Reply>) {
        if self.calls[&id].is_withdrawn {
            return self.give_up(id);
        }
        match reply {
            Some(Reply::Entered(TurnStatus::Granted(number))) => {
                let turn = self.turn(id, number, request);
                self.call(id).turn = Some(turn);
                self.check_and_write(id);
            }
            Some(Reply::Entered(TurnStatus::Delegated(number))) => {
                let turn = self.turn(id, number, request);
                let call = self.call(id);
                let (gateway, session) = (call.gateway, call.session);
                call.turn = Some(turn);
                self.note("delegated");
                if self.gateways[gateway].delegations.granted(&session, &id) {
                    self.call(id).is_delegated = true;
                    self.gateways[gateway].delegated.insert(session, number);
                    self.check_and_write(id);
                } else {
                    self.note("delegation not wanted");
                    self.validate(id);
                }
            }
            Some(Reply::Entered(TurnStatus::Waiting)) => self.wait(id, scope),
            // A gateway that counts as dead sends a beat soon.
            Some(Reply::Refused(Refusal::Stale(Stale::Worker))) => self.wait(id, scope),
            None if self.calls[&id].is_in_line => self.wait(id, scope),
            Some(Reply::Refused(_)) | None => {
                self.note("call failed");
                self.give_up(id);
            }
            Some(Reply::Done) => panic!("no reply of ENTER"),
        }
    }

    fn turn(&self, id: u64, number: u64, request: &Request) -> Turn {
        let ticket = self.calls[&id].ticket.clone().unwrap();
        Turn {
            ticket,
            number,
            term: request.term(),
            asked_at: request.asked_at,
            sent: request.sent,
        }
    }

    fn wait(&mut self, id: u64, scope: TurnScope) {
        let now = self.now;
        let call = self.call(id);
        call.phase = Phase::Waiting(scope);
        call.is_in_line = true;
        let (gateway, asked) = (call.gateway, call.tickets);
        if now - call.begun > WAIT_MAX {
            self.note("waited too long");
            return self.give_up(id);
        }
        self.after(
            gateway,
            ASK_AGAIN_AFTER,
            Timer::AskAgain { call: id, asked },
        );
    }

    /// Ends a call that is not written.
    fn give_up(&mut self, id: u64) {
        let call = self.call(id);
        let (gateway, session) = (call.gateway, call.session);
        let ticket = call.ticket.clone();
        self.own(id);
        if let Some(ticket) = ticket {
            self.leave(gateway, session, ticket);
        }
        self.call_is_over(id, false);
    }

    /// Takes the turn of a call out of the table.
    fn own(&mut self, id: u64) {
        let call = self.calls.get_mut(&id).unwrap();
        if std::mem::take(&mut call.is_delegated) {
            let gateway = &mut self.gateways[call.gateway];
            gateway.delegations.keep(&call.session);
            gateway.delegated.remove(&call.session);
        }
    }

    pub(crate) fn check_and_write(&mut self, id: u64) {
        let Some(call) = self.calls.get(&id) else {
            return;
        };
        let gateway = &self.gateways[call.gateway];
        let now = gateway.boot(self.now);
        let checks = call.checks;
        let number = call.gateway;
        let turn = call.turn.as_ref().unwrap();
        let is_told = !call.is_delegated
            || gateway.wake_ups.are_fresh(now) && turn.asked_at >= gateway.connected_at;
        if !turn.term.covers(now) || !is_told {
            self.note("validated");
            if checks == 0 {
                return self.validate(id);
            }
            // The store has confirmed the turn, but has not heard of this gateway for too long.
            self.send_beat(number);
            return self.after(number, VALIDATE_PAUSE, Timer::Validate(id));
        }
        // A busy machine takes a moment to write.
        let takes = match self.chance.percent(97) {
            true => self.chance.between(10, 300),
            false => self.chance.between(300, 100_000),
        };
        self.call(id).phase = Phase::Checked;
        self.set_keeper(id);
        self.queue.post(self.now + takes, Happening::Written(id));
    }

    pub(crate) fn validate(&mut self, id: u64) {
        if !self.calls.contains_key(&id) {
            return;
        }
        self.own(id);
        let call = self.call(id);
        call.checks += 1;
        if call.checks > CHECKS_MAX {
            self.note("checked too often");
            return self.give_up(id);
        }
        let turn = call.turn.clone().unwrap();
        // Without its number: a call that is not written yet must not reclaim a turn after a promotion, because it may be a
        // turn of long ago, and the store does not know better.
        self.enter(id, Purpose::Validate, turn.ticket, None);
    }

    fn validated(&mut self, id: u64, request: &Request, reply: Option<Reply>) {
        match reply {
            Some(Reply::Entered(TurnStatus::Granted(number) | TurnStatus::Delegated(number))) => {
                let turn = self.turn(id, number, request);
                self.call(id).turn = Some(turn);
                self.check_and_write(id);
            }
            Some(Reply::Entered(TurnStatus::Waiting)) => self.wait(id, TurnScope::Call),
            Some(Reply::Refused(Refusal::Stale(_))) => {
                self.note("turn lost before it was used");
                let call = self.call(id);
                let (gateway, session) = (call.gateway, call.session);
                let ticket = call.turn.take().unwrap().ticket;
                self.leave(gateway, session, ticket);
                self.ask(id, TurnScope::Call);
            }
            Some(Reply::Refused(_) | Reply::Done) => self.give_up(id),
            None => {
                let gateway = self.calls[&id].gateway;
                self.after(gateway, 100 * MS, Timer::Check(id));
            }
        }
    }

    /// The turn of a call gets its keeper 400 to 600 ms after it was given.
    fn set_keeper(&mut self, id: u64) {
        let call = self.call(id);
        let gateway = call.gateway;
        if !std::mem::replace(&mut call.is_keeper_due, true) {
            let after = self.chance.between(400 * MS, 600 * MS);
            self.after(gateway, after, Timer::Keep(id));
        }
    }

    /// Makes the turn that of the call, and renews it from now on.
    pub(crate) fn keep(&mut self, id: u64) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        if !matches!(call.phase, Phase::Checked | Phase::Written) || call.has_keeper {
            return;
        }
        call.has_keeper = true;
        if call.is_delegated {
            self.note("kept");
        }
        self.own(id);
        self.renew(id);
    }

    pub(crate) fn renew(&mut self, id: u64) {
        let Some(turn) = self.calls.get(&id).and_then(|call| call.turn.clone()) else {
            return;
        };
        self.enter(id, Purpose::Keep, turn.ticket, Some(turn.number));
    }

    fn kept(&mut self, id: u64, request: &Request, reply: Option<Reply>) {
        let call = self.calls.get_mut(&id).unwrap();
        let Some(turn) = &mut call.turn else {
            return;
        };
        match reply {
            Some(Reply::Entered(TurnStatus::Granted(number) | TurnStatus::Delegated(number)))
                if number == turn.number =>
            {
                turn.sent = request.sent;
                turn.asked_at = request.asked_at;
            }
            Some(_) => {
                self.note("lost while it ran");
                return self.release(id);
            }
            None => {}
        }
        let gateway = self.calls[&id].gateway;
        self.after(gateway, RENEW_EVERY, Timer::Renew(id));
    }

    /// The call runs on without its turn.
    fn release(&mut self, id: u64) {
        self.own(id);
        let call = self.call(id);
        let (gateway, session) = (call.gateway, call.session);
        if let Some(turn) = call.turn.take() {
            call.lost = Some(turn.clone());
            self.leave(gateway, session, turn.ticket);
        }
    }

    /// The client cancelled a call, and the store knows of none that waits.
    pub(crate) fn withdrawn(&mut self, gateway: usize, name: &Token) {
        let calls = self.calls.values();
        let named = calls
            .filter(|call| call.gateway == gateway && name.starts_with(name_of(call.id).as_str()))
            .map(|call| call.id)
            .next();
        let Some(id) = named else {
            return;
        };
        match self.calls[&id].phase {
            Phase::Checked | Phase::Written => {
                self.note("cancelled while it ran");
                self.keep(id);
                self.after(gateway, CANCELLED_GRACE, Timer::GraceOver(id));
            }
            Phase::Waiting(_) => {
                self.note("withdrawn");
                self.give_up(id);
            }
            Phase::Asking(_) => self.call(id).is_withdrawn = true,
            Phase::Sent => {}
        }
    }

    pub(crate) fn grace_over(&mut self, id: u64) {
        if self.calls.contains_key(&id) {
            self.release(id);
        }
    }

    pub(crate) fn written(&mut self, id: u64) {
        let Some(call) = self.calls.get(&id) else {
            return;
        };
        if call.phase != Phase::Checked {
            return;
        }
        self.check_written(id);
        let call = self.call(id);
        call.phase = Phase::Written;
        let takes = call.takes;
        self.queue
            .post(self.now + takes, Happening::UpstreamDone(id));
    }

    pub(crate) fn upstream_done(&mut self, id: u64) {
        if self.calls.contains_key(&id) {
            self.checks.running.remove(&id);
            let passage = self.chance.between(50, 2_000);
            let returns = Happening::CallReturns(id);
            self.queue.post(self.now + passage, returns);
        }
    }

    pub(crate) fn end_call(&mut self, id: u64) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let (number, session) = (call.gateway, call.session);
        if let Some(turn) = call.turn.take() {
            if std::mem::take(&mut call.is_delegated) {
                let gateway = &mut self.gateways[number];
                let now = gateway.boot(self.now);
                let (term, ticket) = (turn.term, turn.ticket.clone());
                let left = gateway.delegations.end(&session, turn, term, now);
                if left.is_some() {
                    gateway.delegated.remove(&session);
                    self.note("left after a recall");
                    self.leave(number, session, ticket);
                }
            } else {
                self.leave(number, session, turn.ticket);
            }
        }
        self.call_is_over(id, true);
    }
}
