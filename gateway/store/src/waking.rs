//! Effects of a transition besides its reply: which waiting callers it concerns, and its effect on use and load.
//!
//! Redis's module knows this by itself; the other stores learn it from requests and answers.

use mooring_session::names::{InstanceName, ServerName, WorkerId};
use mooring_session::record::Record;
use mooring_session::rules::{
    BindReply, BindRequest, ClaimRequest, ConfirmRequest, CreateReply, CreateRequest, EndReply,
    EndRequest, ForgetRequest, RebindReply, RebindRequest, RouteReply, RouteRequest, TouchRequest,
    UnbindRequest,
};
use mooring_session::time::Timestamp;
use mooring_session::view::{BindingState, BindingView};

use super::transition::{Get, Transition};

/// A worker that found another's claim and waits for it to be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClaimWaiter<'a> {
    pub(super) worker: &'a WorkerId,
    pub(super) server: &'a ServerName,
    /// When the claim lapses.
    pub(super) lapses_at: Timestamp,
}

/// The claims that an answer settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SettledScope<'a> {
    Nothing,
    /// The claim at this server.
    Server(&'a ServerName),
    /// Everything of the session: it has ended, or is created again.
    Session,
}

/// A transition whose reply may concern waiting callers.
pub(super) trait WakingTransition: Transition {
    /// Whether it counts as a use of the session.
    const IS_USE: bool = false;

    /// The server whose binding it may rebind.
    fn moved_server(&self) -> Option<&ServerName> {
        None
    }

    /// The caller that has to wait for another's claim, if any.
    fn claim_waiter<'a>(&'a self, _reply: &'a Self::Reply) -> Option<ClaimWaiter<'a>> {
        None
    }

    /// The part of the session that it settled.
    fn settled_scope<'a>(&'a self, _reply: &'a Self::Reply) -> SettledScope<'a> {
        SettledScope::Nothing
    }
}

/// A binding before a request that may move it.
#[derive(Debug)]
pub(super) struct PriorBinding {
    pub(super) server: ServerName,
    pub(super) instance: InstanceName,
    epoch: u64,
}

/// How far a binding was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BindingChange {
    /// It was not.
    Not,
    /// To a new claim on the same instance.
    Renewed,
    /// Away from its instance.
    Away,
}

impl PriorBinding {
    /// The binding that the request may move, as it is in the record.
    pub(super) fn of<T: WakingTransition>(request: &T, record: Option<&Record>) -> Option<Self> {
        let server = request.moved_server()?;
        let binding = record?.bindings.get(server)?;
        Some(Self {
            server: server.clone(),
            instance: binding.instance.clone(),
            epoch: binding.epoch,
        })
    }

    /// The change of the binding.
    pub(super) fn moved(&self, record: Option<&Record>) -> BindingChange {
        match record.and_then(|record| record.bindings.get(&self.server)) {
            Some(after) if after.epoch == self.epoch => BindingChange::Not,
            Some(after) if after.instance == self.instance => BindingChange::Renewed,
            _ => BindingChange::Away,
        }
    }
}

impl WakingTransition for TouchRequest {
    const IS_USE: bool = true;
}

impl WakingTransition for Get {}
impl WakingTransition for ClaimRequest {}

impl WakingTransition for CreateRequest {
    const IS_USE: bool = true;

    fn settled_scope<'a>(&'a self, reply: &'a CreateReply) -> SettledScope<'a> {
        match reply.created {
            true => SettledScope::Session,
            false => SettledScope::Nothing,
        }
    }
}

impl WakingTransition for EndRequest {
    fn settled_scope<'a>(&'a self, reply: &'a EndReply) -> SettledScope<'a> {
        match reply.ended_now {
            true => SettledScope::Session,
            false => SettledScope::Nothing,
        }
    }
}

impl WakingTransition for ForgetRequest {
    fn settled_scope<'a>(&'a self, (): &'a ()) -> SettledScope<'a> {
        SettledScope::Session
    }
}

impl WakingTransition for RouteRequest {
    const IS_USE: bool = true;

    fn claim_waiter<'a>(&'a self, reply: &'a RouteReply) -> Option<ClaimWaiter<'a>> {
        claimed(&self.worker, reply.binding.as_ref()?)
    }
}

impl WakingTransition for BindRequest {
    const IS_USE: bool = true;

    fn claim_waiter<'a>(&'a self, reply: &'a BindReply) -> Option<ClaimWaiter<'a>> {
        claimed(&self.worker, &reply.binding).filter(|_| !reply.won)
    }

    fn settled_scope<'a>(&'a self, reply: &'a BindReply) -> SettledScope<'a> {
        // Winning a claim wakes no caller; binding it does.
        match reply.won && reply.binding.state == BindingState::Bound {
            true => SettledScope::Server(&reply.binding.server),
            false => SettledScope::Nothing,
        }
    }
}

impl WakingTransition for RebindRequest {
    const IS_USE: bool = true;

    fn moved_server(&self) -> Option<&ServerName> {
        Some(&self.server)
    }

    fn claim_waiter<'a>(&'a self, reply: &'a RebindReply) -> Option<ClaimWaiter<'a>> {
        claimed(&self.worker, &reply.binding).filter(|_| !reply.won)
    }
}

impl WakingTransition for ConfirmRequest {
    const IS_USE: bool = true;

    fn settled_scope<'a>(&'a self, reply: &'a BindingView) -> SettledScope<'a> {
        SettledScope::Server(&reply.server)
    }
}

impl WakingTransition for UnbindRequest {
    const IS_USE: bool = true;

    fn settled_scope<'a>(&'a self, reply: &'a BindingView) -> SettledScope<'a> {
        SettledScope::Server(&reply.server)
    }
}

fn claimed<'a>(worker: &'a WorkerId, view: &'a BindingView) -> Option<ClaimWaiter<'a>> {
    let lapses_at = view.lease_until?;
    (view.state == BindingState::Claimed).then_some(ClaimWaiter {
        worker,
        server: &view.server,
        lapses_at,
    })
}
