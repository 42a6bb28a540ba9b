//! The definition of a server that an operator adds: the fields of `[[servers]]` as JSON, with ContextForge's names where
//! a field has one there.
//!
//! Invariants: no secret is kept in plain text, since the store and every gateway have the definition; and no program is
//! named, because whoever may add servers must not thereby run programs on every gateway's machine.

use mooring_session::names::ServerName;
use serde_json::{Map, Value};

/// The names of a server's kind.
const KIND_NAMES: [&str; 3] = ["kind", "type", "server_type"];
/// The kinds that can be added.
const KINDS: [&str; 5] = ["http", "sse", "code", "code_execution", "group"];
/// Fields of kinds that start a program.
const PROGRAM_FIELDS: [&str; 3] = ["command", "args", "profile"];
/// Fields whose values are credentials.
const SECRET_FIELDS: [&str; 1] = ["headers"];
/// Fields with which a gateway would send its own files, or the tokens of its callers, to the server.
const LOCAL_FIELDS: [&str; 2] = ["oauth", "vault"];
/// Variables of the gateway itself, which no server gets.
const OWN_VARIABLES: [&str; 4] = ["MOORING_", "MCPGATEWAY_", "CODE_EXECUTION_", "REDIS_URL"];
/// How a value is named that the environment has.
const ENVIRONMENT_PREFIX: &str = "env:";

/// A server as an operator defines it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServerDefinition {
    pub(crate) id: ServerName,
    /// The fields of a server of the settings, with the id.
    pub(crate) fields: Map<String, Value>,
    /// What it is for, in the operator's words.
    pub(crate) note: String,
}

impl ServerDefinition {
    /// Reads a definition. ContextForge wraps it in `server`, calls the id `name`, and has one `url`.
    ///
    /// # Errors
    /// Every problem.
    pub(crate) fn parse(text: Value) -> Result<Self, Vec<String>> {
        let Value::Object(mut fields) = text else {
            return Err(vec!["a server is a JSON object".to_owned()]);
        };
        if let Some(Value::Object(inner)) = fields.remove("server") {
            fields.extend(inner);
        }
        rename(&mut fields, "name", "id");
        if let Some(url) = fields.remove("url") {
            fields
                .entry("instances")
                .or_insert_with(|| Value::Array(vec![url]));
        }
        let note = match fields.remove("description") {
            Some(Value::String(note)) => note,
            _ => String::new(),
        };
        let mut problems = Vec::new();
        let id = fields.get("id").and_then(Value::as_str);
        let id = id.and_then(|id| ServerName::parse(id.as_bytes()).ok());
        if id.is_none() {
            problems.push("id: a server needs an id, which is also accepted as name".to_owned());
        }
        problems.extend(refuse_programs(&fields));
        problems.extend(refuse_secrets(&fields));
        problems.extend(refuse_local_fields(&fields));
        match id.filter(|_| problems.is_empty()) {
            Some(id) => Ok(Self { id, fields, note }),
            None => Err(problems),
        }
    }

    /// The same with changed fields: a field that is null is left out (RFC 7396).
    ///
    /// # Errors
    /// Every problem. The id cannot be changed.
    pub(crate) fn patched(&self, patch: Value) -> Result<Self, Vec<String>> {
        let Value::Object(patch) = patch else {
            return Err(vec!["a change is a JSON object".to_owned()]);
        };
        let mut text = Value::Object(self.fields.clone());
        if let Value::Object(fields) = &mut text {
            fields.insert("description".to_owned(), Value::String(self.note.clone()));
        }
        merge(&mut text, Value::Object(patch));
        let patched = Self::parse(text)?;
        match patched.id == self.id {
            true => Ok(patched),
            false => Err(vec![
                "id: it cannot be changed; add another server".to_owned(),
            ]),
        }
    }
}

fn rename(fields: &mut Map<String, Value>, foreign: &str, name: &str) {
    if let Some(value) = fields.remove(foreign) {
        fields.entry(name).or_insert(value);
    }
}

