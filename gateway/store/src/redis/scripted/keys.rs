//! The keys beside the records, all of them under the gateway's prefix.
//!
//! Invariant: no key of these is one of a record, because none begins with the word of a family.

use mooring_session::names::{InstanceName, Principal, ServerName, WorkerId};

use crate::key::{Family, SessionKey};
use crate::query::literal_pattern;

/// Exists while every record of the prefix is in the indexes.
pub(in super::super) fn indexed_key(prefix: &str) -> String {
    format!("{prefix}index:complete")
}

/// The names of the keys of one prefix.
#[derive(Clone, Debug)]
pub(super) struct Keys(Box<str>);

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self(prefix.into())
    }

    pub(super) fn prefix(&self) -> &str {
        &self.0
    }

    /// The heartbeats: a hash, with a field for each gateway.
    pub(super) fn gateways(&self) -> String {
        format!("{}gateways", self.0)
    }

    /// The number that those of new records have to exceed.
    pub(super) fn floor(&self) -> String {
        format!("{}floor", self.0)
    }

    /// The turns of a session.
    pub(super) fn turns(&self, key: &SessionKey) -> String {
        let place = key.secret().get(self.0.len()..).unwrap_or_default();
        format!("{}turns:{place}", self.0)
    }

    /// The events of a gateway: a list.
    pub(super) fn events(&self, worker: &WorkerId) -> String {
        format!("{}events:{worker}", self.0)
    }

    pub(super) fn rate(&self, name: &str) -> String {
        format!("{}rate:{name}", self.0)
    }

    /// Exists when every record of the prefix is in the indexes.
    pub(super) fn indexed(&self) -> String {
        indexed_key(&self.0)
    }

    /// Exists while a gateway builds the indexes.
    pub(super) fn indexing(&self) -> String {
        format!("{}index:building", self.0)
    }

    /// The pattern of all indexes, and of the two before.
    pub(super) fn indexes_pattern(&self) -> String {
        literal_pattern(&format!("{}index:", self.0)) + "*"
    }

    /// The sessions of a family by the time of their creation.
    pub(super) fn created(&self, family: Family) -> String {
        format!("{}index:created:{}", self.0, self.word(family))
    }

    /// The sessions of a family by the time at which they may need cleaning up, or are gone.
    pub(super) fn due(&self, family: Family) -> String {
        format!("{}index:due:{}", self.0, self.word(family))
    }

    /// The active sessions of a principal by the time at which they expire.
    pub(super) fn principal(&self, family: Family, principal: &Principal) -> String {
        format!(
            "{}index:principal:{}{}",
            self.0,
            self.word(family),
            principal.as_str()
        )
    }

    /// The active sessions bound to an instance by the time at which they expire.
    pub(super) fn instance(&self, server: &ServerName, instance: &InstanceName) -> String {
        format!("{}index:instance:{server}:{instance}", self.0)
    }

    /// The bindings that a gateway drives by the time at which their sessions expire.
    pub(super) fn driver(&self, worker: &WorkerId) -> String {
        format!("{}index:driver:{worker}", self.0)
    }

    /// The word of a family, with its colon.
    fn word(&self, family: Family) -> String {
        let head = family.head(&self.0);
        head.get(self.0.len()..).unwrap_or_default().to_owned()
    }
}
