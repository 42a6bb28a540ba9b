//! One name for all transitions, so that a store carries out any of them in one place, and what each does besides its
//! reply: which waiting callers it concerns, and what it counts as.
//!
//! The requests and replies are the rules' own; nothing is decided here. The module knows the rest by itself; the other
//! stores learn it from requests and replies.

use mooring_secrets::digest;
use mooring_session::context::{Context, Decision, RecordChange};
use mooring_session::explain::explain;
use mooring_session::names::{InstanceName, Principal, ServerName, WorkerId};
use mooring_session::record::Record;
use mooring_session::refusal::Refusal;
use mooring_session::rules::{
    self, BindReply, BindRequest, ClaimRequest, ConfirmRequest, CreateReply, CreateRequest,
    EndReply, EndRequest, ForgetRequest, RebindReply, RebindRequest, RouteReply, RouteRequest,
    TouchReply, TouchRequest, UnbindRequest,
};
use mooring_session::time::{Millis, Timestamp};
use mooring_session::turns::QueueView;
use mooring_session::view::{BindingState, BindingView, RecordView};

use crate::blockers::{CleaningView, SessionBlockers};

/// GET as a request, which returns only the record.
#[derive(Clone, Debug)]
pub(crate) struct Get;

/// EXPLAIN as a request: the record and these turns, in sentences.
#[derive(Clone, Debug)]
pub(crate) struct Explain {
    /// The digest of the session in logs.
    pub(crate) session: Box<str>,
    pub(crate) queues: Vec<QueueView>,
}
/// GET with all that calls of the session may wait for. The queues of turns are the store's, not the record's.
#[derive(Clone, Debug)]
pub(crate) struct GetBlockers;

/// Whether a transition usually changes the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It mostly finds nothing to write, and is tried without a write lock first.
    Reads,
    /// It mostly writes.
    Writes,
}

/// A worker that found another's claim and waits for it to be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClaimWaiter<'a> {
    pub(crate) worker: &'a WorkerId,
    pub(crate) server: &'a ServerName,
    /// When the claim lapses.
    pub(crate) lapses_at: Timestamp,
}

/// The claims that an answer settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettledScope<'a> {
    Nothing,
    /// The claim at this server.
    Server(&'a ServerName),
    /// Everything of the session: it has ended, or is created again.
    Session,
}

