//! What a driver supplies besides events: facts about the call's session and server, and its types of errors.

use std::fmt::Debug;
use std::time::Duration;

use mooring_session::Refusal;
use mooring_session::names::{InstanceName, Principal, ServerName, WorkerId};
use mooring_session::rules::Ownership;
use mooring_session::time::Millis;

/// The errors of a driver. A machine returns those that end it, and looks into none.
pub trait Errors: Debug {
    /// The store did not do what it was asked for.
    type Store: Debug;
    /// An instance was not initialized.
    type Handshake: Debug;
    /// A message was not answered.
    type Send: Debug;
    /// An answer could not be read.
    type Answer: Debug;

    /// The refusal of the rules, if the store was reached and that is the error.
    fn refusal(error: &Self::Store) -> Option<&Refusal>;
}

/// The instances of a server, as the driver's settings and recent contacts have them.
pub trait Instances {
    /// Whether the instance is configured.
    fn contains(&self, name: &InstanceName) -> bool;
    /// Those to which a binding may move: all that operators have not parked, or all if every one is parked.
    fn move_targets(&self) -> Vec<InstanceName>;
    /// Those for new sessions: of those that are not parked, all that are reachable as far as is known, or all if none is.
    /// Empty if every one is parked.
    fn candidates(&self) -> Vec<InstanceName>;
    /// Whether a binding may move from this one to another.
    fn has_target_beside(&self, name: &InstanceName) -> bool;
}

/// What to do if the upstream session is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// Rebind. The reply is the result of a tool, which reports the loss: also one from before.
    RecoverAndReport,
    /// Rebind. The reply tells the client too, but the loss counts as reported only once the result of a tool has carried
    /// it: what clients do with other replies is hidden from their users.
    Recover,
    /// Fail: there is no reply. The next request rebinds.
    GiveUp,
}

/// The session and server of a call. Stays the same for one delivery.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The session's principal.
    pub principal: &'a Principal,
    /// The server.
    pub server: &'a ServerName,
    /// Its instances.
    pub instances: &'a (dyn Instances + Sync),
    /// Whether only one gateway can have its connections.
    pub ownership: Ownership,
    /// Whether a lost upstream session ends the client's session, by the server's policy.
    pub ends_on_loss: bool,
    /// This gateway.
    pub worker: &'a WorkerId,
    /// Time limit of one attempt to initialize, after which another may begin.
    pub claim_lease: Millis,
    /// Longest wait for the answer to `initialize`.
    pub answer_timeout: Duration,
}
