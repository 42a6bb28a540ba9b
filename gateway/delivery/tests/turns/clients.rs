//! Clients: they call a session's server again and again, at one gateway or at several, and some cancel.

use crate::calls::{Call, name_of};
use crate::chance::Chance;
use crate::links::Use;
use crate::store::Command;
use crate::world::{GATEWAYS, Happening, MS, SESSIONS, World};

/// How a client chooses its gateway.
#[derive(Clone, Copy, Debug)]
enum Moves {
    /// It stays where it is.
    Never,
    /// After so many calls.
    After(u64),
    AtRandom,
}

#[derive(Debug)]
pub(crate) struct Client {
    session: usize,
    gateway: usize,
    moves: Moves,
    /// Most that it thinks between two calls.
    thinks_max: u64,
    /// Most that its calls take, mostly.
    takes_max: u64,
    cancels: bool,
    calls: u64,
    pub(crate) replies: u64,
    pub(crate) call: Option<u64>,
}

impl Client {
    /// One or two of each session: the calls of the second overlap those of the first.
    pub(crate) fn draw(chance: &mut Chance) -> Vec<Self> {
        let mut clients = Vec::new();
        for session in 0..SESSIONS {
            for number in 0..=u64::from(chance.percent(60)) {
                let moves = match chance.between(0, 3) {
                    0 | 1 if number == 0 => Moves::Never,
                    0 => Moves::AtRandom,
                    _ => Moves::After(chance.between(4, 20)),
                };
                clients.push(Self {
                    session,
                    gateway: usize::try_from(chance.between(0, GATEWAYS as u64 - 1)).unwrap(),
                    moves,
                    thinks_max: if number == 0 {
                        chance.pick(&[1, 5, 100]) * MS
                    } else {
                        chance.pick(&[5, 500, 1_500]) * MS
                    },
                    takes_max: chance.pick(&[5, 20, 200]) * MS,
                    cancels: chance.percent(30),
                    calls: 0,
                    replies: 0,
                    call: None,
                });
            }
        }
        clients
    }
}

impl World {
    pub(crate) fn client_acts(&mut self, number: usize) {
        if self.is_over || self.clients[number].call.is_some() {
            return;
        }
        let client = &mut self.clients[number];
        client.calls += 1;
        let moves = match client.moves {
            Moves::Never => false,
            Moves::After(calls) => client.calls.is_multiple_of(calls),
            Moves::AtRandom => true,
        };
        if moves || !self.gateways[client.gateway].is_up {
            client.gateway = usize::try_from(self.chance.between(0, GATEWAYS as u64 - 1)).unwrap();
        }
        let (session, gateway, cancels) = (client.session, client.gateway, client.cancels);
        let takes = match self.chance.between(0, 99) {
            0..92 => self.chance.between(500, client.takes_max),
            92..98 => self.chance.between(200, 1_200) * MS,
            _ => self.chance.between(1_000, 3_000) * MS,
        };
        if !self.gateways[gateway].is_up {
            return self
                .queue
                .post(self.now + 50 * MS, Happening::ClientActs(number));
        }
        self.numbers += 1;
        let id = self.numbers;
        let generation = self.store.sessions[session].generation;
        let mut call = Call::new(id, number, session, generation);
        call.gateway = gateway;
        call.life = self.gateways[gateway].life;
        call.takes = takes;
        self.calls.insert(id, call);
        self.clients[number].call = Some(id);
        let passage = self.chance.between(50, 1_000);
        self.queue
            .post(self.now + passage, Happening::CallBegins(id));
        if cancels && self.chance.percent(4) {
            let gateway = usize::try_from(self.chance.between(0, GATEWAYS as u64 - 1)).unwrap();
            let after = self.chance.between(1, 600) * MS;
            let cancel = Happening::Cancel { call: id, gateway };
            self.queue.post(self.now + after, cancel);
        }
    }

    /// A call has ended, with a reply or an error.
    pub(crate) fn call_is_over(&mut self, id: u64, has_reply: bool) {
        let call = self.calls.remove(&id).unwrap();
        self.checks.running.remove(&id);
        let client = &mut self.clients[call.client];
        client.call = None;
        client.replies += u64::from(has_reply);
        let thinks = self.chance.between(0, client.thinks_max);
        let thinks = if has_reply { thinks } else { thinks + 50 * MS };
        self.queue
            .post(self.now + thinks, Happening::ClientActs(call.client));
    }

    pub(crate) fn cancel(&mut self, id: u64, gateway: usize) {
        let now = self.now;
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        if !self.gateways[gateway].is_up {
            return;
        }
        call.cancelled_at.get_or_insert(now);
        let (session, beginning) = (call.session, name_of(id));
        let connection = self.connection(gateway, Use::Commands);
        self.send_to_store(connection, Command::Withdraw { session, beginning });
    }
}
