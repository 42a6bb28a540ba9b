//! Calls that are recorded on their way.
//!
//! Invariant: a call is on the volume before it is made, and its result before the code gets it; a record that
//! cannot be written holds up neither.

use std::sync::Arc;

use serde_json::Value;
use tokio::task::spawn_blocking;

use super::events::{EventKind, SecurityEvent};
use super::recording::Log;
use crate::calls::{CallError, CallErrorKind, Callee, NestedCall};

/// Records every call before and after the inner callee answers it.
#[derive(Debug)]
pub(crate) struct RecordingCallee<C> {
    inner: C,
    log: Option<Arc<Log>>,
}

impl<C: Callee> RecordingCallee<C> {
    pub(super) fn new(inner: C, log: Option<Arc<Log>>) -> Self {
        Self { inner, log }
    }
}

impl<C: Callee> Callee for RecordingCallee<C> {
    async fn call(&self, call: NestedCall) -> Result<Value, CallError> {
        let Some(log) = &self.log else {
            return self.inner.call(call).await;
        };
        let tool = format!("{}/{}", call.server, call.tool);
        let began = {
            let log = Arc::clone(log);
            spawn_blocking(move || (log.calls.began(&call), call)).await
        };
        let (open, call) = began.map_err(|_| internal_error())?;
        let result = self.inner.call(call).await;
        let log = Arc::clone(log);
        let ended = spawn_blocking(move || {
            log.calls.ended(&open, &result);
            if let Err(error) = &result {
                let event = SecurityEvent::new(event_kind(error.kind), error.message.clone());
                log.event(&event.of_tool(tool).of_call(open.seq));
            }
            result
        });
        ended.await.map_err(|_| internal_error())?
    }
}

/// The kind of event for an error of a call.
const fn event_kind(kind: CallErrorKind) -> EventKind {
    match kind {
        CallErrorKind::NotMounted | CallErrorKind::Denied | CallErrorKind::Recursion => {
            EventKind::ToolCallBlocked
        }
        CallErrorKind::Limit => EventKind::LimitHit,
        CallErrorKind::Diverged => EventKind::ReplayDiverged,
        CallErrorKind::ToolError
        | CallErrorKind::Invalid
        | CallErrorKind::Timeout
        | CallErrorKind::Unavailable
        | CallErrorKind::OutcomeUnknown
        | CallErrorKind::Internal => EventKind::ToolCallError,
    }
}

fn internal_error() -> CallError {
    CallErrorKind::Internal
        .error("internal error, or the gateway is stopping: the call was not completed")
}
