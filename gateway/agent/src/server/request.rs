//! Parses and validates the arguments of a call.

use serde_json::Value;

use crate::parent::{ParentError, ParentSession};
use crate::prompt::{PromptError, check_prompt};
use mooring_protocol::arguments::{ArgumentError, Arguments};

/// The arguments of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AgentRequest {
    pub(super) prompt: String,
    pub(super) work_folder: Option<String>,
    pub(super) parent: Option<ParentSession>,
}

/// Why the arguments are invalid. `Display` is for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestError {
    /// A field is missing, has the wrong type, or is unknown.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// The prompt cannot be an argument of a program.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// The parent session is invalid.
    #[error(transparent)]
    Parent(#[from] ParentError),
}

impl AgentRequest {
    /// Parses the arguments of a call.
    pub(super) fn read(arguments: Option<Value>) -> Result<Self, RequestError> {
        let mut arguments = Arguments::new(arguments)?;
        let prompt = arguments.text("prompt", usize::MAX)?;
        let work_folder = arguments.text_if_given("workFolder", usize::MAX)?;
        let parent = arguments.text_if_given("parentSessionId", usize::MAX)?;
        arguments.finish()?;
        check_prompt(&prompt)?;
        let parent = parent.as_deref().map(ParentSession::parse).transpose()?;
        Ok(Self {
            prompt,
            work_folder,
            parent,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use serde_json::json;

    use super::*;
    use crate::prompt::PROMPT_BYTES_MAX;

    #[test]
    fn a_call_says_what_where_and_under_which_name() {
        let request = AgentRequest::read(Some(json!({
            "prompt": " do it\n", "workFolder": "/srv/a", "parentSessionId": "chat 1",
        })));
        let expected = AgentRequest {
            prompt: " do it\n".to_owned(),
            work_folder: Some("/srv/a".to_owned()),
            parent: Some(ParentSession::parse("chat 1").unwrap()),
        };
        assert_eq!(request, Ok(expected));
        let least = AgentRequest::read(Some(json!({"prompt": "a", "workFolder": null})));
        assert_eq!(least.unwrap().parent, None);
    }

    #[test]
    fn what_cannot_be_asked_is_refused_by_name() {
        for (arguments, expected) in [
            (json!({}), "the argument `prompt` is missing"),
            (json!({"prompt": " \n"}), "the prompt is empty"),
            (
                json!({"prompt": "a\0"}),
                "the prompt contains a NUL character",
            ),
            (
                json!({"prompt": ["a"]}),
                "the argument `prompt` must be a string, and is an array",
            ),
            (
                json!({"prompt": "a", "parentSessionId": ""}),
                "parentSessionId is empty",
            ),
            (
                json!({"prompt": "a", "session": "b"}),
                "unknown argument `session`; this tool takes prompt, workFolder, parentSessionId",
            ),
        ] {
            let refused = AgentRequest::read(Some(arguments)).unwrap_err();
            assert_eq!(refused.to_string(), expected);
        }
        let long = "a".repeat(PROMPT_BYTES_MAX + 1);
        assert!(AgentRequest::read(Some(json!({ "prompt": long }))).is_err());
    }
}