/// A request that the rules decide.
pub(crate) trait Transition: Clone + Send + Sync + 'static {
    /// The reply of the rules.
    type Reply: Send + 'static;
    /// The command of the contract that does the same.
    const COMMAND: &'static str;
    /// Whether it usually changes the record.
    const ACCESS: Access = Access::Writes;
    /// Whether it counts as a use of the session.
    const IS_USE: bool = false;

    /// Decides it over the record in the slot.
    fn decide(
        &self,
        slot: &mut Option<Record>,
        key: &[u8],
        context: &Context<'_>,
    ) -> Result<Decision<Self::Reply>, Refusal>;

    /// The server whose binding it may rebind.
    fn moved_server(&self) -> Option<&ServerName> {
        None
    }

    /// The instances of a server among which it may place a binding.
    fn candidates(&self) -> Option<(&ServerName, &[InstanceName])> {
        None
    }

    /// The principal whose sessions it may count.
    fn capped_principal(&self) -> Option<&Principal> {
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

/// A transition that is one rule, with what it has besides.
macro_rules! transitions {
    ($($request:ident -> $reply:ident, $command:literal, $rule:ident $(($key:ident))? { $($item:item)* })*) => {$(
        impl Transition for $request {
            type Reply = $reply;
            const COMMAND: &'static str = $command;
            $($item)*

            fn decide(
                &self,
                slot: &mut Option<Record>,
                _key: &[u8],
                context: &Context<'_>,
            ) -> Result<Decision<$reply>, Refusal> {
                $(let $key = _key;)?
                rules::$rule(slot, $($key,)? self, context)
            }
        }
    )*};
}

transitions! {
    CreateRequest -> CreateReply, "SESSION.CREATE", create {
        const IS_USE: bool = true;

        fn capped_principal(&self) -> Option<&Principal> {
            self.cap.map(|_| &self.principal)
        }

        fn settled_scope<'a>(&'a self, reply: &'a CreateReply) -> SettledScope<'a> {
            session_if(reply.created)
        }
    }
    TouchRequest -> TouchReply, "SESSION.TOUCH", touch {
        const ACCESS: Access = Access::Reads;
        const IS_USE: bool = true;
    }
    EndRequest -> EndReply, "SESSION.END", end {
        fn settled_scope<'a>(&'a self, reply: &'a EndReply) -> SettledScope<'a> {
            session_if(reply.ended_now)
        }
    }
    RouteRequest -> RouteReply, "SESSION.ROUTE", route {
        const ACCESS: Access = Access::Reads;
        const IS_USE: bool = true;

        fn claim_waiter<'a>(&'a self, reply: &'a RouteReply) -> Option<ClaimWaiter<'a>> {
            claimed(&self.worker, reply.binding.as_ref()?)
        }
    }
    BindRequest -> BindReply, "SESSION.BIND", bind(key) {
        const IS_USE: bool = true;

        fn candidates(&self) -> Option<(&ServerName, &[InstanceName])> {
            Some((&self.server, &self.instances))
        }

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
    ConfirmRequest -> BindingView, "SESSION.CONFIRM", confirm {
        const IS_USE: bool = true;

        fn settled_scope<'a>(&'a self, reply: &'a BindingView) -> SettledScope<'a> {
            SettledScope::Server(&reply.server)
        }
    }
    RebindRequest -> RebindReply, "SESSION.REBIND", rebind(key) {
        const IS_USE: bool = true;

        fn moved_server(&self) -> Option<&ServerName> {
            Some(&self.server)
        }

        fn candidates(&self) -> Option<(&ServerName, &[InstanceName])> {
            Some((&self.server, &self.instances))
        }

        fn claim_waiter<'a>(&'a self, reply: &'a RebindReply) -> Option<ClaimWaiter<'a>> {
            claimed(&self.worker, &reply.binding).filter(|_| !reply.won)
        }
    }
    UnbindRequest -> BindingView, "SESSION.UNBIND", unbind {
        const IS_USE: bool = true;

        fn settled_scope<'a>(&'a self, reply: &'a BindingView) -> SettledScope<'a> {
            SettledScope::Server(&reply.server)
        }
    }
    ClaimRequest -> RecordView, "SESSION.CLAIM", claim {}
}

impl Transition for Get {
    type Reply = RecordView;
    const COMMAND: &'static str = "SESSION.GET";
    const ACCESS: Access = Access::Reads;

    fn decide(
        &self,
        slot: &mut Option<Record>,
        _key: &[u8],
        context: &Context<'_>,
    ) -> Result<Decision<RecordView>, Refusal> {
        rules::get(slot.as_ref(), context).map(|view| Decision::new(view, RecordChange::Nothing))
    }
}

impl Transition for Explain {
    type Reply = Vec<String>;
    const COMMAND: &'static str = "SESSION.EXPLAIN";
    const ACCESS: Access = Access::Reads;

    fn decide(
        &self,
        slot: &mut Option<Record>,
        _key: &[u8],
        context: &Context<'_>,
    ) -> Result<Decision<Vec<String>>, Refusal> {
        let record = slot.as_ref().ok_or(Refusal::NoSession)?;
        let digest = |secret: &[u8]| digest::short(&String::from_utf8_lossy(secret)).into();
        let lines = explain(record, &self.session, &self.queues, &digest, context);
        Ok(Decision::new(lines, RecordChange::Nothing))
    }
}

impl Transition for GetBlockers {
    type Reply = SessionBlockers;
    const COMMAND: &'static str = "SESSION.GET";
    const ACCESS: Access = Access::Reads;

    fn decide(
        &self,
        slot: &mut Option<Record>,
        _key: &[u8],
        context: &Context<'_>,
    ) -> Result<Decision<SessionBlockers>, Refusal> {
        let record = rules::get(slot.as_ref(), context)?;
        let cleaning = slot.as_ref().and_then(|record| record.cleaning.as_ref());
        let cleaning = cleaning.filter(|cleaning| cleaning.is_live(context.now));
        let left = |until: Timestamp| until.unix_ms().saturating_sub(context.now.unix_ms());
        let blockers = SessionBlockers {
            record,
            cleaning: cleaning.map(|cleaning| {
                let left = Millis::new(left(cleaning.lease_until));
                CleaningView::new(cleaning.worker.as_ref(), left)
            }),
            turns: None,
        };
        Ok(Decision::new(blockers, RecordChange::Nothing))
    }
}

impl Transition for ForgetRequest {
    type Reply = ();
    const COMMAND: &'static str = "SESSION.FORGET";

    /// The floor that the rule answers is what every store keeps of a record that it drops.
    fn decide(
        &self,
        slot: &mut Option<Record>,
        _key: &[u8],
        context: &Context<'_>,
    ) -> Result<Decision<()>, Refusal> {
        rules::forget(slot, self, context).map(|decided| Decision::new((), decided.written))
    }

    fn settled_scope<'a>(&'a self, (): &'a ()) -> SettledScope<'a> {
        SettledScope::Session
    }
}

/// The epoch and instance of the binding that a request may rebind.
pub(crate) fn movable_binding<T: Transition>(
    request: &T,
    record: Option<&Record>,
) -> Option<(u64, InstanceName)> {
    let binding = record?.bindings.get(request.moved_server()?)?;
    Some((binding.epoch, binding.instance.clone()))
}

fn session_if(is_settled: bool) -> SettledScope<'static> {
    match is_settled {
        true => SettledScope::Session,
        false => SettledScope::Nothing,
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
