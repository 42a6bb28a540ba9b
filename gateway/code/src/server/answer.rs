//! The answers of tools: what a model reads, and the structured content that programs read.
//!
//! Hosts differ in which half they show a model, so both are small: the text has only the requested data, and the
//! structured content has no empty field. Data about the run itself is in `_meta`, which no host shows. `code.answer =
//! "full"` answers as ContextForge's ADR-0041 has it instead: one object, and the same as JSON in the text.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use super::failure::Failure;
use crate::records::{EventKind, SecurityEvent};
use mooring_protocol::arguments::ArgumentError;
use mooring_sandbox::tree::{NameFault, PathError, TreeError};
use mooring_settings::AnswerForm;

/// The characters to escape in the path of a URI: all but RFC 3986's unreserved characters and the slash.
const PATH_ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// Where an answer of `shell_exec` says how the code ran.
pub(crate) const RUN_KEY: &str = "mooring/run";

/// The answer to a tool call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolAnswer {
    /// The structured content, an object.
    content: Value,
    /// The text for the model in the form `brief`; if there is none, the structured content as JSON.
    model_content: Option<ModelContent>,
    /// The value of [`RUN_KEY`].
    run: Option<Value>,
    /// Whether the agent should take it for a failure of what it asked.
    is_error: bool,
}

/// The content for the model.
#[derive(Debug, Clone, PartialEq)]
enum ModelContent {
    Text(String),
    Image {
        mime_type: &'static str,
        bytes: Vec<u8>,
    },
    /// A file for the host, which saves it or passes it on.
    File {
        path: String,
        mime_type: &'static str,
        bytes: Vec<u8>,
    },
}

impl ToolAnswer {
    /// What was asked for where `is_done`, else how it failed.
    pub(crate) const fn new(content: Value, is_done: bool) -> Self {
        Self {
            content,
            model_content: None,
            run: None,
            is_error: !is_done,
        }
    }

    /// What was asked for.
    pub(crate) const fn done(content: Value) -> Self {
        Self::new(content, true)
    }

    /// It failed, and this says how.
    pub(crate) const fn failed(content: Value) -> Self {
        Self::new(content, false)
    }

    /// Nothing was done, and this says why.
    pub(crate) fn refused(message: impl std::fmt::Display) -> Self {
        let message = message.to_string();
        Self::failed(json!({ "error": message })).with_text(message)
    }

    /// With this text for the model.
    #[must_use]
    pub(crate) fn with_text(mut self, text: String) -> Self {
        self.model_content = Some(ModelContent::Text(text));
        self
    }

    /// With this image for the model, in both forms.
    #[must_use]
    pub(crate) fn with_image(mut self, mime_type: &'static str, bytes: Vec<u8>) -> Self {
        self.model_content = Some(ModelContent::Image { mime_type, bytes });
        self
    }

    /// With this file as an embedded resource, in both forms.
    #[must_use]
    pub(crate) fn with_file(
        mut self,
        path: String,
        mime_type: &'static str,
        bytes: Vec<u8>,
    ) -> Self {
        self.model_content = Some(ModelContent::File {
            path,
            mime_type,
            bytes,
        });
        self
    }

    /// With what `_meta` says of the run.
    #[must_use]
    pub(crate) fn with_run(mut self, run: Value) -> Self {
        self.run = Some(run);
        self
    }

    /// The structured content.
    pub(crate) fn into_content(self) -> Value {
        self.content
    }

