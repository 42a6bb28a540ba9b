//! The tools of a server as one caller sees them: calls of others are refused, and lists do not have them.
//!
//! Invariant: a list of tools that cannot be read is not forwarded to a caller that may not use every tool.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future;

use super::answer;
use super::map_messages::map_messages;
use super::policy::{Access, AccessPolicy};
use super::refusals::RefusalCause;
use super::request::{RequestServer, ServerRequest};
use super::serving_core::ServingCore;
use mooring_identity::Identity;
use mooring_protocol::listing::retain;
use mooring_protocol::{ErrorBody, ErrorKind, Listing, Message, Method, Reply, Sender};

/// A caller at a server.
pub(crate) struct VisibleTools<'a> {
    core: &'a ServingCore,
    caller: &'a Arc<Identity>,
    server: &'a str,
}

impl<'a> VisibleTools<'a> {
    /// What the caller of this request may use at its server.
    pub(crate) fn of<S: RequestServer>(request: &ServerRequest<'a, S>) -> Self {
        Self {
            core: &request.request.core,
            caller: &request.request.identity,
            server: request.server.id().as_str(),
        }
    }

    fn access(&self) -> Access<'a> {
        self.core.policy.decide(self.caller, self.server).access
    }

    /// The refusal of a call of a tool that the caller may not use, the same as for a tool that does not exist.
    pub(crate) fn refuse_call(&self, message: &Message<'_>) -> Option<Reply> {
        if message.method() != Method::ToolsCall {
            return None;
        }
        let tool = message.params.name();
        let is_allowed = match (self.access(), &tool) {
            (Access::Whole, _) => true,
            (Access::Limited(filter), Some(tool)) => filter.allows(tool),
            (Access::Limited(_), None) | (Access::Denied(_), _) => false,
        };
        if is_allowed {
            return None;
        }
        let (server, tool) = (self.server, tool.unwrap_or_default());
        let user = self.core.request_log.user_digest(&self.caller.principal);
        tracing::info!(server, %tool, %user, "call refused: no rule of servers.allow lets its user use the tool");
        let reason = "no rule of servers.allow lets its user use the tool";
        let cause = RefusalCause::at(server, reason).of_tool(&tool);
        self.core.request_log.note_refusal(&user, cause);
        let detail = format_args!("unknown tool {tool:?}");
        let (kind, id) = (ErrorKind::ParamsRefused, message.id());
        Some(answer::detailed(kind, id, detail))
    }

    /// Removes the other tools from replies; none if the caller may use every tool.
    pub(crate) fn list_filter(&self) -> Option<ToolListFilter> {
        match self.access() {
            Access::Whole => None,
            Access::Limited(_) | Access::Denied(_) => Some(ToolListFilter {
                policy: Arc::clone(&self.core.policy),
                caller: Arc::clone(self.caller),
                server: self.server.into(),
                bytes_max: self.core.relay.message_bytes_max,
            }),
        }
    }
}

/// Takes tools out of lists that their caller may not use.
pub(crate) struct ToolListFilter {
    policy: Arc<AccessPolicy>,
    caller: Arc<Identity>,
    server: Box<str>,
    bytes_max: usize,
}

impl ToolListFilter {
    /// The reply without those tools. A JSON reply is read whole first.
    pub(crate) async fn apply(self, reply: Reply) -> Reply {
        let bytes_max = self.bytes_max;
        let filter = Arc::new(self);
        let without_others = move |text| future::ready(filter.without_others(text));
        match map_messages(reply, bytes_max, without_others).await {
            Ok(reply) => reply,
            Err(cause) => answer::unread(&cause),
        }
    }

    /// The message itself if it is no list of tools; an error instead if it is a list that cannot be read.
    fn without_others(&self, text: Bytes) -> Bytes {
        let message = match Message::parse(&text, Sender::Upstream) {
            Ok(message) => message,
            Err(cause) => {
                tracing::warn!(server = %self.server, %cause, "a reply that may have a list of tools cannot be read, so a caller gets none of it");
                return ErrorBody::new(ErrorKind::UpstreamInvalid).to_bytes();
            }
        };
        let is_visible = |tool: &str| self.policy.may_call(&self.caller, &self.server, tool);
        match retain(Listing::Tools, &message, is_visible) {
            Ok(None) => text,
            Ok(Some(kept)) => Bytes::from(kept),
            Err(cause) => {
                tracing::warn!(server = %self.server, %cause, "a list of tools cannot be read, so a caller gets none of it");
                let error = ErrorBody::new(ErrorKind::UpstreamInvalid).answering(message.id());
                error.to_bytes()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use mooring_session::names::Principal;

    use super::*;

    /// Two programs could read such a list in different ways, and the relay passes replies on without parsing them.
    #[test]
    fn a_list_that_cannot_be_read_is_not_passed_on() {
        let filter = ToolListFilter {
            policy: Arc::new(AccessPolicy::open()),
            caller: Arc::new(Identity::of(Principal::parse(b"ada").unwrap())),
            server: "tracker".into(),
            bytes_max: 1000,
        };
        let tools = r#"{"tools":[{"name":"wipe"}]}"#;
        for text in [
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{tools},"result":{tools}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{tools}"#),
            format!("[{tools}]"),
        ] {
            let shown = filter.without_others(Bytes::from(text));
            let shown = String::from_utf8_lossy(&shown);
            assert!(
                shown.contains("-32011") && !shown.contains("wipe"),
                "{shown}"
            );
        }
    }
}
