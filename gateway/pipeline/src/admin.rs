//! Requests to servers of kind `admin`, which the gateway answers itself: what operators see and do, as tools for their agents.
//!
//! Such a server keeps no session and no state. Its tools are those of [`OperatorTools`], which the edge that has the admin API
//! gives it.
//!
//! Invariant: a caller sees the tools whose right it has, and a call has the rights of its caller and no others. A call that
//! has begun runs to its end, also without its client.

use std::fmt::Debug;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{HeaderValue, StatusCode};
use mooring_session::names::ServerName;
use serde_json::{Value, json};

use super::answer;
use super::built_in::{call_of, reply_to};
use super::policy::AccessPolicy;
use super::request::ServerRequest;
use super::request_entry::RequestEntry;
use mooring_identity::Identity;
use mooring_protocol::{ErrorKind, Kind, Message, Method, Reply, Revision, ToolServer};

/// The instructions for models.
const INSTRUCTIONS: &str = "The operators' side of a Mooring fleet: its sessions, gateways and servers. Sessions are named by \
                            their digests, as the lists show them. A tool that changes something only says what it would do, \
                            unless confirm is true: look at that first, and confirm what your user wants.";

/// A server of kind `admin`.
#[derive(Clone, Debug)]
pub struct AdminServer {
    /// Its id.
    pub id: ServerName,
    /// Its tools, the same at every such server.
    pub tools: Arc<dyn OperatorTools>,
}

/// What operators see and do, as tools.
pub trait OperatorTools: Debug + Send + Sync {
    /// The tools whose right this caller has: the result of `tools/list`, as JSON text.
    fn list(&self, policy: &AccessPolicy, caller: &Identity) -> String;

    /// Prepares a call, which returns the result of `tools/call`, as JSON text; none if there is no such tool.
    fn call(&self, call: OperatorToolCall) -> Option<BoxFuture<'static, String>>;
}

/// A call of a tool, of an admitted caller.
#[derive(Debug)]
pub struct OperatorToolCall {
    /// Who calls.
    pub caller: Arc<Identity>,
    /// The id of the request, for audit lines.
    pub request_id: HeaderValue,
    /// The name of the tool.
    pub tool: Box<str>,
    /// What the call says.
    pub arguments: Option<Value>,
    /// Whether a page in a browser calls that is none of the gateway's own.
    pub is_from_foreign_page: bool,
}

/// A request for a server of kind `admin`.
type AdminRequest<'a> = ServerRequest<'a, AdminServer>;

/// Serves one message.
pub(crate) async fn post(
    request: &AdminRequest<'_>,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    match message.kind() {
        Kind::Request => {}
        // A call is not cut off.
        Kind::Notification => return Reply::empty(StatusCode::ACCEPTED),
        Kind::Result | Kind::Error => {
            return answer::plain(ErrorKind::AnswerUnexpected, message.id());
        }
    }
    let policy = &request.core.policy;
    let list = match message.method() {
        Method::ToolsList => request.server.tools.list(policy, &request.identity),
        _ => String::new(),
    };
    let entry = request.entry.as_ref();
    let view = Arc::new(CallerView {
        server: request.server.clone(),
        caller: Arc::clone(&request.identity),
        request_id: entry.map_or_else(|| RequestEntry::id_of(None), |entry| entry.id().clone()),
        list,
        is_from_foreign_page: request.fields.is_from_foreign_page,
    });
    let (call, id_json) = match call_of(&view, message, revision) {
        Ok(call) => call,
        Err(reply) => return *reply,
    };
    reply_to(id_json, revision, call, None, request.call.clone()).await
}

/// The server as the caller of one request sees it.
struct CallerView {
    server: AdminServer,
    caller: Arc<Identity>,
    request_id: HeaderValue,
    /// The result of `tools/list`; empty where the request asks for something else.
    list: String,
    is_from_foreign_page: bool,
}

impl ToolServer for CallerView {
    type Call = BoxFuture<'static, String>;

    fn initialize(&self, revision: Revision) -> String {
        json!({
            "protocolVersion": revision.as_str(),
            "capabilities": { "tools": {} },
            "serverInfo": {
                "name": "mooring",
                "title": format!("Operators' tools ({})", self.server.id),
                "version": env!("CARGO_PKG_VERSION"),
            },
            "instructions": INSTRUCTIONS,
        })
        .to_string()
    }

    fn tools_json(&self) -> &str {
        &self.list
    }

    fn call(self: &Arc<Self>, tool: &str, arguments: Option<Value>) -> Option<Self::Call> {
        self.server.tools.call(OperatorToolCall {
            caller: Arc::clone(&self.caller),
            request_id: self.request_id.clone(),
            tool: tool.into(),
            arguments,
            is_from_foreign_page: self.is_from_foreign_page,
        })
    }
}
