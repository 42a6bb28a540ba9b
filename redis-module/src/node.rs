//! The state of this node that rules query: load of instances, sessions of a principal, holders of turns.
//!
//! Invariant: nothing is looked up before a rule asks for it, because most rules never do. While the index is
//! incomplete, its results count as unknown.

use mooring_session::names::{InstanceName, Principal, ServerName};
use mooring_session::{Node, PrincipalSessions, SessionPlace};

use crate::failure::Failure;
use crate::module::Module;
use crate::moment::Moment;
use crate::settings;

/// The node at the moment of a command, for the command's key.
pub(crate) struct NodeView<'a> {
    module: &'a Module,
    moment: Moment<'a>,
    held: Option<PrincipalSessions>,
}

impl<'a> NodeView<'a> {
    /// The node as a command finds it.
    pub(crate) const fn of(module: &'a Module, moment: Moment<'a>) -> Self {
        Self {
            module,
            moment,
            held: None,
        }
    }

    /// The same with what [`held`] has found.
    pub(crate) fn with_held(self, held: Option<PrincipalSessions>) -> Self {
        Self { held, ..self }
    }
}

impl Node for NodeView<'_> {
    fn fullness(&self, server: &ServerName, instance: &InstanceName) -> u64 {
        let Self { module, moment, .. } = self;
        let left = module
            .departures
            .fullness(server, instance, module.monotonic());
        let index = module.indexes.of(moment.database);
        match index.filter(|_| module.is_whole(moment.database)) {
            Some(index) => index.bound_to(server, instance).saturating_add(left),
            None => left,
        }
    }

    fn held_by(&self, _principal: &Principal) -> Option<PrincipalSessions> {
        self.held.clone()
    }

    fn holds_turn(&self, server: Option<&ServerName>) -> bool {
        let place = SessionPlace::new(self.moment.database, self.moment.key.as_bytes());
        let module = self.module;
        module.turns.holds(&place, server, module.monotonic())
    }
}

/// The sessions of the principal under the prefix of the command's key, without that key; `None` while the index is
/// incomplete. From now on the index tracks the principal's uses.
///
/// # Errors
/// `ERR` for a key under none of the prefixes.
pub(crate) fn held(
    module: &mut Module,
    moment: &Moment<'_>,
    principal: &Principal,
) -> Result<Option<PrincipalSessions>, Failure> {
    let key = moment.key.as_bytes();
    if !settings::prefixes::cover(key) {
        return Err(Failure::NoPrefix);
    }
    if !module.is_whole(moment.database) {
        module.counters.caps_skipped += 1;
        return Ok(None);
    }
    let Some(prefix) = module.indexes.prefix_of(key) else {
        return Ok(None);
    };
    let index = module.indexes.of_mut(moment.database);
    Ok(Some(index.held(principal, prefix, key, moment.now)))
}
