//! Upstream servers: instances that refuse connections, cannot be reached or forget their sessions, and what was
//! executed there.
//!
//! Invariants: all calls of one epoch meet in one upstream session, of their own client's session; no call runs twice
//! unless its tool allows it; nothing runs that a client was told has not run.

use std::collections::{BTreeMap, BTreeSet};

use mooring_session::names::InstanceName;

use crate::chance::Chance;
use crate::support::instance;

pub(crate) const INSTANCES: [&str; 3] = ["a", "b", "c"];

/// A session at a server, by the key of its record and the server's name.
pub(crate) type Place = (String, &'static str);

/// An instance that is up, or how it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Serving,
    /// Its process is gone, with its sessions.
    Refusing,
    /// Its host is silent since then.
    Silent {
        since: u64,
    },
}

/// A message as an instance sees it.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) call: u64,
    pub(crate) place: Place,
    /// Of its session's record when it began: each generation is a session of its own to its client.
    pub(crate) generation: u64,
    /// Whether its tool may run again.
    pub(crate) is_repeatable: bool,
}

#[derive(Debug)]
struct UpstreamSession {
    place: Place,
    /// The instance, or the owning process.
    at: String,
    made_at: u64,
}

#[derive(Default)]
pub(crate) struct Upstreams {
    health: BTreeMap<InstanceName, Health>,
    sessions: BTreeMap<String, UpstreamSession>,
    made: u64,
    initialized: BTreeSet<(Place, u64)>,
    by_epoch: BTreeMap<(Place, u64), String>,
    owned_epochs: BTreeMap<(Place, u64), u64>,
    ran: BTreeMap<u64, u64>,
    told_not_run: BTreeSet<u64>,
    /// Those that a CONFIRM has recorded.
    recorded: BTreeSet<String>,
}

impl Upstreams {
    pub(crate) fn health(&self, at: &InstanceName) -> Health {
        self.health.get(at).copied().unwrap_or(Health::Serving)
    }

    pub(crate) fn any_other_serves(&self, than: &InstanceName) -> bool {
        (INSTANCES.iter().map(|name| instance(name)))
            .any(|other| other != *than && self.health(&other) == Health::Serving)
    }

    /// An instance restarts, stops or falls silent.
    pub(crate) fn fail(&mut self, chance: &mut Chance, now: u64) {
        let name = chance.pick(&INSTANCES);
        let health = match chance.between(0, 3) {
            0 => Health::Refusing,
            1 => Health::Silent { since: now },
            _ => Health::Serving,
        };
        if !matches!(health, Health::Silent { .. }) {
            self.sessions.retain(|_, session| session.at != name);
        }
        self.health.insert(instance(name), health);
    }

    /// An instance is back, with the sessions that it still has.
    pub(crate) fn recover(&mut self, chance: &mut Chance) {
        self.health
            .insert(instance(chance.pick(&INSTANCES)), Health::Serving);
    }

    pub(crate) fn recover_all(&mut self) {
        self.health.clear();
    }

    /// A driver begins to initialize under the claim of this epoch.
    pub(crate) fn begin_initialize(&mut self, place: &Place, epoch: u64) {
        let is_first = self.initialized.insert((place.clone(), epoch));
        assert!(is_first, "{place:?} is initialized twice at epoch {epoch}");
    }

    pub(crate) fn initialize(&mut self, place: &Place, at: &str, now: u64) -> String {
        self.made += 1;
        let session = format!("upstream-{}", self.made);
        let made = UpstreamSession {
            place: place.clone(),
            at: at.to_owned(),
            made_at: now,
        };
        self.sessions.insert(session.clone(), made);
        session
    }

    pub(crate) fn record(&mut self, session: &str) {
        self.recorded.insert(session.to_owned());
    }

    /// A resolution is over that has made this session.
    pub(crate) fn check_recorded(&self, made: &str) {
        assert!(
            self.recorded.contains(made) || !self.knows(made),
            "{made} is not recorded, and was not deleted"
        );
    }

    pub(crate) fn knows(&self, session: &str) -> bool {
        self.sessions.contains_key(session)
    }

    pub(crate) fn delete(&mut self, session: &str) {
        self.sessions.remove(session);
    }

    /// A process died, and its connections with it.
    pub(crate) fn delete_all_at(&mut self, process: &str) {
        self.sessions.retain(|_, session| session.at != process);
    }

    /// Runs a message in a session that is known.
    pub(crate) fn run(&mut self, message: &Message, session: &str, epoch: u64) {
        let place = &message.place;
        assert_eq!(
            self.sessions[session].place, *place,
            "a call reached another client's session"
        );
        let first = (self.by_epoch.entry((place.clone(), epoch))).or_insert(session.to_owned());
        assert_eq!(first, session, "one epoch led to two upstream sessions");
        let times = self.ran.entry(message.call).or_default();
        *times += 1;
        assert!(
            *times == 1 || message.is_repeatable,
            "call {} ran twice, and its tool does not allow it",
            message.call
        );
        assert!(
            !self.told_not_run.contains(&message.call),
            "call {} ran after its client was told that it did not",
            message.call
        );
    }

    /// The connection of an epoch served: none of an earlier epoch may after that.
    pub(crate) fn served_by_owner(&mut self, message: &Message, epoch: u64) {
        let session = (message.place.clone(), message.generation);
        let newest = self.owned_epochs.entry(session).or_default();
        assert!(
            *newest <= epoch,
            "two owners: epoch {epoch} served after {newest}"
        );
        *newest = epoch;
    }

    /// The writes of a failed store are lost, and with them what it had decided.
    pub(crate) fn forget_owners(&mut self) {
        self.owned_epochs.clear();
    }

    pub(crate) fn has_run(&self, call: u64) -> bool {
        self.ran.contains_key(&call)
    }

    pub(crate) fn told_not_run(&mut self, call: u64) {
        assert!(
            !self.has_run(call),
            "the client of call {call} was told that it did not run"
        );
        self.told_not_run.insert(call);
    }

    /// The sessions that were made since then.
    pub(crate) fn made_since(&self, then: u64) -> Vec<String> {
        (self.sessions.iter())
            .filter(|(_, session)| session.made_at >= then)
            .map(|(name, session)| format!("{name}: {session:?}"))
            .collect()
    }
}
