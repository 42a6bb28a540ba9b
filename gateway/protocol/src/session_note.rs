//! What the reply to a request says of the session that the request began, for a client that has none of its own.
//!
//! Invariant: a note is parsed and written again, never copied, so it has these facts only.

use serde::Deserialize;

use crate::splice::quoted;

/// The argument by which a model names the session that a call continues.
pub const SESSION_ARGUMENT: &str = "mooring_session";
/// The key of the note, in the `_meta` of a result or the data of an error.
pub(crate) const SESSION_KEY: &str = "mooring/session";
/// Most hexadecimal digits of a name.
const NAME_DIGITS_MAX: usize = 40;

/// What is said of a session that has begun.
#[derive(Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct SessionNote {
    /// Its name, if the model has to repeat it.
    #[serde(default)]
    pub(crate) name: Option<Box<str>>,
    /// Whether an earlier session is gone with its state.
    #[serde(default)]
    pub(crate) state_lost: bool,
}

impl SessionNote {
    /// The note in this JSON text; none if no gateway would write it.
    pub(crate) fn read(json: &str) -> Option<Self> {
        let note: Self = serde_json::from_str(json).ok()?;
        let is_name = |name: &str| {
            name.len() <= NAME_DIGITS_MAX && name.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        note.name.as_deref().is_none_or(is_name).then_some(note)
    }

    /// The note as JSON text.
    pub(crate) fn to_json(&self) -> String {
        let name = match &self.name {
            Some(name) => format!(r#","name":{}"#, quoted(name)),
            None => String::new(),
        };
        let lost = match self.state_lost {
            true => r#","state_lost":true"#,
            false => "",
        };
        format!(r#"{{"new":true{name}{lost}}}"#)
    }
}

/// The sentence for the model in the result of the call that began a session. Sessions are named by letters and digits.
pub(crate) fn session_sentence(session: &str) -> String {
    format!(
        "This call began session {session}. To continue with its state, pass \"{SESSION_ARGUMENT}\": \"{session}\" in later \
         calls. [mooring]"
    )
}
