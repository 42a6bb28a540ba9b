//! The health of a server, for operators.

use super::metrics::set_server_state;
use super::{Contact, Readiness, Server};

/// The health of a server according to the last contacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ServerHealth {
    /// No instance was contacted yet.
    Unknown,
    /// The last contact with every instance that was contacted succeeded.
    Ok,
    /// The last contact with some instances failed.
    Degraded,
    /// The last contact with every instance failed.
    Unavailable,
}

impl Server {
    /// The server's health, and the latest contact with any of its instances.
    #[must_use]
    pub fn health(&self) -> (ServerHealth, Option<Contact>) {
        let contacts: Vec<Contact> = self
            .instances
            .iter()
            .filter_map(|instance| instance.contact.last())
            .collect();
        let failing = contacts.iter().filter(|contact| contact.failure.is_some());
        let health = match failing.count() {
            0 if contacts.is_empty() => ServerHealth::Unknown,
            0 => ServerHealth::Ok,
            all if all == self.instances.len() => ServerHealth::Unavailable,
            _ => ServerHealth::Degraded,
        };
        let latest = contacts.into_iter().max_by_key(|contact| contact.at_ms);
        (health, latest)
    }

    /// Whether it serves: if any instance does that is not parked.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let open = self.instances.iter().filter(|one| !one.is_parked());
        let states: Vec<Readiness> = open.map(|instance| instance.readiness.get()).collect();
        if states.contains(&Readiness::Ready) {
            Readiness::Ready
        } else if states.contains(&Readiness::Unknown) {
            Readiness::Unknown
        } else {
            Readiness::NotReady
        }
    }

    /// How many of its instances operators have parked.
    #[must_use]
    pub fn parked_instances(&self) -> usize {
        let instances = self.instances.iter();
        instances.filter(|instance| instance.is_parked()).count()
    }
}

/// Sets the gauges of a server; called by each scrape.
pub fn publish_server_state(server: &Server) {
    let (name, last) = (server.id.as_str(), server.health().1);
    let parked = server.parked_instances();
    set_server_state(name, last.as_ref(), server.readiness(), parked);
}
