//! The servers that reloads have removed, so that their clients are told why their sessions have ended.
//!
//! Invariant: only a caller that could use the server learns that there was one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::directory::ServerDirectory;
use super::policy::AccessPolicy;
use mooring_identity::Identity;

/// Most servers that are remembered.
const REMOVED_MAX: usize = 256;

/// Removed servers by id, each with the policy by which callers used it last.
#[derive(Clone, Debug, Default)]
pub struct RemovedServers(BTreeMap<Box<str>, Arc<AccessPolicy>>);

impl RemovedServers {
    /// Whether the server was removed, and the caller could use it.
    pub(crate) fn was_usable(&self, id: &str, caller: &Identity) -> bool {
        (self.0.get(id)).is_some_and(|policy| policy.may_use(caller, id))
    }
}

impl ServerDirectory {
    /// The removed servers once only those of `ids` are left.
    pub fn removed_with<'a>(&self, ids: impl Iterator<Item = &'a str>) -> RemovedServers {
        let left: BTreeSet<&str> = ids.collect();
        let mut removed = self.removed.clone();
        for id in self.server_ids().filter(|id| !left.contains(id)) {
            removed.0.insert(id.into(), Arc::clone(&self.core.policy));
        }
        removed.0.retain(|id, _| !left.contains(&**id));
        while removed.0.len() > REMOVED_MAX {
            removed.0.pop_first();
        }
        removed
    }
}
