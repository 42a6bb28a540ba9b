//! One tool as it is mounted.

use serde::Serialize;
use serde_json::Value;

/// One tool, as the catalog has it. Who made or changed it, and from where, is personal and left out.
///
/// Every text and schema in it comes from the operator of its server: nothing in it is trusted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MountedTool {
    /// The name by which it is called through the gateway.
    pub id: String,
    /// The name in its catalog.
    pub name: String,
    /// The name that its server gave it: what code's calls name.
    pub original_name: String,
    /// The id of its server, as it is configured.
    pub server: String,
    /// Its title, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it does.
    pub description: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// The JSON schema of its arguments.
    pub input_schema: Value,
    /// Its output schema, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Its server's annotations of its effects, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Value>,
}
