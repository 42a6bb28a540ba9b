//! What both test binaries share: short ways to say names, and the commands of the contract as one type.
//!
//! Invariant: nothing here decides anything; every decision under test is the rules' own.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use mooring_session::names::{
    InstanceName, Principal, Reason, ServerName, SessionId, Token, UpstreamSession, WorkerId,
};
use mooring_session::record::Record;
use mooring_session::rules::{
    self, BindReply, BindRequest, ClaimRequest, ConfirmRequest, CreateReply, CreateRequest,
    EndReply, EndRequest, ForgetRequest, RebindReply, RebindRequest, RouteReply, RouteRequest,
    TouchReply, TouchRequest, UnbindRequest,
};
use mooring_session::view::{BindingView, RecordView};
use mooring_session::{Context, Decision, RecordChange, Refusal};

pub(crate) fn session_id(text: &str) -> SessionId {
    SessionId::parse(text.as_bytes()).unwrap()
}

pub(crate) fn principal(text: &str) -> Principal {
    Principal::parse(text.as_bytes()).unwrap()
}

pub(crate) fn server(text: &str) -> ServerName {
    ServerName::parse(text.as_bytes()).unwrap()
}

pub(crate) fn worker(text: &str) -> WorkerId {
    WorkerId::parse(text.as_bytes()).unwrap()
}

pub(crate) fn token(text: &str) -> Token {
    Token::parse(text.as_bytes()).unwrap()
}

pub(crate) fn instance(text: &str) -> InstanceName {
    InstanceName::parse(text.as_bytes()).unwrap()
}

pub(crate) fn upstream(text: &str) -> UpstreamSession {
    UpstreamSession::parse(text.as_bytes()).unwrap()
}

pub(crate) fn reason(text: &str) -> Reason {
    Reason::parse(text.as_bytes()).unwrap()
}

/// One command of the contract, with its arguments.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Create(CreateRequest),
    Touch(TouchRequest),
    Route(RouteRequest),
    Bind(BindRequest),
    Confirm(ConfirmRequest),
    Rebind(RebindRequest),
    Unbind(UnbindRequest),
    End(EndRequest),
    Claim(ClaimRequest),
    Forget(ForgetRequest),
}

/// The answer to a [`Command`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Create(CreateReply),
    Touch(TouchReply),
    Route(RouteReply),
    Bind(BindReply),
    Confirm(BindingView),
    Rebind(RebindReply),
    Unbind(BindingView),
    End(EndReply),
    Claim(RecordView),
    /// The floor for the next record under the key.
    Forget(u64),
}

/// What a command came to.
pub(crate) type Outcome = Result<Decision<Reply>, Refusal>;

impl Command {
    /// Runs the command's rule.
    pub(crate) fn run(
        &self,
        slot: &mut Option<Record>,
        key: &[u8],
        context: &Context<'_>,
    ) -> Outcome {
        match self {
            Self::Create(request) => answer(rules::create(slot, request, context), Reply::Create),
            Self::Touch(request) => answer(rules::touch(slot, request, context), Reply::Touch),
            Self::Route(request) => answer(rules::route(slot, request, context), Reply::Route),
            Self::Bind(request) => answer(rules::bind(slot, key, request, context), Reply::Bind),
            Self::Confirm(request) => {
                answer(rules::confirm(slot, request, context), Reply::Confirm)
            }
            Self::Rebind(request) => {
                answer(rules::rebind(slot, key, request, context), Reply::Rebind)
            }
            Self::Unbind(request) => answer(rules::unbind(slot, request, context), Reply::Unbind),
            Self::End(request) => answer(rules::end(slot, request, context), Reply::End),
            Self::Claim(request) => answer(rules::claim(slot, request, context), Reply::Claim),
            Self::Forget(request) => answer(rules::forget(slot, request, context), Reply::Forget),
        }
    }

    /// Who says it, where the command names a principal.
    pub(crate) fn principal(&self) -> Option<&Principal> {
        match self {
            Self::Create(request) => Some(&request.principal),
            Self::Touch(request) => Some(&request.principal),
            Self::Route(request) => Some(&request.principal),
            Self::Bind(request) => Some(&request.principal),
            Self::Confirm(request) => Some(&request.principal),
            Self::Rebind(request) => Some(&request.principal),
            Self::Unbind(request) => Some(&request.principal),
            Self::End(request) => request.principal.as_ref(),
            Self::Claim(_) | Self::Forget(_) => None,
        }
    }

    /// The same command said by another.
    pub(crate) fn said_by(mut self, other: &Principal) -> Self {
        match &mut self {
            Self::Create(request) => request.principal = other.clone(),
            Self::Touch(request) => request.principal = other.clone(),
            Self::Route(request) => request.principal = other.clone(),
            Self::Bind(request) => request.principal = other.clone(),
            Self::Confirm(request) => request.principal = other.clone(),
            Self::Rebind(request) => request.principal = other.clone(),
            Self::Unbind(request) => request.principal = other.clone(),
            Self::End(request) => {
                request.principal = request.principal.take().map(|_| other.clone());
            }
            Self::Claim(_) | Self::Forget(_) => {}
        }
        self
    }
}

fn answer<R>(decided: Result<Decision<R>, Refusal>, wrap: impl Fn(R) -> Reply) -> Outcome {
    decided.map(|Decision { reply, written }| Decision::new(wrap(reply), written))
}

/// Fails unless the record changed exactly as far as `outcome` says it did.
pub(crate) fn assert_written(before: Option<&Record>, after: Option<&Record>, outcome: &Outcome) {
    match outcome {
        Err(refusal) => assert_eq!(before, after, "a refusal ({refusal}) changed the record"),
        Ok(decided) => match decided.written {
            RecordChange::Nothing => {
                assert_eq!(before, after, "RecordChange::Nothing changed the record")
            }
            RecordChange::Lifetime => {
                let (before, after) = (before.unwrap(), after.unwrap());
                let slid = Record {
                    lifetime: after.lifetime,
                    ..before.clone()
                };
                assert_eq!(
                    &slid, after,
                    "RecordChange::Lifetime changed more than the lifetime"
                );
            }
            RecordChange::Record => {
                assert!(after.is_some(), "RecordChange::Record without a record")
            }
            RecordChange::Removed => assert_eq!(after, None, "RecordChange::Removed left a record"),
        },
    }
}
