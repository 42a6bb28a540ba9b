//! The argument by which a model names the session that a call continues, where its client has no other way to.
//!
//! It is optional: a call without it begins a session, and its result names that. Invariant: an argument of this name that a
//! tool has itself is not replaced.

use serde_json::value::RawValue;

use crate::keys::Members;
use crate::session_note::SESSION_ARGUMENT;
use crate::splice::{Edit, first_member, quoted};

/// Its schema, which tells the model what it is for.
const SCHEMA: &str = concat!(
    r#"{"type":"string","description":"Continues an earlier session of this server. Each result that begins a session names it; "#,
    r#"pass that name in every later call that should see the same state. Without it, the call begins a new session."}"#
);

/// Adds the argument to the schema of each tool in a list, given as JSON text.
pub(super) fn add_argument(text: &str, tools: &str, edits: &mut Vec<Edit<'static>>) {
    let tools: Vec<&RawValue> = serde_json::from_str(tools).unwrap_or_default();
    edits.extend(tools.iter().filter_map(|tool| edit_of(text, tool.get())));
}

fn edit_of(text: &str, tool: &str) -> Option<Edit<'static>> {
    let is_object = |text: &&str| text.starts_with('{');
    let [schema] = Members::read(&["inputSchema"], tool).ok()?.values;
    let schema = schema.filter(is_object)?;
    let [properties] = Members::read(&["properties"], schema).ok()?.values;
    let member = format!("\"{SESSION_ARGUMENT}\":{SCHEMA}");
    match properties {
        None => first_member(text, schema, &format!("\"properties\":{{{member}}}")),
        Some(properties) if is_object(&properties) => {
            let [own] = Members::read(&[SESSION_ARGUMENT], properties).ok()?.values;
            match own {
                None => first_member(text, properties, &member),
                Some(_) => None,
            }
        }
        Some(_) => None,
    }
}

/// The result of a call in a session that does not exist: an error that the model reads.
#[must_use]
pub fn unknown_session_result() -> String {
    let text = format!(
        "No session of yours has this name at this server: it has ended, and its state is gone, or the name is wrong. Nothing \
         was executed. To begin a new session, leave the argument {SESSION_ARGUMENT} out. [mooring]"
    );
    format!(
        r#"{{"resultType":"complete","content":[{{"type":"text","text":{}}}],"isError":true}}"#,
        quoted(&text)
    )
}
