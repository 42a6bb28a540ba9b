//! What goes wrong: gateways are killed, stopped and suspended, connections break, the network parts or is slow, the
//! store restarts or is promoted, and sessions end, move and are renamed.
//!
//! Invariant: whatever may keep a gateway from renewing its turns is noted as a [`Hindrance`], which is what the exceptions
//! of the checks go by.

use crate::chance::Chance;
use crate::gateway::Pause;
use crate::links::Use;
use crate::world::{GATEWAYS, Happening, MS, SESSIONS, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    Kill,
    Stop,
    Suspend,
    CutCommands,
    CutEvents,
    /// The same, and the gateway learns of it late.
    CutEventsUnnoticed,
    Part,
    Slow,
    Restart,
    Promote,
    End,
    Rebind,
    Rename,
}

const KINDS: [FaultKind; 13] = [
    FaultKind::Kill,
    FaultKind::Stop,
    FaultKind::Suspend,
    FaultKind::CutCommands,
    FaultKind::CutEvents,
    FaultKind::CutEventsUnnoticed,
    FaultKind::Part,
    FaultKind::Slow,
    FaultKind::Restart,
    FaultKind::Promote,
    FaultKind::End,
    FaultKind::Rebind,
    FaultKind::Rename,
];

/// What was wrong with a gateway, or with what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hindrance {
    /// It was paused, or its commands did not get through.
    Commands,
    /// Its connection for events was broken.
    Events,
}

impl FaultKind {
    /// Half of the seeds have all kinds, the others some: fewer exceptions apply then.
    pub(crate) fn draw(chance: &mut Chance) -> Vec<Self> {
        if chance.percent(50) {
            return KINDS.to_vec();
        }
        let kinds = chance.between(1, 3);
        (0..kinds).map(|_| chance.pick(&KINDS)).collect()
    }
}

impl World {
    pub(crate) fn fault(&mut self) {
        if !self.is_storm {
            return;
        }
        let pause = self.chance.between(20 * MS, self.fault_every_max);
        self.queue.post(self.now + pause, Happening::Fault);
        let gateway = usize::try_from(self.chance.between(0, GATEWAYS as u64 - 1)).unwrap();
        let session = usize::try_from(self.chance.between(0, SESSIONS as u64 - 1)).unwrap();
        let kind = self.chance.pick(&self.faults);
        self.show(|| format!("fault: {kind:?}, gateway {gateway}, session {session}"));
        match kind {
            FaultKind::Kill => self.kill(gateway),
            FaultKind::Stop => self.pause(gateway, Pause::Stopped),
            FaultKind::Suspend => self.pause(gateway, Pause::Suspended(self.now)),
            FaultKind::CutCommands => self.cut_one(gateway, Use::Commands, 100 * MS),
            FaultKind::CutEvents => self.cut_one(gateway, Use::Events, 100 * MS),
            FaultKind::CutEventsUnnoticed => self.cut_one(gateway, Use::Events, 1_500 * MS),
            FaultKind::Part => {
                let until = self.now + self.chance.between(50, 4_000) * MS;
                self.gateways[gateway].parted_until = until;
                self.hinder(gateway, Hindrance::Commands, until);
                self.hinder(gateway, Hindrance::Events, until);
            }
            FaultKind::Slow => {
                let until = self.now + self.chance.between(500, 3_000) * MS;
                self.gateways[gateway].slow_until = until;
                self.hinder(gateway, Hindrance::Commands, until);
                self.hinder(gateway, Hindrance::Events, until);
            }
            FaultKind::Restart => {
                let down = self.chance.between(20, 1_500) * MS;
                self.restart_store(down, false);
            }
            FaultKind::Promote => self.restart_store(0, true),
            FaultKind::End => {
                self.recall_delegation(session);
                self.store.end_session(session, self.now);
            }
            FaultKind::Rebind => {
                self.recall_delegation(session);
                self.store.rebind(session);
            }
            FaultKind::Rename => {
                self.recall_delegation(session);
                self.store.rename(session);
            }
        }
        self.serve();
    }

