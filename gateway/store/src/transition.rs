//! One name for all transitions, so that a store carries out any of them in one place.
//!
//! The requests and replies are the rules' own; nothing is decided here.

use mooring_session::context::{Context, Decision, RecordChange};
use mooring_session::record::Record;
use mooring_session::refusal::Refusal;
use mooring_session::rules::{
    self, BindReply, BindRequest, ClaimRequest, ConfirmRequest, CreateReply, CreateRequest,
    EndReply, EndRequest, ForgetRequest, RebindReply, RebindRequest, RouteReply, RouteRequest,
    TouchReply, TouchRequest, UnbindRequest,
};
use mooring_session::view::{BindingView, RecordView};

/// GET as a request, which returns only the record.
#[derive(Clone, Debug)]
pub(crate) struct Get;

/// Whether a transition usually changes the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It mostly finds nothing to write, and is tried without a write lock first.
    Reads,
    /// It mostly writes.
    Writes,
}

/// A request that the rules decide.
pub(crate) trait Transition: Clone + Send + Sync + 'static {
    /// The reply of the rules.
    type Reply: Send + 'static;
    /// The command of the contract that does the same.
    const COMMAND: &'static str;
    /// Whether it usually changes the record.
    const ACCESS: Access = Access::Writes;

    /// Decides it over the record in the slot.
    fn decide(
        &self,
        slot: &mut Option<Record>,
        key: &[u8],
        context: &Context<'_>,
    ) -> Result<Decision<Self::Reply>, Refusal>;
}

macro_rules! transitions {
    ($($request:ident -> $reply:ident, $command:literal, $access:ident, $rule:ident $(($key:ident))?;)*) => {$(
        impl Transition for $request {
            type Reply = $reply;
            const COMMAND: &'static str = $command;
            const ACCESS: Access = Access::$access;

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
    CreateRequest -> CreateReply, "SESSION.CREATE", Writes, create;
    TouchRequest -> TouchReply, "SESSION.TOUCH", Reads, touch;
    EndRequest -> EndReply, "SESSION.END", Writes, end;
    RouteRequest -> RouteReply, "SESSION.ROUTE", Reads, route;
    BindRequest -> BindReply, "SESSION.BIND", Writes, bind(key);
    ConfirmRequest -> BindingView, "SESSION.CONFIRM", Writes, confirm;
    RebindRequest -> RebindReply, "SESSION.REBIND", Writes, rebind(key);
    UnbindRequest -> BindingView, "SESSION.UNBIND", Writes, unbind;
    ClaimRequest -> RecordView, "SESSION.CLAIM", Writes, claim;
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
}
