//! The MCP protocol of servers that the gateway itself provides: immediate answers, and calls to run.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::modern::complete_result;
use super::{ErrorBody, ErrorKind, Message, Method, Revision};

/// How long a client may keep what a server offers, in milliseconds. It changes with the settings alone.
const CACHED_MS: u64 = 60_000;
/// How many characters of a name an error repeats.
const NAME_CHARS_MAX: usize = 60;

/// A server that offers only tools.
pub trait ToolServer {
    /// A prepared call.
    type Call;

    /// The result of `initialize`, as JSON text.
    fn initialize(&self, revision: Revision) -> String;

    /// The result of `tools/list`, as JSON text: a single page.
    fn tools_json(&self) -> &str;

    /// Prepares a call of a tool; `None` if the tool does not exist.
    fn call(self: &Arc<Self>, tool: &str, arguments: Option<Value>) -> Option<Self::Call>;
}

/// How a tool server handles a request.
pub enum ToolServerReply<'a, C> {
    /// This `result`, as JSON text.
    Result(String),
    /// This error.
    Error(ErrorBody<'a>),
    /// The result of running this call.
    Call(C),
}

/// The params of `tools/call`; other members are ignored.
#[derive(Deserialize)]
struct CallParams {
    #[serde(default)]
    arguments: Option<Value>,
}

/// The params of `tools/list`.
#[derive(Default, Deserialize)]
struct ListParams {
    #[serde(default)]
    cursor: Option<Value>,
}

/// Handles a request of a client.
pub fn handle_request<'a, S: ToolServer>(
    server: &Arc<S>,
    message: &Message<'a>,
    revision: Revision,
) -> ToolServerReply<'a, S::Call> {
    let error = |kind: ErrorKind| ErrorBody::new(kind).answering(message.id());
    match message.method() {
        Method::ServerDiscover if revision.is_modern() => {
            ToolServerReply::Result(discovery(&server.initialize(revision)))
        }
        Method::Initialize if !revision.is_modern() => {
            ToolServerReply::Result(server.initialize(revision))
        }
        Method::Ping if !revision.is_modern() => ToolServerReply::Result("{}".to_owned()),
        Method::ToolsList => match params::<ListParams>(message) {
            Ok(ListParams { cursor: None }) if revision.is_modern() => {
                ToolServerReply::Result(complete_result(server.tools_json(), Some(CACHED_MS)))
            }
            Ok(ListParams { cursor: None }) => {
                ToolServerReply::Result(server.tools_json().to_owned())
            }
            // The list has one page, so no cursor was ever issued.
            Ok(_) => {
                ToolServerReply::Error(error(ErrorKind::ParamsRefused).detail("unknown cursor"))
            }
            Err(cause) => ToolServerReply::Error(error(ErrorKind::ParamsRefused).detail(cause)),
        },
        Method::ToolsCall => match call(server, message) {
            Ok(call) => ToolServerReply::Call(call),
            Err(detail) => ToolServerReply::Error(error(ErrorKind::ParamsRefused).detail(detail)),
        },
        _ if revision.is_modern() => ToolServerReply::Error(error(ErrorKind::MethodUnknown)),
        _ => ToolServerReply::Error(error(ErrorKind::MethodNotFound)),
    }
}

/// The result of `server/discover` of a server whose `initialize` has this result (MCP 2026-07-28, discovery).
fn discovery(initialize: &str) -> String {
    let described: Value = serde_json::from_str(initialize).unwrap_or_default();
    let part = |name: &str| described.get(name).cloned().unwrap_or_default();
    let discovered = json!({
        "supportedVersions": [Revision::MODERN.as_str()],
        "capabilities": part("capabilities"),
        "instructions": part("instructions"),
        "_meta": { "io.modelcontextprotocol/serverInfo": part("serverInfo") },
    });
    complete_result(&discovered.to_string(), Some(CACHED_MS))
}

fn call<S: ToolServer>(server: &Arc<S>, message: &Message<'_>) -> Result<S::Call, String> {
    let name = message.params.name().ok_or("tools/call needs a name")?;
    let params: CallParams = params(message).map_err(|cause| cause.to_string())?;
    server
        .call(&name, params.arguments)
        .ok_or_else(|| format!("unknown tool {:?}", shortened(&name)))
}

/// The params of a request; none is the same as an empty object.
fn params<'a, T: Deserialize<'a>>(message: &Message<'a>) -> Result<T, serde_json::Error> {
    serde_json::from_str(message.raw_params().unwrap_or("{}"))
}

fn shortened(name: &str) -> String {
    name.chars().take(NAME_CHARS_MAX).collect()
}
