//! Asking a server for its tools, as a client that comes, looks and goes.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::listed_tool::{ListedTool, MountableServer};
use crate::calls::Upstreams;
use mooring_protocol::listing::{Page, PageError};
use mooring_protocol::{
    EnvelopeError, Kind, Listing, Message, Reply, ReplyError, ReplyMessages, Sender, call,
};

/// Most pages of one list.
const PAGES_MAX: usize = 64;
/// Most tools of one server.
const TOOLS_MAX: usize = 4_096;
/// Longest list of one server, all pages together: one of a thousand tools is under 1 MiB.
const LIST_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest definition of one tool. One that is longer is left out.
const TOOL_BYTES_MAX: usize = 256 * 1024;
/// Most memory that the tools of one server take once they are parsed.
const MEMORY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Why a server's tools are not known.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The answer broke off, or was too long.
    #[error(transparent)]
    Reply(#[from] ReplyError),
    /// It did not answer.
    #[error("the server returned no response (status {0})")]
    Silent(u16),
    /// Its answer is no message.
    #[error(transparent)]
    Message(#[from] EnvelopeError),
    /// It answered with an error.
    #[error("the server returned an error: {0}")]
    Refused(Box<str>),
    /// Its answer is no list.
    #[error(transparent)]
    Page(#[from] PageError),
    /// It did not answer in time.
    #[error("the server did not answer in time")]
    Late,
    /// Its list is too long.
    #[error(
        "the list is longer than {TOOLS_MAX} tools, {PAGES_MAX} pages or {LIST_BYTES_MAX} bytes"
    )]
    TooLong,
    /// Its list takes too much memory.
    #[error("the parsed list takes more than {MEMORY_BYTES_MAX} bytes of memory")]
    TooLarge,
    /// The task that read a page panicked.
    #[error("a page could not be read")]
    Task(#[from] tokio::task::JoinError),
}

/// Asks for the whole list.
pub async fn list(
    upstreams: &Arc<dyn Upstreams>,
    server: &MountableServer,
) -> Result<Vec<ListedTool>, ListError> {
    let id = server.id.as_str();
    // As code is introduced: servers show some tools only to clients that can do what they need.
    let greeting = call::initialize("1", &call::code_initialize_params());
    let mut reply = upstreams.visit(id, None, Bytes::from(greeting)).await;
    let session_id = reply.session_id.take();
    result(reply).await?;
    let listed = pages(upstreams, server, session_id.as_ref()).await;
    if let Some(session_id) = &session_id {
        upstreams.leave(id, session_id).await;
    }
    listed
}

async fn pages(
    upstreams: &Arc<dyn Upstreams>,
    server: &MountableServer,
    session_id: Option<&HeaderValue>,
) -> Result<Vec<ListedTool>, ListError> {
    let id = server.id.as_str();
    let initialized = Bytes::from_static(call::initialized().as_bytes());
    drop(upstreams.visit(id, session_id, initialized).await);
    let mut tools = Vec::new();
    let (mut bytes_left, mut memory_left) = (LIST_BYTES_MAX, MEMORY_BYTES_MAX);
    let mut cursor: Option<Box<str>> = None;
    for number in 0..PAGES_MAX {
        let request_id = format!("\"list-{number}\"");
        let text = call::list(&request_id, Listing::Tools, cursor.as_deref());
        let reply = upstreams.visit(id, session_id, Bytes::from(text)).await;
        let text = result(reply).await?;
        bytes_left = bytes_left
            .checked_sub(text.len())
            .ok_or(ListError::TooLong)?;
        let tags = server.tags.clone();
        // Other requests are served meanwhile: a page of a few MiB takes a while.
        let page = spawn_blocking(move || ToolsPage::read(&text, &tags)).await??;
        memory_left = memory_left
            .checked_sub(page.memory_bytes)
            .ok_or(ListError::TooLarge)?;
        if page.too_long > 0 {
            tracing::warn!(server = %server.id, count = page.too_long, "tool definitions over {TOOL_BYTES_MAX} bytes omitted");
        }
        tools.extend(page.tools);
        if tools.len() > TOOLS_MAX {
            return Err(ListError::TooLong);
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(tools);
        }
    }
    Err(ListError::TooLong)
}

/// The tools of one page.
struct ToolsPage {
    tools: Vec<ListedTool>,
    /// How many were left out because their definitions are longer than [`TOOL_BYTES_MAX`].
    too_long: usize,
    memory_bytes: usize,
    next_cursor: Option<Box<str>>,
}

impl ToolsPage {
    /// Reads the JSON text of a result, and gives up where the tools take too much memory.
    fn read(result: &str, server_tags: &[String]) -> Result<Self, ListError> {
        let page = Page::read(Listing::Tools, result)?;
        let mut read = Self {
            tools: Vec::new(),
            too_long: 0,
            memory_bytes: 0,
            next_cursor: page.next_cursor,
        };
        for entry in &page.entries {
            if entry.text().len() > TOOL_BYTES_MAX {
                read.too_long += 1;
            } else if let Some(tool) = tool(entry.text(), server_tags) {
                read.memory_bytes += tool.memory_bytes();
                read.tools.push(tool);
            }
            if read.memory_bytes > MEMORY_BYTES_MAX {
                return Err(ListError::TooLarge);
            }
        }
        Ok(read)
    }
}

/// The result of the one response in a reply.
async fn result(reply: Reply) -> Result<Box<str>, ListError> {
    let mut messages = ReplyMessages::of(reply, LIST_BYTES_MAX);
    while let Some(text) = messages.next().await? {
        let message = Message::parse(&text, Sender::Upstream)?;
        match (message.kind(), message.outcome()) {
            (Kind::Result, Some(result)) => return Ok(result.into()),
            (Kind::Error, Some(error)) => return Err(ListError::Refused(error.into())),
            _ => {}
        }
    }
    Err(ListError::Silent(messages.status.as_u16()))
}

/// A tool, as far as it is mounted.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Definition {
    name: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    input_schema: Option<Value>,
    #[serde(default)]
    output_schema: Option<Value>,
    #[serde(default)]
    annotations: Option<Value>,
    #[serde(default, rename = "_meta")]
    meta: Option<Value>,
}

