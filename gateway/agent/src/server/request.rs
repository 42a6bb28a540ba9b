//! Parses and validates the arguments of a call.

use serde_json::Value;

use crate::parent::{ParentError, ParentSession};
use crate::process::PROMPT_BYTES_MAX;
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
    /// Nothing is asked for.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// The prompt is too long for one argument of a program.
    #[error("the prompt has {0} bytes; at most {PROMPT_BYTES_MAX} are passed on")]
    LongPrompt(usize),
    /// An argument of a program cannot contain NUL.
    #[error("the prompt contains a NUL character")]
    NulInPrompt,
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
        if prompt.trim().is_empty() {
            return Err(RequestError::EmptyPrompt);
        }
        if prompt.len() > PROMPT_BYTES_MAX {
            return Err(RequestError::LongPrompt(prompt.len()));
        }
        if prompt.contains('\0') {
            return Err(RequestError::NulInPrompt);
        }
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
    }

    #[test]
    fn a_prompt_is_something_that_fits_one_argument() {
        let read = |prompt: &str| AgentRequest::read(Some(json!({ "prompt": prompt })));
        let longest = "x".repeat(PROMPT_BYTES_MAX);
        for prompt in ["a\n\"b\" $(c) -- ä", &longest] {
            assert_eq!(read(prompt).unwrap().prompt, prompt);
        }
        let longer = format!("{longest}x");
        assert_eq!(read(&longer), Err(RequestError::LongPrompt(longer.len())));
    }
}
