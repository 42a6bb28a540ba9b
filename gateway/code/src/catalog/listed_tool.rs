//! The tools of a server, as it lists them.

use std::sync::Arc;

use mooring_session::names::ServerName;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One tool, as its server lists it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListedTool {
    /// Its name.
    pub(crate) name: String,
    /// Its name for people.
    pub(crate) title: Option<String>,
    /// What it does.
    pub(crate) description: String,
    /// Its tags: the server's and its own, sorted, without duplicates.
    pub(crate) tags: Vec<String>,
    /// The JSON schema of its arguments.
    pub(crate) input_schema: Value,
    /// Its output schema, if it has one.
    pub(crate) output_schema: Option<Value>,
    /// Its server's annotations of its behavior.
    pub(crate) annotations: Option<Value>,
}

impl ListedTool {
    /// About how many bytes of memory it takes. A parsed schema takes many times its text: `[1,1]` a value for each two
    /// bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let words = [
            Some(&self.name),
            self.title.as_ref(),
            Some(&self.description),
        ];
        let words: usize = words.into_iter().flatten().map(String::len).sum();
        let tags: usize = self.tags.iter().map(|tag| VALUE_BYTES + tag.len()).sum();
        let schemas = [
            Some(&self.input_schema),
            self.output_schema.as_ref(),
            self.annotations.as_ref(),
        ];
        let schemas: usize = schemas.into_iter().flatten().map(value_bytes).sum();
        VALUE_BYTES + words + tags + schemas
    }
}

/// The memory of one JSON value or key in addition to its text.
const VALUE_BYTES: usize = 64;

/// JSON is parsed no deeper than 128 levels.
fn value_bytes(value: &Value) -> usize {
    let inside = match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(value_bytes).sum(),
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| VALUE_BYTES + key.len() + value_bytes(value))
            .sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    VALUE_BYTES + inside
}

/// The tools of one server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServerTools {
    /// The server's id.
    pub(crate) server: ServerName,
    /// Its tools, in its own order.
    pub(crate) tools: Arc<[ListedTool]>,
}

/// A server whose tools may be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountableServer {
    /// Its id.
    pub id: ServerName,
    /// The tags that all its tools inherit.
    pub tags: Vec<String>,
    /// Whether the gateway has to start a program to ask it.
    pub is_program: bool,
}
