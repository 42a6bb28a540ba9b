//! The answer to `server/discover` (2026-07-28), made from a server's answer to `initialize`.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::RESERVED_PREFIX;
use crate::version::Revision;

/// What a server says of itself when it is initialized.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeResult {
    #[serde(default)]
    capabilities: Map<String, Value>,
    server_info: Option<Value>,
    instructions: Option<String>,
}

/// Capabilities that need a stream without a request, or a server that asks its client, and members of others that do.
const LEFT_OUT: [(&str, &[&str]); 4] = [
    ("tasks", &[]),
    ("tools", &["listChanged"]),
    ("prompts", &["listChanged"]),
    ("resources", &["listChanged", "subscribe"]),
];

/// The result of `server/discover`, as JSON text, for the result of `initialize`; none if that is none.
#[must_use]
pub fn discovery_result(initialize_result: &str) -> Option<String> {
    let InitializeResult {
        mut capabilities,
        server_info,
        instructions,
    } = serde_json::from_str(initialize_result).ok()?;
    for (name, members) in LEFT_OUT {
        match capabilities.get_mut(name) {
            _ if members.is_empty() => {
                capabilities.remove(name);
            }
            Some(Value::Object(capability)) => {
                capability.retain(|member, _| !members.contains(&member.as_str()));
            }
            Some(_) | None => {}
        }
    }
    let about_server =
        server_info.map(|info| json!({ (format!("{RESERVED_PREFIX}serverInfo")): info }));
    let members = [
        ("resultType", Some(json!("complete"))),
        (
            "supportedVersions",
            Some(json!([Revision::MODERN.as_str()])),
        ),
        ("capabilities", Some(Value::Object(capabilities))),
        ("instructions", instructions.map(Value::String)),
        ("ttlMs", Some(json!(0))),
        ("cacheScope", Some(json!("private"))),
        ("_meta", about_server),
    ];
    let members = members.into_iter();
    let members = members.filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Some(Value::Object(members.collect()).to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]
    use super::*;

    #[test]
    fn a_server_is_described_without_what_needs_another_stream() {
        let initialized = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {
                "tools": {"listChanged": true, "x": 1},
                "resources": {"subscribe": true, "listChanged": false},
                "logging": {},
                "tasks": {"list": {}},
                "experimental": {"x": {}},
            },
            "serverInfo": {"name": "s", "version": "1"},
            "instructions": "Use it.",
        });
        let discovered = discovery_result(&initialized.to_string()).unwrap();
        let discovered: Value = serde_json::from_str(&discovered).unwrap();
        assert_eq!(
            discovered,
            json!({
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": {
                    "tools": {"x": 1},
                    "resources": {},
                    "logging": {},
                    "experimental": {"x": {}},
                },
                "instructions": "Use it.",
                "ttlMs": 0,
                "cacheScope": "private",
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}},
            })
        );
        assert_eq!(discovery_result("[]"), None);
    }
}