/// None for what is no definition of a tool.
fn tool(text: &str, server_tags: &[String]) -> Option<ListedTool> {
    let definition: Definition = serde_json::from_str(text).ok()?;
    let own = definition.meta.iter().flat_map(tags);
    let tags: BTreeSet<String> = own.chain(server_tags.iter().cloned()).collect();
    Some(ListedTool {
        name: definition.name,
        title: definition.title,
        description: definition.description.unwrap_or_default(),
        tags: tags.into_iter().collect(),
        input_schema: (definition.input_schema).unwrap_or_else(|| json!({ "type": "object" })),
        output_schema: definition.output_schema,
        annotations: definition.annotations,
    })
}

/// The tags that a tool has itself: MCP has no field for them, so servers put them into `_meta`, as `tags` or, those of
/// FastMCP, as `fastmcp.tags`.
fn tags(meta: &Value) -> impl Iterator<Item = String> {
    ["/tags", "/fastmcp/tags", "/_fastmcp/tags"]
        .into_iter()
        .filter_map(|pointer| meta.pointer(pointer)?.as_array())
        .flatten()
        .filter_map(|tag| tag.as_str().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_tool_has_its_servers_tags_and_its_own() {
        let text = r#"{"name":"a","inputSchema":{"type":"object"},"_meta":{"fastmcp":{"tags":["x","s"]},"tags":["y"]}}"#;
        let tool = tool(text, &["s".to_owned()]).unwrap();
        assert_eq!(tool.tags, ["s", "x", "y"]);
        assert_eq!(tool.description, "");
        assert_eq!(super::tool("{}", &[]), None);
        assert_eq!(super::tool(r#"{"name":1}"#, &[]), None);
    }

    #[test]
    fn a_tool_whose_definition_is_too_long_is_left_out() {
        let long = "x".repeat(TOOL_BYTES_MAX);
        let text = json!({"tools": [{"name": "a", "description": long}, {"name": "b"}], "nextCursor": "c"});
        let page = ToolsPage::read(&text.to_string(), &[]).unwrap();
        let names: Vec<_> = page.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!((names, page.too_long), (vec!["b"], 1));
        assert_eq!(page.next_cursor.as_deref(), Some("c"));
    }

    /// A schema of small values takes many times its text.
    #[test]
    fn a_list_is_bounded_by_the_memory_that_its_schemas_take() {
        let ones = vec![1; TOOL_BYTES_MAX / 4];
        let schema = json!({"type": "object", "enum": ones});
        let tools: Vec<_> = (0..16)
            .map(|number| json!({"name": number.to_string(), "inputSchema": schema}))
            .collect();
        let text = json!({ "tools": tools }).to_string();
        assert!(text.len() < LIST_BYTES_MAX);
        let result = ToolsPage::read(&text, &[]);
        assert!(matches!(result, Err(ListError::TooLarge)));
    }
}