    /// The `result` of the JSON-RPC response, as JSON text.
    pub(crate) fn into_result(self, form: AnswerForm) -> String {
        let structured = self.content.to_string();
        let block = match (self.model_content, form) {
            (Some(ModelContent::Image { mime_type, bytes }), _) => json!({
                "type": "image",
                "data": BASE64_STANDARD.encode(bytes),
                "mimeType": mime_type,
            }),
            (
                Some(ModelContent::File {
                    path,
                    mime_type,
                    bytes,
                }),
                _,
            ) => json!({
                "type": "resource",
                "resource": {
                    "uri": format!("file://{}", utf8_percent_encode(&path, PATH_ESCAPED)),
                    "mimeType": mime_type,
                    "blob": BASE64_STANDARD.encode(bytes),
                },
            }),
            (Some(ModelContent::Text(text)), AnswerForm::Brief) => {
                json!({ "type": "text", "text": text })
            }
            (Some(ModelContent::Text(_)), AnswerForm::Full) | (None, _) => {
                json!({ "type": "text", "text": structured })
            }
        };
        let is_error = self.is_error;
        let meta = self.run.map_or_else(String::new, |run| {
            let meta = Map::from_iter([(RUN_KEY.to_owned(), run)]);
            format!(r#","_meta":{}"#, Value::Object(meta))
        });
        format!(
            r#"{{"content":[{block}],"structuredContent":{structured},"isError":{is_error}{meta}}}"#
        )
    }
}

/// Why a tool did nothing.
pub(crate) struct ToolRefusal {
    /// The agent's message.
    pub(crate) message: String,
    /// The request that the sandbox forbids, as a security event.
    pub(crate) violation: Option<SecurityEvent>,
}

impl ToolRefusal {
    /// A refusal that is no matter of security.
    pub(crate) fn new(error: impl std::fmt::Display) -> Self {
        Self {
            message: error.to_string(),
            violation: None,
        }
    }

    fn of_violation(error: impl std::fmt::Display) -> Self {
        let message = error.to_string();
        Self {
            violation: Some(SecurityEvent::new(EventKind::SandboxViolation, &*message)),
            message,
        }
    }
}

impl From<ArgumentError> for ToolRefusal {
    fn from(error: ArgumentError) -> Self {
        Self::new(error)
    }
}

impl From<PathError> for ToolRefusal {
    /// A path that leads out of the four trees.
    fn from(error: PathError) -> Self {
        match error {
            PathError::UnknownMount | PathError::Name(NameFault::Reserved) => {
                Self::of_violation(error)
            }
            _ => Self::new(error),
        }
    }
}

impl From<Failure> for ToolRefusal {
    /// A link, a special file, a read-only tree, or a path that the policy withholds.
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Tree(
                TreeError::Special(_)
                | TreeError::Linked(_)
                | TreeError::ReadOnly(_)
                | TreeError::Denied(..),
            ) => Self::of_violation(failure),
            _ => Self::new(failure),
        }
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

    fn result(answer: ToolAnswer, form: AnswerForm) -> Value {
        serde_json::from_str(&answer.into_result(form)).unwrap()
    }

    #[test]
    fn the_text_is_what_was_asked_for_and_in_full_the_structured_content() {
        let content = json!({"output": "a \"b\"\n"});
        let answer = ToolAnswer::done(content.clone()).with_text("a \"b\"\n".to_owned());
        let brief = result(answer.clone(), AnswerForm::Brief);
        assert_eq!(brief["content"][0]["text"], "a \"b\"\n");
        assert_eq!(brief["structuredContent"], content);
        assert_eq!(brief["isError"], false);
        assert_eq!(brief.get("_meta"), None);
        let full = result(answer, AnswerForm::Full);
        let text = full["content"][0]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), content);
        let refused = result(ToolAnswer::refused("no"), AnswerForm::Brief);
        assert_eq!(refused["content"][0]["text"], "no");
        assert_eq!(refused["structuredContent"], json!({"error": "no"}));
        assert_eq!(refused["isError"], true);
    }

    #[test]
    fn what_is_about_the_run_and_an_image_have_places_of_their_own() {
        let answer = ToolAnswer::done(json!({"path": "/results/a.png"}))
            .with_image("image/png", vec![1, 2, 3])
            .with_run(json!({"run_id": "1"}));
        let result = result(answer, AnswerForm::Full);
        let image = json!({"type": "image", "data": "AQID", "mimeType": "image/png"});
        assert_eq!(result["content"], json!([image]));
        assert_eq!(result["_meta"], json!({"mooring/run": {"run_id": "1"}}));
    }
}