    fn hinder(&mut self, gateway: usize, hindrance: Hindrance, until: u64) {
        // What was under way is late, or has to be said again.
        let until = until + 1_000 * MS;
        self.checks.hinder(gateway, hindrance, self.now, until);
    }

    /// All its connections close with it.
    fn kill(&mut self, gateway: usize) {
        let known = &mut self.gateways[gateway];
        if !known.is_up {
            return;
        }
        known.is_up = false;
        known.pause = Pause::None;
        known.put_off.clear();
        let connections = [known.commands, known.events];
        for connection in connections.into_iter().flatten() {
            let passage = self.chance.between(50, 5_000);
            let held = self.gateways[gateway].parted_until;
            let after = held.saturating_sub(self.now) + passage;
            self.cut(connection, 0, after);
        }
        let lost: Vec<u64> = (self.calls.values())
            .filter(|call| call.gateway == gateway)
            .map(|call| call.id)
            .collect();
        for call in lost {
            self.call_is_over(call, false);
        }
        let known = &mut self.gateways[gateway];
        known.commands = None;
        known.events = None;
        let back = self.now + self.chance.between(100, 3_000) * MS;
        self.queue.post(back, Happening::Start(gateway));
    }

    fn pause(&mut self, gateway: usize, pause: Pause) {
        let known = &mut self.gateways[gateway];
        if !known.is_up || known.is_paused() {
            return;
        }
        known.pause = pause;
        let life = known.life;
        let until = match self.chance.percent(50) {
            true => self.now + self.chance.between(20, 1_800) * MS,
            false => self.now + self.chance.between(1_000, 5_000) * MS,
        };
        self.hinder(gateway, Hindrance::Commands, until);
        self.hinder(gateway, Hindrance::Events, until);
        self.queue.post(until, Happening::Resume { gateway, life });
    }

    pub(crate) fn resume(&mut self, gateway: usize, life: u64) {
        let now = self.now;
        let known = &mut self.gateways[gateway];
        if known.life != life || !known.is_paused() {
            return;
        }
        known.resume(now);
        let put_off = std::mem::take(&mut known.put_off);
        self.show(|| format!("g{gateway}: resumes, {} events", put_off.len()));
        for happening in put_off {
            let after = self.chance.between(0, 20 * MS);
            self.queue.post(now + after, happening);
        }
    }

    fn cut_one(&mut self, gateway: usize, used_for: Use, gateway_learns_max: u64) {
        let Some(connection) = self.connection_of(gateway, used_for) else {
            return;
        };
        let gateway_learns = self.chance.between(0, gateway_learns_max);
        let store_learns = self.chance.pick(&[1, 100, 1_000]) * MS;
        let store_learns = self.chance.between(0, store_learns);
        let hindrance = match used_for {
            Use::Commands => Hindrance::Commands,
            Use::Events => Hindrance::Events,
        };
        self.hinder(
            gateway,
            hindrance,
            self.now + gateway_learns.max(store_learns),
        );
        self.cut(connection, gateway_learns, store_learns);
    }

    fn restart_store(&mut self, down: u64, is_promotion: bool) {
        let until = self.now + down;
        self.store.down_until = until;
        self.store.restart(until, is_promotion);
        let open: Vec<u64> = (self.connections.iter())
            .filter(|(_, link)| link.is_open_at_store)
            .map(|(number, _)| *number)
            .collect();
        for connection in open {
            let learns = self.chance.between(0, 100 * MS);
            self.connections
                .get_mut(&connection)
                .unwrap()
                .is_open_at_store = false;
            self.cut(connection, learns, 0);
        }
        for gateway in 0..GATEWAYS {
            self.hinder(gateway, Hindrance::Commands, until);
            self.hinder(gateway, Hindrance::Events, until);
        }
    }

    pub(crate) fn end_faults(&mut self) {
        for gateway in 0..GATEWAYS {
            let known = &mut self.gateways[gateway];
            known.parted_until = 0;
            known.slow_until = 0;
            let life = known.life;
            self.resume(gateway, life);
            if !self.gateways[gateway].is_up {
                self.start(gateway);
            }
        }
    }
}
