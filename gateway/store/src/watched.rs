//! What a transition means beside its answer: which other callers wait for what it did, and what it says about use and
//! load.
//!
//! Redis's module knows this by itself; the other stores learn it from requests and answers.

use mooring_session::names::{InstanceName, ServerName, WorkerId};
use mooring_session::record::Record;
use mooring_session::rules::{
    Bind, Bound, Clean, Confirm, Create, Created, End, Ended, Forget, Rebind, Rebound, Route,
    Routed, Touch, Unbind,
};
use mooring_session::time::Timestamp;
use mooring_session::view::{BindingState, BindingView};

use super::transition::{Get, Transition};

/// A worker that was told that another's claim is under way, and is to be told when that is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told<'a> {
    pub(super) worker: &'a WorkerId,
    pub(super) server: &'a ServerName,
    /// When the claim lapses.
    pub(super) lapses_at: Timestamp,
}

/// What an answer settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settles<'a> {
    Nothing,
    /// The claim at this server.
    Server(&'a ServerName),
    /// Everything of the session: it is over, or begins anew.
    Session,
}

/// A transition whose answer may concern those who wait.
pub(super) trait Watched: Transition {
    /// Whether it counts as a use of the session.
    const IS_USE: bool = false;

    /// The server whose binding it may move.
    fn moves(&self) -> Option<&ServerName> {
        None
    }

    /// Whether its caller was told of a claim of another.
    fn told<'a>(&'a self, _reply: &'a Self::Reply) -> Option<Told<'a>> {
        None
    }

    /// What it settled.
    fn settles<'a>(&'a self, _reply: &'a Self::Reply) -> Settles<'a> {
        Settles::Nothing
    }
}

/// A binding before a request that may move it.
#[derive(Debug)]
pub(super) struct Before {
    pub(super) server: ServerName,
    pub(super) instance: InstanceName,
    epoch: u64,
}

/// How far a binding was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// It was not.
    Not,
    /// To a new claim on the same instance.
    Renewed,
    /// Away from its instance.
    Away,
}

impl Before {
    /// The binding that the request may move, as it is in the record.
    pub(super) fn of<T: Watched>(request: &T, record: Option<&Record>) -> Option<Self> {
        let server = request.moves()?;
        let binding = record?.bindings.get(server)?;
        Some(Self {
            server: server.clone(),
            instance: binding.instance.clone(),
            epoch: binding.epoch,
        })
    }

    /// What has become of it.
    pub(super) fn moved(&self, record: Option<&Record>) -> Moved {
        match record.and_then(|record| record.bindings.get(&self.server)) {
            Some(after) if after.epoch == self.epoch => Moved::Not,
            Some(after) if after.instance == self.instance => Moved::Renewed,
            _ => Moved::Away,
        }
    }
}

impl Watched for Touch {
    const IS_USE: bool = true;
}

impl Watched for Get {}
impl Watched for Clean {}

impl Watched for Create {
    const IS_USE: bool = true;

    fn settles<'a>(&'a self, reply: &'a Created) -> Settles<'a> {
        match reply.created {
            true => Settles::Session,
            false => Settles::Nothing,
        }
    }
}

impl Watched for End {
    fn settles<'a>(&'a self, reply: &'a Ended) -> Settles<'a> {
        match reply.ended_now {
            true => Settles::Session,
            false => Settles::Nothing,
        }
    }
}

impl Watched for Forget {
    fn settles<'a>(&'a self, (): &'a ()) -> Settles<'a> {
        Settles::Session
    }
}

impl Watched for Route {
    const IS_USE: bool = true;

    fn told<'a>(&'a self, reply: &'a Routed) -> Option<Told<'a>> {
        claimed(&self.worker, reply.binding.as_ref()?)
    }
}

impl Watched for Bind {
    const IS_USE: bool = true;

    fn told<'a>(&'a self, reply: &'a Bound) -> Option<Told<'a>> {
        claimed(&self.worker, &reply.binding).filter(|_| !reply.won)
    }

    fn settles<'a>(&'a self, reply: &'a Bound) -> Settles<'a> {
        // A claim that was won is news to nobody until it is bound.
        match reply.won && reply.binding.state == BindingState::Bound {
            true => Settles::Server(&reply.binding.server),
            false => Settles::Nothing,
        }
    }
}

impl Watched for Rebind {
    const IS_USE: bool = true;

    fn moves(&self) -> Option<&ServerName> {
        Some(&self.server)
    }

    fn told<'a>(&'a self, reply: &'a Rebound) -> Option<Told<'a>> {
        claimed(&self.worker, &reply.binding).filter(|_| !reply.won)
    }
}

impl Watched for Confirm {
    const IS_USE: bool = true;

    fn settles<'a>(&'a self, reply: &'a BindingView) -> Settles<'a> {
        Settles::Server(&reply.server)
    }
}

impl Watched for Unbind {
    const IS_USE: bool = true;

    fn settles<'a>(&'a self, reply: &'a BindingView) -> Settles<'a> {
        Settles::Server(&reply.server)
    }
}

fn claimed<'a>(worker: &'a WorkerId, view: &'a BindingView) -> Option<Told<'a>> {
    let lapses_at = view.lease_until?;
    (view.state == BindingState::Claimed).then_some(Told {
        worker,
        server: &view.server,
        lapses_at,
    })
}
