//! The tools of a server as one caller sees them: calls of others are refused, and lists do not have them.
//!
//! Invariant: a list of tools that cannot be read is not passed on to a caller who may not use every tool.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{TryStreamExt as _, future};

use super::{App, answer};
use crate::policy::{Access, AccessPolicy};
use mooring_identity::Identity;
use mooring_protocol::listing::retain;
use mooring_protocol::{
    ErrorBody, ErrorKind, Event, Listing, Message, Method, Reply, ReplyBody, Sender,
};

/// A caller at a server.
pub(super) struct VisibleTools<'a> {
    app: &'a App,
    caller: &'a Arc<Identity>,
    server: &'a str,
}

impl<'a> VisibleTools<'a> {
    /// What this caller may use at a server.
    pub(super) const fn of(app: &'a App, caller: &'a Arc<Identity>, server: &'a str) -> Self {
        Self {
            app,
            caller,
            server,
        }
    }

    fn access(&self) -> Access<'a> {
        self.app.policy.decide(self.caller, self.server).access
    }

    /// The refusal of a call of a tool that the caller may not use, the same as for a tool that does not exist.
    pub(super) fn refuse_call(&self, message: &Message<'_>) -> Option<Reply> {
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
        tracing::info!(server, %tool, "call refused: no rule of servers.allow lets its caller use the tool");
        let error = ErrorBody::new(ErrorKind::ParamsRefused).answering(message.id());
        Some(answer::error(
            &error.detail(format_args!("unknown tool {tool:?}")),
        ))
    }

    /// What takes the other tools out of replies; none where the caller may use every tool.
    pub(super) fn list_filter(&self) -> Option<ToolListFilter> {
        match self.access() {
            Access::Whole => None,
            Access::Limited(_) | Access::Denied(_) => Some(ToolListFilter {
                policy: Arc::clone(&self.app.policy),
                caller: Arc::clone(self.caller),
                server: self.server.into(),
                bytes_max: self.app.relay.message_bytes_max,
            }),
        }
    }
}

/// Takes tools out of lists that their caller may not use.
pub(super) struct ToolListFilter {
    policy: Arc<AccessPolicy>,
    caller: Arc<Identity>,
    server: Box<str>,
    bytes_max: usize,
}

impl ToolListFilter {
    /// The reply without those tools. A JSON reply is read whole first.
    pub(super) async fn apply(self, reply: Reply) -> Reply {
        let body = match reply.body {
            ReplyBody::Json(_) | ReplyBody::JsonStream(_) => {
                match reply.body.read_text(self.bytes_max).await {
                    Ok(text) => ReplyBody::Json(self.without_others(text)),
                    Err(_) => return answer::plain(ErrorKind::UpstreamInvalid, None),
                }
            }
            ReplyBody::Events(events) => {
                let filtered = move |event| future::ok(self.event_without_others(event));
                ReplyBody::Events(Box::pin(events.and_then(filtered)))
            }
            body @ (ReplyBody::Empty | ReplyBody::Text(_)) => body,
        };
        Reply { body, ..reply }
    }

    fn event_without_others(&self, mut event: Event) -> Event {
        if event.as_message().is_some() {
            event.data = event.data.map(|text| self.without_others(text));
        }
        event
    }

    /// The message itself if it is no list of tools; an error in its place if it is one that cannot be read.
    fn without_others(&self, text: Bytes) -> Bytes {
        let Ok(message) = Message::parse(&text, Sender::Upstream) else {
            // What is no message was written by the gateway: the relay has parsed every one of the server's.
            return text;
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
