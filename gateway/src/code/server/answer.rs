//! The answers of tools: text and structured content, which say the same.

use serde_json::{Value, json};

/// What came of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolAnswer {
    /// The structured content, an object.
    content: Value,
    /// Whether the agent should take it for a failure of what it asked.
    is_error: bool,
}

impl ToolAnswer {
    /// What was asked for.
    pub(crate) const fn done(content: Value) -> Self {
        Self {
            content,
            is_error: false,
        }
    }

    /// It failed, and this says how.
    pub(crate) const fn failed(content: Value) -> Self {
        Self {
            content,
            is_error: true,
        }
    }

    /// It failed, and this is all there is to say.
    pub(crate) fn refused(message: impl std::fmt::Display) -> Self {
        Self::failed(json!({ "error": message.to_string() }))
    }

    /// What it says.
    pub(crate) fn into_content(self) -> Value {
        self.content
    }

    /// The `result` of the JSON-RPC response, as JSON text.
    pub(crate) fn into_result(self) -> String {
        let text = self.content.to_string();
        let escaped = Value::from(text.as_str());
        let is_error = self.is_error;
        // The content is written once and used twice: as it is, and as a JSON string.
        format!(
            r#"{{"content":[{{"type":"text","text":{escaped}}}],"structuredContent":{text},"isError":{is_error}}}"#
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "tests fail by panicking"
    )]
    use super::*;

    #[test]
    fn text_and_structured_content_say_the_same() {
        let content = json!({"output": "a \"b\"\n", "error": null});
        let result: Value =
            serde_json::from_str(&ToolAnswer::done(content.clone()).into_result()).unwrap();
        assert_eq!(result["structuredContent"], content);
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), content);
        assert_eq!(result["isError"], false);
        let refused: Value =
            serde_json::from_str(&ToolAnswer::refused("no").into_result()).unwrap();
        assert_eq!(refused["structuredContent"], json!({"error": "no"}));
        assert_eq!(refused["isError"], true);
    }
}
