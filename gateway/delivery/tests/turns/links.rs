//! Connections between gateways and the store: one for commands and one for events, each in order in both directions.
//!
//! A connection that breaks loses what is on its way to the gateway. Each end learns of it by itself, and until the store
//! does, commands that were sent before still arrive: later than what the gateway sends on its next connection.

use crate::store::Command;
use crate::world::{Happening, World};

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Commands,
    Events,
}

/// One connection, from its opening on.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) gateway: usize,
    pub(crate) life: u64,
    pub(crate) used_for: Use,
    /// Whether it still carries anything.
    pub(crate) carries: bool,
    pub(crate) is_open_at_store: bool,
    /// When the last message of each direction arrives.
    to_store_at: u64,
    to_gateway_at: u64,
}

/// A message of the store to a gateway.
#[derive(Clone, Debug)]
pub(crate) enum FromStore {
    Reply(u64, crate::store::Reply),
    Events(Vec<mooring_session::events::MailboxEvent>),
    /// The connection is closed.
    Closed,
}

/// After which time a command without a reply has failed.
pub(crate) const COMMAND_TIMEOUT: u64 = 500_000;

impl World {
    /// The connection of a gateway, opened if there is none.
    pub(crate) fn connection(&mut self, gateway: usize, used_for: Use) -> u64 {
        let known = self.gateways[gateway].connection(used_for);
        if let Some(known) = *known {
            return known;
        }
        self.numbers += 1;
        let number = self.numbers;
        *self.gateways[gateway].connection(used_for) = Some(number);
        let opened = Connection {
            gateway,
            life: self.gateways[gateway].life,
            used_for,
            carries: true,
            is_open_at_store: true,
            to_store_at: 0,
            to_gateway_at: 0,
        };
        self.connections.insert(number, opened);
        number
    }

    /// One way over the network.
    fn passage(&mut self, gateway: usize) -> u64 {
        let gateway = &self.gateways[gateway];
        let is_slow = self.now < gateway.slow_until;
        let (least, most) = if is_slow {
            (20_000, 300_000)
        } else {
            (50, self.passage_max)
        };
        let held_until = gateway.parted_until.saturating_sub(self.now);
        held_until + self.chance.between(least, most)
    }

    pub(crate) fn send_to_store(&mut self, connection: u64, command: Command) {
        let gateway = self.connections[&connection].gateway;
        let passage = self.passage(gateway);
        let link = self.connections.get_mut(&connection).unwrap();
        if !link.carries {
            return;
        }
        link.to_store_at = link.to_store_at.max(self.now + passage);
        let arrive = Happening::AtStore {
            connection,
            command: Box::new(command),
        };
        self.queue.post(link.to_store_at, arrive);
    }

    pub(crate) fn send_to_gateway(&mut self, connection: u64, message: FromStore) {
        let gateway = self.connections[&connection].gateway;
        let passage = self.passage(gateway);
        let link = self.connections.get_mut(&connection).unwrap();
        if !link.carries {
            return;
        }
        link.to_gateway_at = link.to_gateway_at.max(self.now + passage);
        let arrive = Happening::AtGateway {
            gateway,
            life: link.life,
            connection,
            message: Box::new(message),
        };
        self.queue.post(link.to_gateway_at, arrive);
    }

    /// Breaks a connection. Each end learns of it after its time.
    pub(crate) fn cut(&mut self, connection: u64, gateway_learns: u64, store_learns: u64) {
        let parted_until = self.gateways[self.connections[&connection].gateway].parted_until;
        let link = self.connections.get_mut(&connection).unwrap();
        if !link.carries {
            return;
        }
        link.carries = false;
        let (gateway, life) = (link.gateway, link.life);
        let learnt = parted_until.max(self.now) + gateway_learns;
        let learn = Happening::AtGateway {
            gateway,
            life,
            connection,
            message: Box::new(FromStore::Closed),
        };
        self.queue.post(learnt, learn);
        let close = Happening::StoreCloses(connection);
        self.queue.post(self.now + store_learns, close);
    }

    /// Forgets connections that nothing refers to any more.
    pub(crate) fn forget_connections(&mut self) {
        let gateways = &self.gateways;
        self.connections.retain(|number, link| {
            let gateway = &gateways[link.gateway];
            link.is_open_at_store
                || gateway.commands == Some(*number)
                || gateway.events == Some(*number)
        });
    }
}
