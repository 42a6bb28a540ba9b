//! Step: drop all capabilities, permanently.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use super::error::{HelperStep, StepError};
use super::own_user::OwnUser;

/// Empties all five sets, and forbids that a program starts with more than its parent.
pub(super) fn drop_all() -> Result<(), StepError> {
    // The bounding set first: the right to empty it is itself a capability.
    match drop_bounding() {
        Ok(()) => drop_others(),
        Err(errno) => Err(HelperStep::CAPABILITIES.at("bounding set")(errno)),
    }
}

/// The same for a process that changes to `user` in between, or that remains an ordinary user of the machine. An
/// ordinary user may not empty its bounding set, and need not: no program starts with more capabilities than its
/// parent.
pub(super) fn drop_all_as(user: Option<OwnUser>) -> Result<(), StepError> {
    match (drop_bounding(), user) {
        (Ok(()), Some(user)) => user.become_it()?,
        (Ok(()) | Err(Errno::PERM), None) => {}
        (Err(errno), _) => return Err(HelperStep::CAPABILITIES.at("bounding set")(errno)),
    }
    drop_others()
}

fn drop_bounding() -> Result<(), Errno> {
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Ok(()) => {}
            // The kernel has no capability with this number or a higher one.
            Err(Errno::INVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn drop_others() -> Result<(), StepError> {
    set_no_new_privs(true).map_err(HelperStep::CAPABILITIES.at("no_new_privs"))?;
    clear_ambient_capability_set().map_err(HelperStep::CAPABILITIES.at("ambient set"))?;
    let none = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )
    .map_err(HelperStep::CAPABILITIES.at("capset"))
}
