//! Calls that code in the sandbox makes of the tools of other servers.
//!
//! A call passes through layers that all are a [`Callee`]: it is recorded, its tokens are turned back, the policy is asked,
//! and then it goes where a client's call would go, over the bindings of the code session.

mod forwarding;
mod lost_state;
mod outcome;
mod question;
mod upstreams;

use serde::Serialize;
use serde_json::{Map, Value};
use strum::{EnumString, IntoStaticStr};

pub(crate) use forwarding::ForwardingCallee;
pub(crate) use lost_state::LostStates;
pub use question::{AnswerPlace, RunClient};
pub use upstreams::Upstreams;

/// Longest message of a server's reply.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// One call that code makes of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct NestedCall {
    /// The server's id, as it is configured.
    pub(crate) server: Box<str>,
    /// The tool's name, as its server gave it.
    pub(crate) tool: Box<str>,
    /// Its arguments.
    pub arguments: Map<String, Value>,
}

/// Why a nested call failed, as reported to the code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// The kind of error.
    pub(crate) kind: CallErrorKind,
    /// The same in a sentence. It names no path of the host and no address.
    pub(crate) message: String,
}

/// The kind of error of a call. The words are part of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, EnumString, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub(crate) enum CallErrorKind {
    /// The tool answered with an error; the message is its own.
    ToolError,
    /// No such tool is mounted in the session.
    NotMounted,
    /// The policy forbids the tool.
    Denied,
    /// Too many calls, or one that is too large or too deep.
    Limit,
    /// It is no call.
    Invalid,
    /// The tool took longer than it may.
    Timeout,
    /// Its server, or the session store, is away, or the server refused the call. Nothing ran.
    Unavailable,
    /// The connection broke, or the server's answer does not say what became of the call: it may have run.
    OutcomeUnknown,
    /// It is a tool of a server that runs code.
    Recursion,
    /// A replay came to a call that the record does not have at this place.
    Diverged,
    /// A defect of the gateway's.
    Internal,
}

impl CallErrorKind {
    /// An error of this kind.
    pub(crate) fn error(self, message: impl Into<String>) -> CallError {
        CallError {
            kind: self,
            message: message.into(),
        }
    }
}

/// Answers calls.
pub trait Callee: Send + Sync + 'static {
    /// Makes the call.
    fn call(&self, call: NestedCall) -> impl Future<Output = Result<Value, CallError>> + Send;
}
