//! The health of a server, for operators.

use super::{Contact, Server};

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
}