fn refuse_programs(fields: &Map<String, Value>) -> Option<String> {
    let kind = KIND_NAMES.iter().find_map(|name| fields.get(*name));
    let is_refused = match kind {
        Some(Value::String(kind)) => !KINDS.contains(&kind.as_str()),
        Some(_) => true,
        None => false,
    };
    let program = PROGRAM_FIELDS
        .iter()
        .find(|name| fields.contains_key(**name));
    (is_refused || program.is_some()).then(|| {
        format!(
            "kind: servers of the kinds {} can be added; programs are named in the settings of each gateway",
            KINDS.join(", ")
        )
    })
}

fn refuse_local_fields(fields: &Map<String, Value>) -> impl Iterator<Item = String> {
    let local = LOCAL_FIELDS
        .into_iter()
        .filter(|name| fields.contains_key(*name));
    local.map(|name| format!("{name}: it can be in the settings of each gateway only"))
}

fn refuse_secrets(fields: &Map<String, Value>) -> Vec<String> {
    let tables = SECRET_FIELDS
        .iter()
        .filter_map(|name| Some((name, fields.get(*name)?.as_object()?)));
    let values = tables.flat_map(|(name, table)| table.iter().map(move |entry| (name, entry)));
    let plain = values.filter(|(_, (_, value))| {
        let variable = value
            .as_str()
            .and_then(|value| value.strip_prefix(ENVIRONMENT_PREFIX));
        let is_own = |variable: &str| OWN_VARIABLES.iter().any(|own| variable.starts_with(own));
        variable.is_none_or(is_own)
    });
    plain
        .map(|(name, (key, _))| {
            format!("{name}.{key}: a value may be a secret: name the variable that has it, as \"env:NAME\"; \
                 it must be none of the gateway's own settings")
        })
        .collect()
}

/// RFC 7396.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else {
        return;
    };
    for (name, value) in patch {
        match value {
            Value::Null => {
                fields.remove(&name);
            }
            value => merge(fields.entry(name).or_insert(Value::Null), value),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use serde_json::json;

    use super::*;

    #[test]
    fn the_fields_of_contextforge_have_their_counterparts() {
        let body = json!({"server": {"name": "sandbox", "description": "for the team", "type": "code_execution",
            "stub_language": "python"}});
        let definition = ServerDefinition::parse(body).unwrap();
        assert_eq!(
            (definition.id.as_str(), &*definition.note),
            ("sandbox", "for the team")
        );
        let fields = json!({"id": "sandbox", "type": "code_execution", "stub_language": "python"});
        assert_eq!(Value::Object(definition.fields), fields);
        let body = json!({"id": "tools", "url": "http://127.0.0.1:9/mcp"});
        let definition = ServerDefinition::parse(body).unwrap();
        assert_eq!(
            definition
                .fields
                .get("instances")
                .cloned()
                .unwrap_or_default(),
            json!(["http://127.0.0.1:9/mcp"])
        );
    }

    #[test]
    fn secrets_and_programs_are_refused() {
        for (body, part) in [
            (json!(7), "object"),
            (json!({"instances": []}), "id"),
            (json!({"id": "x", "kind": "stdio"}), "programs"),
            (json!({"id": "x", "command": ["sh"]}), "programs"),
            (json!({"id": "x", "profile": "claude"}), "programs"),
            (
                json!({"id": "x", "headers": {"authorization": "Bearer s3cret"}}),
                "headers.authorization",
            ),
        ] {
            let problems = ServerDefinition::parse(body).unwrap_err().join("\n");
            assert!(problems.contains(part), "{problems}");
            assert!(!problems.contains("s3cret"), "{problems}");
        }
        let named = json!({"id": "x", "headers": {"authorization": "env:TOKEN"}});
        assert!(ServerDefinition::parse(named).is_ok());
    }

    #[test]
    fn a_change_merges_and_keeps_the_id() {
        let body = json!({"id": "x", "instances": ["http://a/"], "tags": ["t"], "limits": {"a": 1, "b": 2}});
        let definition = ServerDefinition::parse(body).unwrap();
        let patch = json!({"instances": ["http://b/"], "tags": null, "limits": {"b": null}, "description": "why"});
        let patched = definition.patched(patch).unwrap();
        let expected = json!({"id": "x", "instances": ["http://b/"], "limits": {"a": 1}});
        assert_eq!(
            (Value::Object(patched.fields), &*patched.note),
            (expected, "why")
        );
        assert!(definition.patched(json!({"id": "y"})).is_err());
    }
}
