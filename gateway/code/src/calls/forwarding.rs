//! A call on its way out: the policy, the tool that is meant, and the server's answer.
//!
//! Invariant: nothing leaves that the policy denies or that is not mounted, and a call that is dropped is
//! cancelled where it was sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use mooring_session::names::ServerName;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::OnceCell;

use super::outcome::{ReplyHead, outcome};
use super::question::{RunClient, question};
use super::{
    CallError, CallErrorKind, Callee, LostStates, MESSAGE_BYTES_MAX, NestedCall, Upstreams,
};
use crate::volume::MountManifest;
use mooring_protocol::{
    ErrorBody, ErrorKind, Kind, Message, Method, Reply, ReplyError, ReplyMessages, Sender, call,
    mark,
};
use mooring_settings::{CallPolicy, CallVerdict, Language};
use mooring_store::Session;
use mooring_usage::for_same_user;

/// Forwards the calls of a code session to upstream servers, over the session's own bindings.
#[derive(Debug)]
pub(crate) struct ForwardingCallee {
    /// The session whose bindings the calls use.
    pub(crate) session: Session,
    /// Which of the user's sessions: answers come back to it.
    pub(crate) language: Language,
    /// The way to the servers.
    pub(crate) upstreams: Arc<dyn Upstreams>,
    /// The policy for calls.
    pub(crate) policy: CallPolicy,
    /// The tools that are mounted.
    pub(crate) mounted: MountManifest,
    /// The servers that run code themselves.
    pub(crate) code_servers: Arc<[ServerName]>,
    /// The client that answers questions of tools.
    pub(crate) client: RunClient,
    /// The prefix of the ids of calls.
    pub(crate) run_id: Box<str>,
    pub(crate) calls: AtomicU64,
    pub(crate) initialize_params: OnceCell<()>,
    /// Which servers have lost the session's state.
    pub(crate) lost: LostStates,
}

impl Callee for ForwardingCallee {
    async fn call(&self, call: NestedCall) -> Result<Value, CallError> {
        self.check(&call)?;
        self.save_initialize_params().await?;
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let id_json = format!("\"{}.{number}\"", self.run_id);
        let params = Params {
            name: &call.tool,
            arguments: &call.arguments,
        };
        let text = serde_json::to_string(&params).map_err(|_| {
            CallErrorKind::Internal.error("internal error: the call could not be serialized")
        })?;
        let text = call::again(&id_json, Method::ToolsCall, Some(&text));
        let mut open = Open {
            forwarding: self,
            server: &call.server,
            id_json: &id_json,
            is_over: false,
        };
        let reply = self
            .upstreams
            .send(&self.session, &call.server, Bytes::from(text))
            .await;
        let answered = self.read_answer(reply, &call.server).await;
        open.is_over = true;
        answered
    }
}

impl ForwardingCallee {
    fn check(&self, call: &NestedCall) -> Result<(), CallError> {
        let NestedCall { server, tool, .. } = call;
        let denied = |message: String| Err(CallErrorKind::Denied.error(message));
        match self.policy.verdict(server, tool) {
            CallVerdict::Allowed => {}
            CallVerdict::NoneAllowed => {
                return denied("code may not call tools on this server".to_owned());
            }
            CallVerdict::Denied => {
                return denied(format!("the policy of this server denies {server}/{tool}"));
            }
            CallVerdict::NotAllowed => {
                return denied(format!(
                    "the policy of this server does not allow {server}/{tool}"
                ));
            }
        }
        if self.code_servers.iter().any(|id| id.as_str() == &**server) {
            return Err(CallErrorKind::Recursion.error(format!(
                "{server} runs code itself, and code cannot call it"
            )));
        }
        if !self.is_mounted(call) {
            return Err(CallErrorKind::NotMounted.error(format!(
                "no tool {server}/{tool} is mounted in this session"
            )));
        }
        Ok(())
    }

    fn is_mounted(&self, call: &NestedCall) -> bool {
        (self.mounted.tools.iter())
            .any(|tool| tool.original_name == *call.tool && tool.server == *call.server)
    }

    /// Stores in the session the initialize params for its upstream sessions, once in a run.
    async fn save_initialize_params(&self) -> Result<(), CallError> {
        let saved = self
            .initialize_params
            .get_or_try_init(|| self.upstreams.save_initialize_params(&self.session));
        saved.await.copied().map_err(|error| {
            tracing::info!(session = %self.session.digest, %error, "initialize params of a code session not stored");
            CallErrorKind::Unavailable
                .error("the session store is not available; nothing was called")
        })
    }

    /// Reads the reply up to its answer. Requests of the server are forwarded or answered; notifications are dropped.
    async fn read_answer(&self, reply: Reply, server: &str) -> Result<Value, CallError> {
        let head = ReplyHead {
            status: reply.status,
            has_retry_after: reply.retry_after.is_some(),
        };
        let unknown = |message: &str| {
            let failure = head.failure();
            Err(failure.unwrap_or_else(|| CallErrorKind::OutcomeUnknown.error(message)))
        };
        let mut messages = ReplyMessages::of(reply, MESSAGE_BYTES_MAX);
        loop {
            let text = match messages.next().await {
                Ok(Some(text)) => text,
                Ok(None) | Err(ReplyError::Broken(_)) => {
                    return unknown("connection lost during the call, which may have run");
                }
                Err(error) => return Err(CallErrorKind::Limit.error(error.to_string())),
            };
            let Ok(message) = Message::parse(&text, Sender::Upstream) else {
                return unknown("the server's answer is not an MCP message; the call may have run");
            };
            match message.kind() {
                Kind::Result | Kind::Error => {
                    if message.outcome().and_then(mark::mark_of).is_some() {
                        self.lost.note(server);
                    }
                    return outcome(&message, head);
                }
                Kind::Request => self.answer_server_request(server, &message),
                Kind::Notification => {}
            }
        }
    }

    /// Answers a request of the server without waiting; the reply is read on meanwhile.
    fn answer_server_request(&self, server: &str, message: &Message<'_>) {
        let Some(id) = message.id() else { return };
        let answer = match (message.method(), message.method_name()) {
            (Method::Ping, _) => call::empty_result(id.as_json()).into_bytes().into(),
            (_, Some(ELICITATION)) => {
                let question = question(message, self.language, server);
                if question.is_some_and(|question| self.client.ask(question)) {
                    return;
                }
                error_response(message, "the client of this run cannot receive requests")
            }
            _ => error_response(
                message,
                "only elicitation requests are supported during a call from code",
            ),
        };
        self.send_message(server, answer);
    }

    /// Sends a message that has no reply of interest.
    fn send_message(&self, server: &str, text: Bytes) {
        let sending = self.upstreams.send(&self.session, server, text);
        tokio::spawn(for_same_user(async move { drop(sending.await) }));
    }
}

/// The only server request that is passed to the client during a call.
const ELICITATION: &str = "elicitation/create";

/// A call that was sent. If it is dropped before its reply, the server gets a cancellation.
struct Open<'a> {
    forwarding: &'a ForwardingCallee,
    server: &'a str,
    id_json: &'a str,
    is_over: bool,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let text = call::cancelled(self.id_json, "the run is over");
            self.forwarding.send_message(self.server, Bytes::from(text));
        }
    }
}

/// The params of `tools/call`.
#[derive(Serialize)]
struct Params<'a> {
    name: &'a str,
    arguments: &'a Map<String, Value>,
}

fn error_response(message: &Message<'_>, detail: &str) -> Bytes {
    ErrorBody::new(ErrorKind::MethodNotFound)
        .answering(message.id())
        .detail(detail)
        .to_bytes()
}
